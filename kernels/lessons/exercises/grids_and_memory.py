"""Exercises of the chapter "Grids and memory spaces"."""

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, launch, numbers
from kernels.proof.workload import cases, values

SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
ROWS = pl.BlockSpec((8, 128), lambda b: (b, 0))


def _table(kernel, *sizes, interpret):
    options = {"shape": sizes, "dtype": jnp.int32, "grid": sizes, "out_specs": SMEM}
    return launch(kernel, interpret=interpret, **options)


def _first_of(kernel, n, programs, *, interpret):
    """So many programs alone run: their order shows in what they leave, the rest is -1."""

    def watched(o_ref):
        program = pl.program_id(0)
        before = [jnp.where(program > 0, o_ref[i], -1) for i in range(n)]
        for i, number in enumerate(before):
            o_ref[i] = number
        kernel(o_ref)
        for i, number in enumerate(before):
            o_ref[i] = jnp.where(program < programs, o_ref[i], number)

    return _table(watched if programs < n else kernel, n, interpret=interpret)


def _running_maximum(kernel, x, *, interpret):
    sizes = (len(x) // 8,)
    scratch = [pltpu.SMEM((1,), x.dtype)]
    options = {"shape": sizes, "grid": sizes, "scratch_shapes": scratch, "interpret": interpret}
    return launch(kernel, x, blocks=(ROWS, SMEM), **options)


def _block_sums(kernel, x, *, interpret):
    whole = pl.BlockSpec((8, 128), lambda b: (0, 0))
    options = {"shape": (8, 128), "grid": (len(x) // 8,), "interpret": interpret}
    return launch(kernel, x, blocks=(ROWS, whole), **options)


def _negative(workload, rng):
    x = values("normal", (8 * workload.sizes["blocks"], 128), "float32", rng)
    x[:16] = -abs(x[:16]) - 1 if workload.name == "negative" else x[:16]
    return (x,)


EXERCISES = (
    Exercise(
        "squares_backwards",
        lambda n, programs: np.where(np.arange(n) < n - programs, -1, np.arange(n) ** 2),
        numbers,
        cases("n programs", tiny=(4, 4), one=(1, 1), prime=(37, 37), order=(4, 1, "one runs")),
        call=_first_of,
    ),
    Exercise(
        "table",
        lambda m, n: np.outer(np.arange(m, dtype=np.int32), np.arange(n, dtype=np.int32)),
        numbers,
        cases("m n", dtype="int32", square=(3, 3), oblong=(2, 7, "i and j taken for each other")),
        call=_table,
    ),
    Exercise(
        "running_maximum",
        lambda x: np.maximum.accumulate(x.reshape(-1, 8 * 128).max(1)),
        _negative,
        cases("blocks", eight=8, negative=(3, "zero is larger than all of two blocks")),
        call=_running_maximum,
    ),
    Exercise(
        "block_sums",
        lambda x: x.reshape(-1, 8, 128).sum(0),
        _negative,
        cases("blocks", eight=8, one=(1, "the first program is the last")),
        call=_block_sums,
        magnitude=lambda x: abs(x).reshape(-1, 8, 128).sum(0),
    ),
    Exercise(
        "diagonal",
        lambda x: np.concatenate([x[i : i + 128, i : i + 128] for i in range(0, len(x), 128)]),
        lambda workload, rng: (
            values("normal", (128 * workload.sizes["blocks"],) * 2, "float32", rng),
        ),
        cases("blocks", three=3, one=1),
        judge=judges.both(judges.only_kernel, judges.fetches(x=3)),
    ),
)
