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


def _one(workload, rng):
    return (values(workload.values, (8, workload.sizes["n"]), "float32", rng) + 0.5,)


EXERCISES = (
    Exercise(
        "axpy",
        "Write kernel(a_ref, x_ref, y_ref, o_ref) for o = a x + y; a has one element, x and y n.",
        lambda a, x, y: a * x + y,
        drawn("1", "n", "n"),
        cases("n", tiny=8, one=1, prime=101) + cases("n", values="wide", wide=128),
        call=launch,
        magnitude=lambda a, x, y: abs(a * x) + abs(y),
        hint="a_ref[0] is a number; x_ref[...] and y_ref[...] are whole vectors.",
    ),
    Exercise(
        "sum_and_difference",
        "Write kernel(x_ref, y_ref, s_ref, d_ref) for s = x + y and d = x - y.",
        lambda x, y: np.stack([x + y, x - y]),
        drawn("n", "n"),
        cases("n", tiny=8, prime=101) + cases("n", values="wide", wide=128),
        call=_both,
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        magnitude=lambda x, y: np.stack([abs(x) + abs(y)] * 2),
        hint="Row 0 of the result is s, row 1 is d.",
    ),
    Exercise(
        "normalised",
        "Write kernel(x_ref, o_ref) for rows of length 1, [8, n] → [8, n]: each row of x, divided "
        "by the square root of the sum of its squares.",
        lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
        _one,
        cases("n", tile=128, prime=101, one=(1, "each number becomes 1 or -1")),
        call=launch,
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        hint="x_ref[...] is an array like any other: x.sum(axis=1, keepdims=True) is [8, 1].",
    ),
    Exercise(
        "multiply",
        "Write multiply(x, y, *, interpret) for o = x y, element by element, by a kernel, with its "
        "gradients by jax.custom_vjp.",
        lambda x, y: x * y,
        drawn("n", "n"),
        cases("n", tiny=8, prime=101) + cases("n", values="wide", wide=128),
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        differentiable=("x", "y"),
        hint="If o = x y, a cotangent c goes back to x as c y. Remember what you need for that.",
    ),
)
