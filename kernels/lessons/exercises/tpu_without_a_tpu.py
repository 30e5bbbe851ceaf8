"""Exercises of the chapter "A TPU without a TPU"."""

import functools

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.workload import cases, values
from kernels.softmax.reference import softmax

BUNDLES = 110  # of a step of the softmax; float32 factors at the highest precision take far more
ROWS_CYCLES = 23_500  # of 1,024 rows to standardise; eight at a time take nearly twice that


def _softmax(kernel, x, y, *, interpret):
    rows = pl.BlockSpec((16, 128), lambda i: (i, 0))
    blocks = rows, pl.BlockSpec((128, 128), lambda i: (0, 0)), rows
    options = {"shape": (len(x), 128), "dtype": jnp.float32, "grid": (len(x) // 16,)}
    return launch(kernel, x, y, blocks=blocks, name="softmax", interpret=interpret, **options)


def _two(workload, rng):
    draw = drawn("m 128", "128 128")
    scale = 2.0 if workload.sizes["m"] == 16 else 0.25  # without the maximum, large ones overflow
    return tuple((scale * a).astype(jnp.bfloat16) for a in draw(workload, rng))


def _rows(kernel, x, *, interpret):
    block = pl.BlockSpec((128, 1024), lambda i: (i, 0))
    options = {"grid": (len(x) // 128,), "name": "standardise", "interpret": interpret}
    return launch(kernel, x, blocks=(block, block), **options)


_standardise = functools.partial(
    Exercise,
    reference=lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True),
    make=lambda workload, rng: (
        values("normal", (workload.sizes["rows"], 1024), "float32", rng) + 3,
    ),
    problems=cases("rows", two=256, one=128),
    call=_rows,
    rungs=("interpret",),
    judge=judges.schedule(spills=0),
    magnitude=lambda x: (abs(x) + abs(x.mean(1, keepdims=True))) / x.std(1, keepdims=True),
)

EXERCISES = (
    Exercise(
        "softmax",
        lambda x, y: softmax(np.asarray(x @ y)),
        _two,
        cases("m", dtype="bfloat16", four=64, one=16),
        call=_softmax,
        rungs=("interpret",),
        judge=judges.schedule(bundles=BUNDLES),
    ),
    _standardise("standardise"),
    _standardise(
        "standardise_fast", bar=bars.cycles(ROWS_CYCLES, 20_525, workload=bars.at(rows=1024))
    ),
)
