"""Nearness as the rungs judge it, for tests: no tolerance is chosen by hand."""

import numpy as np

from kernels import budget
from kernels.proof.catalog import OPERATORS


def assert_close(result, reference, plain, magnitude=None, **options):
    """`result` keeps the error budget; see kernels.budget.compare for what is what."""
    verdict = budget.compare(result, reference, plain, magnitude, **options)
    assert verdict.passed, verdict.message


def assert_same_formula(result, reference, magnitude=None):
    """Two float64 results of one formula: as if the first were its plainest implementation too."""
    assert np.asarray(result).dtype == np.float64
    assert_close(result, reference, reference, magnitude, accumulator=np.float64)


def assert_right(name, result, *arguments, **options):
    """`result` is what the operator of that name makes of the arguments, by its budget."""
    operator = OPERATORS[name]
    wide = [
        np.asarray(a).astype(np.float64) if np.asarray(a).dtype.kind not in "iub" else a
        for a in arguments
    ]
    magnitude, rounding = (
        function and function(*wide, **options)
        for function in (operator.magnitude, operator.rounding)
    )
    plain = operator.function(*arguments, implementation=operator.plain, **options)
    want = operator.reference(*wide, **options)
    assert_close(result, want, plain, magnitude, rounding=rounding)
