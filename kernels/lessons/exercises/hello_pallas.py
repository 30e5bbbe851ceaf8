"""Exercises of the chapter "Hello, Pallas"."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.workload import cases, values


def _both(kernel, x, y, *, interpret):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jnp.stack(pl.pallas_call(kernel, out_shape=[like, like], interpret=interpret)(x, y))


EXERCISES = (
    Exercise(
        "axpy",
        lambda a, x, y: a * x + y,
        drawn("1", "n", "n"),
        cases("n", tiny=8, one=1, prime=101) + cases("n", values="wide", wide=128),
        call=launch,
        magnitude=lambda a, x, y: abs(a * x) + abs(y),
    ),
    Exercise(
        "sum_and_difference",
        lambda x, y: np.stack([x + y, x - y]),
        drawn("n", "n"),
        cases("n", tiny=8, prime=101) + cases("n", values="wide", wide=128),
        call=_both,
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        magnitude=lambda x, y: np.stack([abs(x) + abs(y)] * 2),
    ),
    Exercise(
        "normalised",
        lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
        lambda workload, rng: (values("normal", (8, workload.sizes["n"]), "float32", rng) + 0.5,),
        cases("n", tile=128, prime=101, one=(1, "each number becomes 1 or -1")),
        call=launch,
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
    ),
    Exercise(
        "multiply",
        lambda x, y: x * y,
        drawn("n", "n"),
        cases("n", tiny=8, prime=101) + cases("n", values="wide", wide=128),
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        differentiable=("x", "y"),
    ),
)
