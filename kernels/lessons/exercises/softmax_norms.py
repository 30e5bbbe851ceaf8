"""Exercises of the chapter "Softmax, norms, cross-entropy"."""

import functools

import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.norm import reference
from kernels.proof.workload import cases
from kernels.softmax.reference import softmax

ROWS = 32  # of a block
PART = 128  # columns of a part of a row
CYCLES = 41_500  # of 16 MiB that move


def _normal(workload, rng):
    x, weight, bias = drawn("rows n", "1 n", "1 n")(workload, rng)
    return x + 1000 * (workload.name == "far_from_zero"), weight, bias


def _layer_norm(kernel, x, weight, bias, *, interpret):
    block = pl.BlockSpec((ROWS, x.shape[1]), lambda i: (i, 0))
    vector = pl.BlockSpec((1, x.shape[1]), lambda i: (0, 0))
    options = {"shape": x.shape, "grid": (len(x) // ROWS,), "name": "layer_norm"}
    blocks = (block, vector, vector, block)
    return launch(kernel, x, weight, bias, blocks=blocks, interpret=interpret, **options)


def _logits(workload, rng):
    """[rows, n]; "growing" has its largest numbers, around 200, at the end, "ragged" -200."""
    (x,) = drawn("rows n")(workload, rng)
    ends = (0, 200) if workload.name == "growing" else (-200, -200)
    return (x + np.linspace(*ends, x.shape[1], dtype=x.dtype),)


def _log_sum_exp(x):
    largest = x.max(1, keepdims=True)
    return largest + np.log(np.exp(x - largest).sum(1, keepdims=True))


def _in_parts(kernel, x, *, interpret):
    rows, n = x.shape
    part = pl.BlockSpec((rows, PART), lambda j: (0, j))
    return launch(
        functools.partial(kernel, n=n),
        x,
        shape=(rows, 1),
        grid=(pl.cdiv(n, PART),),
        blocks=(part, pl.BlockSpec((rows, 1), lambda j: (0, 0))),
        scratch_shapes=[pltpu.VMEM((rows, 1), x.dtype)] * 2,
        interpret=interpret,
        name="log_sum_exp",
    )


EXERCISES = (
    Exercise(
        "layer_norm_rows",
        reference.layer_norm,
        _normal,
        cases("rows n", normal=(64, 256), far_from_zero=(32, 384, "numbers around 1000"))
        + cases("rows n", dtype="bfloat16", bfloat16=(32, 128)),
        call=_layer_norm,
        rungs=("interpret",),
        judge=judges.lowered,
        magnitude=reference.layer_norm_magnitude,
    ),
    Exercise(
        "log_sum_exp",
        _log_sum_exp,
        _logits,
        cases(
            "rows n",
            growing=(16, 512, "exp overflows, and the last part has the maximum"),
            ragged=(8, 300, "a last part of 44 columns, and all far below 0"),
        ),
        call=_in_parts,
        magnitude=lambda x: 1 + abs(x).max(1, keepdims=True) + abs(_log_sum_exp(x)),
    ),
    Exercise(
        "softmax_fast",
        softmax,
        drawn("rows n"),
        cases("rows n", whole=(64, 256), ragged=(200, 384, "no block of 64 rows divides it"))
        + cases("rows n", values="wide", wide=(64, 128, "exp overflows")),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.only_kernel),
        magnitude=lambda x: softmax(x) * (1 + x.max(1, keepdims=True) - x),
        bar=bars.cycles(CYCLES, 39_974, bars.at("bfloat16", rows=2048, n=2048)),
    ),
)
