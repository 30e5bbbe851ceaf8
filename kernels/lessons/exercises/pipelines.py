"""Exercises of the chapter "Pipelines"."""

from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.machines.tpu.export import abstract_device
from kernels.proof.workload import Workload, cases

ROWS = 64  # of a block that is copied by hand
HBM = pl.BlockSpec(memory_space=pltpu.HBM)
EMITTED_CYCLES = 61_500  # of 24 MiB that move


def _double(kernel, x, *, interpret):
    options = {"in_specs": [pl.BlockSpec(memory_space=pltpu.HBM)], "interpret": interpret}
    scratch = [pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA]
    return launch(kernel, x, scratch_shapes=scratch, **options)


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
        "Write kernel(x_ref, o_ref, buffer_ref, arrived) for o = 2 x, [8, 128]: x_ref lies in HBM, "
        "buffer_ref in VMEM, arrived is a semaphore for a copy.",
        lambda x: 2 * x,
        drawn("rows columns"),
        cases("rows columns", tile=(8, 128)) + cases("rows columns", values="wide", wide=(8, 128)),
        call=_double,
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        hint="pltpu.make_async_copy(x_ref, buffer_ref, arrived) has start() and wait().",
    ),
    Exercise(
        "double_buffer",
        "Write kernel(x_ref, o_ref, buffer_ref, arrived) for o = the sum of the blocks of 64 rows "
        "of x, [64 b, n] → [64, n]: x_ref lies in HBM, buffer_ref [2, 64, n] and o_ref in VMEM, "
        "arrived holds two semaphores; the next block is asked for before this one is waited for.",
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
        hint="pltpu.make_async_copy(x_ref.at[pl.ds(64 * i, 64)], buffer_ref.at[i % 2], "
        "arrived.at[i % 2]) has start() and wait(). Which copy is started before the loop?",
    ),
    Exercise(
        "emitted",
        "Write kernel(x_ref, y_ref, o_ref) for o = x y, element by element, [64 b, 128 c] each, "
        "all three in HBM, by pltpu.emit_pipeline, sides multiples of 64 and 128, estimated at "
        f"{EMITTED_CYCLES:,} cycles or fewer on a v5e for 2048 × 1024.",
        lambda x, y: x * y,
        drawn("rows columns", "rows columns"),
        cases("rows columns", square=(256, 256), oblong=(192, 128, "another block to a side")),
        call=_in_hbm,
        bar=bars.cycles(
            EMITTED_CYCLES, 56_141, workload=Workload("bar", {"rows": 2048, "columns": 1024})
        ),
        hint="pltpu.emit_pipeline(body, grid=…, in_specs=[…], out_specs=[…]) gives a function of "
        "the refs in HBM; body gets refs in VMEM.",
    ),
)
