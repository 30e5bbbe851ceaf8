"""Exercises of the chapter "A matmul in blocks"."""

import numpy as np

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, drawn, product
from kernels.proof.workload import cases

EXERCISES = (
    product(
        "columns_first",
        problems=cases(
            "m k n", square=(256, 256, 256), oblong=(128, 64, 384, "a block map with i for j")
        ),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.fetches(x=4, y=2)),
    ),
    Exercise(
        "transposed_rhs",
        lambda x, y: x @ y.T,
        drawn("m k", "n k"),
        cases("m k n", square=(128, 128, 128, "x y has the same shape"), oblong=(128, 64, 256)),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.only_kernel),
        magnitude=lambda x, y: abs(x) @ abs(y.T),
    ),
    Exercise(
        "accumulated",
        lambda x, y: np.maximum(x @ y, 0),
        drawn("m k", "k n"),
        cases(
            "m k n",
            oblong=(128, 384, 256, "a block map with i for j"),
            short=(256, 128, 128, "the first step is the last"),
        ),
        judge=judges.grid(3, 128),
        magnitude=lambda x, y: abs(x) @ abs(y),
    ),
    Exercise(
        "ragged_k",
        lambda x, y: np.cos(x) @ y,
        drawn("m k", "k n"),
        cases(
            "m k n",
            rest=(128, 200, 128, "72 of the last 128 are real"),
            less=(128, 31, 256, "no whole block at all"),
            whole=(256, 256, 128, "nothing to mask"),
        ),
        rungs=("interpret", "simulate"),
        judge=judges.both(judges.lowered, judges.grid(3, 128), judges.only_kernel),
        magnitude=lambda x, y: abs(np.cos(x)) @ abs(y),
    ),
)
