"""Exercises of the chapter "Pipelines"."""

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.machines.tpu.export import abstract_device
from kernels.proof.workload import cases

ROWS = 64  # of a block that is copied by hand
HBM = pl.BlockSpec(memory_space=pltpu.HBM)
EMITTED_CYCLES = 61_500  # of 24 MiB that move


def _double(kernel, x, *, interpret):
    scratch = [pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA]
    return launch(kernel, x, in_specs=[HBM], scratch_shapes=scratch, interpret=interpret)


def _total(kernel, x, *, interpret):
    shape = ROWS, x.shape[1]
    scratch = [pltpu.VMEM((2, *shape), x.dtype), pltpu.SemaphoreType.DMA((2,))]
    options = {"in_specs": [HBM], "scratch_shapes": scratch, "name": "total"}
    return launch(kernel, x, shape=shape, interpret=interpret, **options)


def _in_hbm(kernel, x, y, *, interpret):
    with abstract_device(judges.CHIP):  # emit_pipeline asks which chip it is on
        return launch(kernel, x, y, blocks=(HBM,) * 3, interpret=interpret, name="emitted")


EXERCISES = (
    Exercise(
        "from_hbm",
        lambda x: 2 * x,
        drawn("rows columns"),
        cases("rows columns", tile=(8, 128)) + cases("rows columns", values="wide", wide=(8, 128)),
        call=_double,
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
    ),
    Exercise(
        "double_buffer",
        lambda x: x.reshape(-1, ROWS, x.shape[1]).sum(0),
        drawn("rows columns"),
        cases(
            "rows columns",
            four=(256, 256),
            odd=(320, 128, "the last one is in buffer 0"),
            one=(64, 128, "there is no next block"),
        ),
        call=_total,
        judge=judges.copies_ahead,
        magnitude=lambda x: abs(x).reshape(-1, ROWS, x.shape[1]).sum(0),
    ),
    Exercise(
        "emitted",
        lambda x, y: x * y,
        drawn("rows columns", "rows columns"),
        cases("rows columns", square=(256, 256), oblong=(192, 128, "another block to a side")),
        call=_in_hbm,
        bar=bars.cycles(EMITTED_CYCLES, 56_141, workload=bars.at(rows=2048, columns=1024)),
    ),
)
