"""Nearness as the rungs judge it, for tests: no tolerance is chosen by hand."""

import numpy as np

from kernels import budget


def assert_close(result, reference, plain, magnitude=None, **options):
    """`result` keeps the error budget; see kernels.budget.compare for what is what."""
    verdict = budget.compare(result, reference, plain, magnitude, **options)
    assert verdict.passed, verdict.message


def assert_same_formula(result, reference, magnitude=None):
    """Two float64 results of one formula: as if the first were its plainest implementation too."""
    assert np.asarray(result).dtype == np.float64
    assert_close(result, reference, reference, magnitude, accumulator=np.float64)
