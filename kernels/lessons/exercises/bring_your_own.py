"""Exercise of the chapter "Bring your own kernel"."""

import numpy as np
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises.bars import Bar
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.proof.backends.python import PYTHON
from kernels.proof.ladder import Refused
from kernels.proof.workload import Workload, cases

CHIP = "v6e"
EPSILON = 1e-5
MICROSECONDS = 24.0  # that a fast answer may take on 4096 × 1024, estimated


def _standardised(x):
    """The reference, of NumPy or JAX."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / ((centred * centred).mean(-1, keepdims=True) + EPSILON) ** 0.5


def _magnitude(x):
    terms = np.abs(x) + np.abs(x).mean(-1, keepdims=True)
    return terms / np.sqrt(x.var(-1, keepdims=True) + EPSILON)


def _proven(answer, x, *, interpret):
    """The answer's result, once `kernels.prove` has nothing to say of it."""
    import kernels

    report = kernels.prove(answer, _standardised, arguments=lambda rng: (x,), chips=(CHIP,))
    if report.failures:
        first = report.failures[0]
        raise Refused(f"kernels.prove, {first.rung}, {first.problem}: {first.message}")
    with pltpu.force_tpu_interpret_mode():
        return np.asarray(answer(x))


def _microseconds(tried):
    """The estimated time of the answer's program."""
    from kernels.machines import tpu

    return tpu.estimate(tried.answer, *tried.arguments, chip=CHIP).seconds * 1e6


EXERCISES = (
    Exercise(
        "own_standardise",
        "Write standardise(x), a Pallas kernel in its wrapper without interpret=: [M, N] float32 "
        "→ each row less its mean, over the square root of its variance and 1e-5. kernels.prove "
        f"passes it for a {CHIP}, and on 4096 × 1024 it is estimated at {MICROSECONDS:.0f} µs or "
        "less.",
        _standardised,
        drawn("m n"),
        cases("m n", few=(512, 256), long=(64, 2048, "rows longer than there are of them")),
        call=_proven,
        backend=PYTHON,
        bar=Bar(
            f"µs, estimated for a {CHIP}",
            _microseconds,
            bar=MICROSECONDS,
            ours=23.6,
            spec=".1f",
            workload=Workload("bar", {"m": 4096, "n": 1024}),
        ),
        magnitude=_magnitude,
        hint="The mean of squares less the square of the mean loses what both have in common. "
        "Then let `tune` rank the blocks.",
    ),
)
