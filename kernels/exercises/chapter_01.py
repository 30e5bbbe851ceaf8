"""Exercises of chapter 1."""

import jax
from jax.experimental import pallas as pl

from kernels.exercises.exercise import Exercise, problems
from kernels.workload import Workload, values


def _three(workload, rng):
    n = workload.sizes["n"]
    return tuple(values(workload.values, (size,), workload.dtype, rng) for size in (1, n, n))


def _axpy(kernel, a, x, y, *, interpret):
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=interpret
    )(a, x, y)


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
)
