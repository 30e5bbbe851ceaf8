"""Exercises of chapter 3."""

import numpy as np

from kernels.exercises.exercise import Exercise, problems
from kernels.workload import Workload, values


def _layer(workload, rng):
    m, k, n = (workload.sizes[name] for name in "mkn")
    return tuple(values("normal", shape, "float32", rng) for shape in ((m, k), (k, n), (n,)))


EXERCISES = (
    Exercise(
        "matmul_bias",
        "Write layer(x, y, b, *, interpret) for relu(x y + b), [m, k], [k, n], [n] → [m, n], with "
        "blocks of 128 × 128 of the result; m and n are multiples of 128, k is any.",
        lambda x, y, b: np.maximum(x @ y + b, 0),
        lambda answer, x, y, b, *, interpret: answer(x, y, b, interpret=interpret),
        problems(
            _layer,
            Workload("square", {"m": 256, "k": 256, "n": 256}),
            Workload("oblong", {"m": 128, "k": 64, "n": 384}, why="a block map with i for j"),
            Workload("thin", {"m": 256, "k": 1, "n": 128}),
        ),
        magnitude=lambda x, y, b: abs(x) @ abs(y) + abs(b),
        hint="On a TPU a row is a block of (1, 128) of b[None, :].",
    ),
)
