"""Exercises of the chapter "Softmax, norms, cross-entropy"."""

import functools

import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.norm import reference
from kernels.proof.workload import Workload, cases
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
    """[rows, n]; "growing" has its largest numbers in the last part, and around 200."""
    (x,) = drawn("rows n")(workload, rng)
    return (x + np.linspace(0, 200, x.shape[1], dtype=x.dtype) * (workload.name == "growing"),)


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
        "Write kernel(x_ref, weight_ref, bias_ref, o_ref) for the layer norm of rows, [32, n], "
        "[1, n] twice and [32, n]: each row less its mean, over the root of its variance plus "
        "1e-5, times the weight, plus the bias.",
        reference.layer_norm,
        _normal,
        cases("rows n", normal=(64, 256), far_from_zero=(32, 384, "numbers around 1000"))
        + cases("rows n", dtype="bfloat16", bfloat16=(32, 128)),
        call=_layer_norm,
        rungs=("interpret",),
        judge=judges.lowered,
        magnitude=reference.layer_norm_magnitude,
        hint="The variance is the mean of the squared distances from the mean. The mean of the "
        "squares less the square of the mean is the same on paper only.",
    ),
    Exercise(
        "log_sum_exp",
        "Write kernel(x_ref, o_ref, m_ref, l_ref, *, n) for the logarithm of the sum of exp(x) of "
        "each row of x, [rows, n] → [rows, 1]: program j of the grid gets columns 128 j to "
        "128 j + 127, [rows, 128], of which those from n on do not exist; m_ref and l_ref, "
        "[rows, 1], keep what it writes.",
        _log_sum_exp,
        _logits,
        cases(
            "rows n",
            growing=(16, 512, "exp overflows, and the last part has the maximum"),
            ragged=(8, 300, "a last part of 44 columns"),
        ),
        call=_in_parts,
        magnitude=lambda x: 1 + abs(x).max(1, keepdims=True) + abs(_log_sum_exp(x)),
        hint="Begin with m = -inf and l = 0. What a new maximum does to l, the merge of two parts "
        "says; what does not exist is -inf for the maximum.",
    ),
    Exercise(
        "softmax_fast",
        "Write softmax(x, *, interpret) for the softmax of each row, [rows, n] → [rows, n], with "
        "one pl.pallas_call whose blocks of rows you choose; for 2048 × 2048 in bfloat16 it is "
        f"estimated at {CYCLES:,} cycles or fewer on a v5e.",
        softmax,
        drawn("rows n"),
        cases("rows n", whole=(64, 256), ragged=(200, 384, "no block of 64 rows divides it"))
        + cases("rows n", values="wide", wide=(64, 128, "exp overflows")),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.only_kernel),
        magnitude=lambda x: softmax(x) * (1 + x.max(1, keepdims=True) - x),
        bar=bars.cycles(CYCLES, 39_974, Workload("bar", {"rows": 2048, "n": 2048}, "bfloat16")),
        hint="The first block is fetched and the last one is written while nothing else happens; "
        "and each block costs a step. What do very small and very large blocks pay?",
    ),
)
