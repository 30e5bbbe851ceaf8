"""Exercises of the chapter "A matmul in blocks"."""

import numpy as np

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.proof.workload import cases


def _magnitude(x, y):
    return abs(x) @ abs(y)


EXERCISES = (
    Exercise(
        "columns_first",
        "Write columns_first(x, y, *, interpret) for x y, [m, k], [k, n] → [m, n], with blocks of "
        "128 × 128 of the result, so that each block of y is fetched once; m and n are multiples "
        "of 128, k is any.",
        lambda x, y: x @ y,
        drawn("m k", "k n"),
        cases("m k n", square=(256, 256, 256), oblong=(128, 64, 384, "a block map with i for j")),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.fetches(x=4, y=2)),
        magnitude=_magnitude,
        hint="The last coordinate of the grid runs fastest.",
    ),
    Exercise(
        "transposed_rhs",
        "Write times_transposed(x, y, *, interpret) for x yᵀ, [m, k], [n, k] → [m, n], with blocks "
        "of 128 × 128 of the result; m and n are multiples of 128, k is any. Nothing is transposed "
        "outside of the kernel.",
        lambda x, y: x @ y.T,
        drawn("m k", "n k"),
        cases("m k n", square=(128, 128, 128, "x y has the same shape"), oblong=(128, 64, 256)),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.only_kernel),
        magnitude=lambda x, y: abs(x) @ abs(y.T),
        hint='Let lax.dot_general sum over the last dimension of both, with precision="highest".',
    ),
    Exercise(
        "accumulated",
        "Write accumulated(x, y, *, interpret) for max(x y, 0), [m, k], [k, n] → [m, n], by a grid "
        "of three dimensions with blocks of 128 × 128 × 128 and sums that stay in VMEM; sizes are "
        "multiples of 128.",
        lambda x, y: np.maximum(x @ y, 0),
        drawn("m k", "k n"),
        cases(
            "m k n",
            oblong=(128, 384, 256, "a block map with i for j"),
            short=(256, 128, 128, "the first step is the last"),
        ),
        judge=judges.grid(3, 128),
        magnitude=_magnitude,
        hint="Which dimension of the grid runs fastest? When does a sum begin, and when is it "
        "finished? See pl.when.",
    ),
    Exercise(
        "ragged_k",
        "Write ragged(x, y, *, interpret) for cos(x) y, [m, k], [k, n] → [m, n], in blocks of 128 "
        "along k, for any k; m and n are multiples of 128. Nothing is padded, and no cosine taken, "
        "outside of the kernel.",
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
        hint="Beyond its array a block holds anything, NaN here, and 0 times NaN is NaN: mask both "
        "factors. pl.program_id(2) * 128 is where a block begins.",
    ),
)
