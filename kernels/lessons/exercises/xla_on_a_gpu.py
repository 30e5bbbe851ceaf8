"""Exercises of the chapter "The XLA pipeline on a GPU"."""

import numpy as np

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.bars import Bar, at
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.proof.backends.xla import XLA
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases, values

LAYER = at("bfloat16", m=1024, k=512, n=2048)
STEPS = 2  # of a layer with a residual: its two products


def _residual_magnitude(x, w1, b, w2):
    x, w1, b, w2 = map(np.abs, (x, w1, b, w2))
    return x + (x @ w1 + b) @ w2


def _losses(x, labels):
    above = x - x.max(-1, keepdims=True)
    return np.log(np.exp(above).sum(-1)) - above[np.arange(len(x)), labels]


def _labelled(workload, rng):
    rows, width = workload.sizes.values()
    labels = rng.integers(width, size=rows).astype(np.int32)
    return values("normal", (rows, width), "float32", rng), labels


def _steps(program):
    return len(judges.for_hopper(program).thunks)


def _one_kernel(programs):
    if (steps := _steps(programs[0])) > 1:
        raise Refused(f"{steps} steps on an H100, one kernel wanted")
    return "one kernel on an H100"


EXERCISES = (
    Exercise(
        "gpu_residual",
        lambda x, w1, b, w2: x - np.maximum(x @ w1 + b, 0) @ w2,
        drawn("m k", "k n", "n", "n k"),
        cases("m k n", dtype="bfloat16", layer=(128, 64, 256), square=(128, 128, 128)),
        backend=XLA,
        magnitude=_residual_magnitude,
        bar=Bar(
            "steps on an H100", lambda tried: _steps(tried.program), STEPS, STEPS, ",.0f", LAYER
        ),
    ),
    Exercise(
        "one_gpu_kernel",
        _losses,
        _labelled,
        cases("m n", rows=(64, 1024), one=(1, 256)),
        backend=XLA,
        magnitude=lambda x, labels: np.abs(x).max(-1) + np.log(x.shape[1]),
        judge=_one_kernel,
    ),
)
