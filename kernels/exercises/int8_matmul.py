"""Exercises of the chapter "An int8 matmul"."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from kernels import ladder, tpu
from kernels.backends.python import PYTHON
from kernels.exercises import judges
from kernels.exercises.exercise import Exercise, call, compared, prediction, problems
from kernels.matmul import quantize, quantized_matmul
from kernels.workload import Workload, values


def _spiky(workload, rng):
    """Tokens with outlier channels, weights, and which channels they are."""
    m, k, n, some = workload.sizes.values()
    x, y = (values("normal", shape, "float32", rng) for shape in ((m, k), (k, n)))
    outliers = tuple(int(i) for i in np.sort(rng.choice(k, some, replace=False)))
    x[:, outliers] *= 60
    return x, y / np.float32(np.sqrt(k)), outliers


def _error(result, x, y):
    right = np.float64(x) @ np.float64(y)
    wrong = np.linalg.norm(np.float64(result) - right, axis=1)
    return float(np.median(wrong / np.linalg.norm(right, axis=1)))


def _apart(answer, x, y, outliers, *, interpret):
    """Whether the error is less than half of what int8 has for the whole."""
    z = compared(answer(x, y, outliers))
    if not interpret:
        return z
    if np.shape(z) != (len(x), y.shape[1]):
        raise ladder.Refused(f"shape is {np.shape(z)}, the reference has {(len(x), y.shape[1])}")
    (q, r), (p, c) = quantize(x, axis=1), quantize(y, axis=0)
    limit = _error(quantized_matmul(q, p, r, c, jnp.zeros(y.shape[1])), x, y) / 2
    if not (found := _error(z, x, y)) <= limit:
        raise ladder.Refused(f"the error is {found:.2%}, wanted at most {limit:.2%}")
    return np.True_


def _smallest(chip, result_bytes):
    """2n³ operations on (2 + result_bytes) n² bytes have to reach the ridge."""
    ridge = tpu.CHIPS[chip].int8_ops / tpu.CHIPS[chip].hbm_bytes_per_second
    return math.ceil(ridge * (2 + result_bytes) / 2)


def _scaled(kernel, x, y, r, c, *, interpret):
    like = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), jnp.float32)
    return pl.pallas_call(kernel, out_shape=like, interpret=interpret)(x, y, r, c)


def _layer(workload, rng):
    m, k, n = workload.sizes.values()
    shapes = (((m, k), "int8"), ((k, n), "int8"), ((m, 1), "float32"), ((1, n), "float32"))
    return tuple(values("normal", shape, dtype, rng) for shape, dtype in shapes)


def _wide(x):
    return np.asarray(x).astype(np.int64)


EXERCISES = (
    prediction(
        "longest",
        "Write longest(a, b): how many products of whole numbers, of magnitude at most a and b, "
        "int32 is sure to add up without overflow.",
        lambda a, b: np.iinfo(np.int32).max // (a * b),
        Workload("quantize", {"a": 127, "b": 127}, "int64"),
        Workload("all_of_int8", {"a": 128, "b": 128}, "int64", why="-128 times -128"),
        Workload("int4", {"a": 127, "b": 7}, "int64"),
        hint="The largest int32 is 2³¹ - 1.",
    ),
    Exercise(
        "smooth",
        "Write smooth(x, y) for SmoothQuant: the scale s_k of each of the channels, [k], by which "
        "x is divided and y multiplied.",
        lambda x, y, outliers: np.sqrt(np.abs(x).max(0) / np.abs(y).max(1)),
        lambda answer, x, y, outliers, *, interpret: compared(answer(x, y)),
        problems(
            _spiky,
            Workload("few", {"m": 8, "k": 16, "n": 4, "outliers": 2}),
            Workload("wide", {"m": 32, "k": 256, "n": 64, "outliers": 6}),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        magnitude=lambda x, y, outliers: np.sqrt(np.abs(x).max(0) / np.abs(y).max(1)),
        hint="A channel is a column of x and a row of y.",
    ),
    Exercise(
        "apart",
        "Write apart(x, y, outliers) for x y, [m, k], [k, n] → [m, n]: the channels in the tuple "
        "outliers in bfloat16 or better, the others in int8; the median error of a token is to be "
        "at most half of what it is with everything in int8.",
        lambda x, y, outliers: np.True_,
        _apart,
        problems(
            _spiky,
            Workload("few", {"m": 32, "k": 256, "n": 64, "outliers": 6}),
            Workload("one", {"m": 16, "k": 128, "n": 128, "outliers": 1}),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        judge=judges.int8_products,
        hint="x[:, outliers] are the columns of x, y[outliers] the rows of y that belong to them.",
    ),
    Exercise(
        "smallest",
        "Write smallest(chip, result_bytes): the smallest n for which an n × n int8 matmul can "
        "reach the peak of tpu.CHIPS[chip], if every byte moves once and an element of the result "
        "takes result_bytes.",
        _smallest,
        call,
        problems(
            lambda workload, rng: (workload.name.split("_")[0], *workload.sizes.values()),
            Workload("v6e_int32", {"result_bytes": 4}, "int64"),
            Workload("v6e_bfloat16", {"result_bytes": 2}, "int64"),
            Workload("v5e_int32", {"result_bytes": 4}, "int64"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="Compare operations for a byte with chip.int8_ops / chip.hbm_bytes_per_second.",
    ),
    Exercise(
        "scaled",
        "Write kernel(x_ref, y_ref, r_ref, c_ref, z_ref) for z = (x y) r c, in one block: x and y "
        "are int8, r [m, 1] and c [1, n] are scales, z is float32.",
        lambda x, y, r, c: (_wide(x) @ _wide(y)) * r * c,
        _scaled,
        problems(
            _layer,
            Workload("tile", {"m": 32, "k": 128, "n": 128}),
            Workload("long", {"m": 32, "k": 1024, "n": 128}, why="sums beyond int16"),
        ),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.int8_products),
        magnitude=lambda x, y, r, c: abs((_wide(x) @ _wide(y)) * r * c),
        hint="jnp.dot takes preferred_element_type.",
    ),
)
