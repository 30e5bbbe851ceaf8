"""Exercises of the chapter "Inside a kernel"."""

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.workload import cases

EXERCISES = (
    Exercise(
        "cumulative",
        lambda x: x.cumsum(0),
        drawn("m 128"),
        cases("m", tiles=64, ragged=37, one=1),
        call=launch,
        magnitude=lambda x: abs(x).cumsum(0),
    ),
    Exercise(
        "column_means",
        lambda x: x.mean(0, keepdims=True),
        drawn("m 128"),
        cases("m", dtype="bfloat16", ragged=300, whole=256, less=(5, "no whole block at all")),
        judge=judges.both(judges.only_kernel, judges.grid(1, 128)),
        magnitude=lambda x: abs(x).mean(0, keepdims=True),
    ),
)
