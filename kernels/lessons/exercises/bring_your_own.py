"""Exercises of the chapter "Bring your own kernel"."""

import functools

import numpy as np
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises.bars import Bar, at
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.machines import tpu
from kernels.machines.pallas.calls import calls
from kernels.proof.backends.python import PYTHON
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases

CHIP = "v6e"
EPSILON = 1e-5
MICROSECONDS = 26.0  # that a fast answer may take on 4096 × 1024, estimated


def _standardised(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / ((centred * centred).mean(-1, keepdims=True) + EPSILON) ** 0.5


def _magnitude(x):
    terms = np.abs(x) + np.abs(x).mean(-1, keepdims=True)
    return terms / np.sqrt(x.var(-1, keepdims=True) + EPSILON)


def _proven(reference, answer, x, *, interpret):
    """The answer's result, once `kernels.prove` has nothing to say of it."""
    import kernels

    report = kernels.prove(answer, reference, arguments=lambda rng: (x,), chips=(CHIP,))
    if report.failures:
        first = report.failures[0]
        raise Refused(f"kernels.prove, {first.rung}, {first.problem}: {first.message}")
    with pltpu.force_tpu_interpret_mode():
        return np.asarray(answer(x))


def _sums(x):
    return x.sum(0, keepdims=True)


def _shared(answer, x, *, interpret):
    """The same of the sums, once cores can share the work."""
    result = _proven(_sums, answer, x, interpret=interpret)
    grids = [dim for call in calls(answer, x) for dim in zip(call.semantics, call.grid)]
    if not any(semantics == "parallel" and programs > 1 for semantics, programs in grids):
        raise Refused("no dimension of the grid is parallel: a second core has nothing to do")
    return result


EXERCISES = (
    Exercise(
        "own_sums",
        _sums,
        drawn("m n"),
        cases("m n", few=(128, 256), wide=(192, 640)),
        call=_shared,
        backend=PYTHON,
        magnitude=lambda x: _sums(np.abs(x)),
    ),
    Exercise(
        "own_standardise",
        _standardised,
        drawn("m n"),
        cases("m n", few=(512, 256), long=(64, 2048, "rows longer than there are of them")),
        call=functools.partial(_proven, _standardised),
        backend=PYTHON,
        bar=Bar(
            f"µs, estimated for a {CHIP}",
            lambda tried: tpu.estimate(tried.answer, *tried.arguments, chip=CHIP).seconds * 1e6,
            *(MICROSECONDS, 24.9, ".1f", at(m=4096, n=1024)),
        ),
        magnitude=_magnitude,
    ),
)
