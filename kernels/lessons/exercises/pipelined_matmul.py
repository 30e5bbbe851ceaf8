"""Exercises of the chapter "A fast matmul"."""

import numpy as np

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, product
from kernels.proof.workload import cases

GATED_CYCLES = 44_000  # of two products of 1024³; at the peak 32,683


def _silu(g):
    return g / (1 + np.exp(-g))


def _gated_magnitude(x, a, b):
    """Of both factors' sums, each times the other factor; the slope of silu is at most 1.1."""
    gate, rest = (abs(x) @ abs(y) for y in (a, b))
    return 1.1 * gate * abs(x @ b) + abs(_silu(x @ a)) * rest


EXERCISES = (
    Exercise(
        "fast_gated",
        lambda x, a, b: _silu(x @ a) * (x @ b),
        drawn("m k", "k n", "k n"),
        cases("m k n", dtype="bfloat16", small=(128, 256, 128), oblong=(512, 128, 1024)),
        rungs=("interpret",),
        judge=judges.only_kernel,
        bar=bars.cycles(
            *(GATED_CYCLES, (("0.0.42.1", 42_803), ("0.0.50.1", 42_804))),
            workload=bars.at("bfloat16", m=1024, k=1024, n=1024),
        ),
        magnitude=_gated_magnitude,
    ),
    product(
        "backward",
        problems=cases(
            "m k n", square=(128, 128, 128), oblong=(128, 256, 384, "a gradient of another shape")
        )
        + cases("m k n", dtype="bfloat16", bfloat16=(128, 256, 128, "sums of 8 bits")),
        rungs=("interpret", "compile"),
        judge=judges.kernels(3),
        differentiable=("x", "y"),
    ),
)
