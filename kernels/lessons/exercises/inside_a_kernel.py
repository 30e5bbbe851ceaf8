"""Exercises of the chapter "Inside a kernel"."""

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.workload import cases

EXERCISES = (
    Exercise(
        "cumulative",
        "Write kernel(x_ref, o_ref) for the running sums of the rows of x, [m, 128] → [m, 128].",
        lambda x: x.cumsum(0),
        drawn("m 128"),
        cases("m", tiles=64, ragged=37, one=1),
        call=launch,
        magnitude=lambda x: abs(x).cumsum(0),
        hint="x_ref[pl.ds(i, 1), :] is row i. What do all the rows above it come down to?",
    ),
    Exercise(
        "column_means",
        "Write column_means(x, *, interpret) for the mean of each column, bfloat16 [m, 128] → "
        "float32 [1, 128], in blocks of at most 128 rows, for any m. Nothing is padded.",
        lambda x: x.mean(0, keepdims=True),
        drawn("m 128"),
        cases("m", dtype="bfloat16", ragged=300, whole=256, less=(5, "no whole block at all")),
        judge=judges.both(judges.only_kernel, judges.grid(1, 128)),
        magnitude=lambda x: abs(x).mean(0, keepdims=True),
        hint="Beyond its array a block holds anything. Add in float32, divide once.",
    ),
)
