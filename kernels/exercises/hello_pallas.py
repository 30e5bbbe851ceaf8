"""Exercises of the chapter "Hello, Pallas"."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from kernels.exercises import judges
from kernels.exercises.exercise import Exercise, call_kernel, prediction, problems
from kernels.pallas import calls
from kernels.workload import Workload, values


def _three(workload, rng):
    n = workload.sizes["n"]
    return tuple(values(workload.values, (size,), workload.dtype, rng) for size in (1, n, n))


def _axpy(kernel, a, x, y, *, interpret):
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=interpret
    )(a, x, y)


def _two(workload, rng):
    return _three(workload, rng)[1:]


def _both(kernel, x, y, *, interpret):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jnp.stack(pl.pallas_call(kernel, out_shape=[like, like], interpret=interpret)(x, y))


def _moved(inputs, outputs, n):
    """What the pipeline moves for a kernel without a grid."""
    like = jax.ShapeDtypeStruct((n,), jnp.float32)
    kernel = pl.pallas_call(lambda *refs: None, out_shape=[like] * outputs)
    return calls(kernel, *[like] * inputs)[0].traffic


EXERCISES = (
    Exercise(
        "axpy",
        "Write kernel(a_ref, x_ref, y_ref, o_ref) for o = a x + y; a has one element, x and y n.",
        lambda a, x, y: a * x + y,
        _axpy,
        problems(
            _three,
            Workload("tiny", {"n": 8}),
            Workload("one", {"n": 1}),
            Workload("prime", {"n": 101}),
            Workload("wide", {"n": 128}, values="wide"),
        ),
        magnitude=lambda a, x, y: abs(a * x) + abs(y),
        hint="a_ref[0] is a number.",
    ),
    Exercise(
        "sum_and_difference",
        "Write kernel(x_ref, y_ref, s_ref, d_ref) for s = x + y and d = x - y.",
        lambda x, y: np.stack([x + y, x - y]),
        _both,
        problems(
            _two,
            Workload("tiny", {"n": 8}),
            Workload("prime", {"n": 101}),
            Workload("wide", {"n": 128}, values="wide"),
        ),
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        magnitude=lambda x, y: np.stack([abs(x) + abs(y)] * 2),
        hint="Row 0 of the result is s, row 1 is d.",
    ),
    prediction(
        "moved",
        "Write moved(inputs, outputs, n): the bytes that DMAs carry, both ways together, for a "
        "kernel of so many float32 vectors of n numbers.",
        _moved,
        Workload("add", {"inputs": 2, "outputs": 1, "n": 8}, "int64"),
        Workload("both", {"inputs": 2, "outputs": 2, "n": 101}, "int64"),
        Workload("many", {"inputs": 5, "outputs": 1, "n": 1024}, "int64"),
        hint="A float32 has four bytes. Nothing is fetched twice.",
    ),
    Exercise(
        "multiply",
        "Write multiply(x, y, *, interpret) for o = x y, element by element, by a kernel, with its "
        "gradients by jax.custom_vjp.",
        lambda x, y: x * y,
        call_kernel,
        problems(
            _two,
            Workload("tiny", {"n": 8}),
            Workload("prime", {"n": 101}),
            Workload("wide", {"n": 128}, values="wide"),
        ),
        rungs=("interpret", "simulate"),
        judge=judges.lowered,
        differentiable=("x", "y"),
        hint="If o = x y, a cotangent c goes back to x as c y. Remember what you need for that.",
    ),
)
