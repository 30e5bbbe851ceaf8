"""Exercises of the chapter "A pipelined matmul"."""

import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.machines.tpu.export import abstract_device
from kernels.proof.workload import Workload, cases, values

ROWS = 64  # of a block that is copied by hand
HBM = pl.BlockSpec(memory_space=pltpu.HBM)
GATED_CYCLES = 42_500  # of two products of 1024³; at the peak 32,683


def _total(kernel, x, *, interpret):
    shape = ROWS, x.shape[1]
    scratch = [pltpu.VMEM((2, *shape), x.dtype), pltpu.SemaphoreType.DMA((2,))]
    options = {"in_specs": [HBM], "scratch_shapes": scratch, "name": "total"}
    return launch(kernel, x, shape=shape, interpret=interpret, **options)


def _in_hbm(kernel, x, y, *, interpret):
    with abstract_device(judges.CHIP):  # emit_pipeline asks which chip it is on
        return launch(kernel, x, y, blocks=(HBM,) * 3, interpret=interpret, name="emitted")


def _rows(count):
    def make(workload, rng):
        shape = ROWS * workload.sizes["blocks"], workload.sizes["columns"]
        return tuple(values("normal", shape, "float32", rng) for _ in range(count))

    return make


def _silu(g):
    return g / (1 + np.exp(-g))


def _gated(x, a, b):
    return _silu(x @ a) * (x @ b)


def _gated_magnitude(x, a, b):
    """Of both factors' sums, each times the other factor; the slope of silu is at most 1.1."""
    gate, rest = (abs(x) @ abs(y) for y in (a, b))
    return 1.1 * gate * abs(x @ b) + abs(_silu(x @ a)) * rest


EXERCISES = (
    Exercise(
        "double_buffer",
        "Write kernel(x_ref, o_ref, buffer_ref, arrived) for o = the sum of the blocks of 64 rows "
        "of x, [64 b, n] → [64, n]: x_ref lies in HBM, buffer_ref [2, 64, n] and o_ref in VMEM, "
        "arrived holds two semaphores; the next block is asked for before this one is waited for.",
        lambda x: x.reshape(-1, ROWS, x.shape[1]).sum(0),
        _rows(1),
        cases(
            "blocks columns",
            four=(4, 256),
            odd=(5, 128, "the last one is in buffer 0"),
            one=(1, 128, "there is no next block"),
        ),
        call=_total,
        judge=judges.copies_ahead,
        magnitude=lambda x: abs(x).reshape(-1, ROWS, x.shape[1]).sum(0),
        hint="pltpu.make_async_copy(x_ref.at[pl.ds(64 * i, 64)], buffer_ref.at[i % 2], "
        "arrived.at[i % 2]) has start() and wait(). Which copy is started before the loop?",
    ),
    Exercise(
        "emitted",
        "Write kernel(x_ref, y_ref, o_ref) for o = x y, element by element, [64 b, 128 c] each, "
        "all three in HBM, by pltpu.emit_pipeline with blocks of 64 × 128.",
        lambda x, y: x * y,
        _rows(2),
        cases("blocks columns", square=(4, 256), oblong=(3, 128, "i and j taken for each other")),
        call=_in_hbm,
        hint="pltpu.emit_pipeline(body, grid=…, in_specs=[…], out_specs=[…]) gives a function of "
        "the refs in HBM; body gets refs in VMEM.",
    ),
    Exercise(
        "fast_gated",
        "Write gated(x, a, b, *, interpret) for silu(x a) · (x b), element by element, in "
        "bfloat16: [m, k], [k, n] twice → [m, n], sums in float32, sizes multiples of 128, by one "
        f"kernel that is estimated at {GATED_CYCLES:,} cycles or fewer on a v5e for "
        "m = k = n = 1024.",
        _gated,
        drawn("m k", "k n", "k n"),
        cases("m k n", dtype="bfloat16", small=(128, 256, 128), oblong=(512, 128, 1024)),
        rungs=("interpret",),
        judge=judges.only_kernel,
        bar=bars.cycles(
            GATED_CYCLES,
            (("0.0.42.1", 41_303), ("0.0.50.1", 41_304)),
            workload=Workload("bar", {"m": 1024, "k": 1024, "n": 1024}, "bfloat16"),
        ),
        magnitude=_gated_magnitude,
        hint="Both products need the same block of x, and neither has to leave VMEM. Three blocks "
        "are fetched before the first product begins: which of them can be smaller?",
    ),
    Exercise(
        "backward",
        "Write product(x, y, *, interpret) for x y, with both gradients by jax.custom_vjp, each of "
        "them a Pallas kernel too; sizes are multiples of 128.",
        lambda x, y: x @ y,
        drawn("m k", "k n"),
        cases(
            "m k n", square=(128, 128, 128), oblong=(128, 256, 384, "a gradient of another shape")
        )
        + cases("m k n", dtype="bfloat16", bfloat16=(128, 256, 128, "sums of 8 bits")),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.kernels(3)),
        magnitude=lambda x, y: abs(x) @ abs(y),
        differentiable=("x", "y"),
        hint="If c comes back to z = x y, then c yᵀ goes to x, and xᵀ c to y.",
    ),
)
