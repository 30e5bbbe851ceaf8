"""Seconds are one type everywhere: a figure calculates, a range is read at its ends."""

import json
import pickle

import numpy as np
import pytest

from kernels.machines.base import Seconds

FIGURE, RANGE = Seconds(1.5e-6), Seconds(1e-6, float("inf"))


def test_a_figure_is_a_float_like_any_other():
    assert FIGURE == 1.5e-6 == float(FIGURE) and hash(FIGURE) == hash(1.5e-6)
    assert (FIGURE * 2, 2 / FIGURE, sum([FIGURE, FIGURE])) == (3e-6, 2 / 1.5e-6, 3e-6)
    assert FIGURE < 1 and max(FIGURE, 2e-6) == 2e-6
    assert f"{FIGURE:.1e} {FIGURE * 1e6:.0f}" == "1.5e-06 2" and json.dumps(FIGURE) == "1.5e-06"
    assert np.asarray([FIGURE, FIGURE]).tolist() == [1.5e-6] * 2
    assert pytest.approx(FIGURE) == 1.5e-6


@pytest.mark.parametrize("seconds", [FIGURE, RANGE])
def test_both_unpack_as_low_and_high(seconds):
    low, high = seconds
    assert (low, high) == (seconds.low, seconds.high) == (seconds[0], seconds[1])
    assert seconds.is_range == (low != high)
    again = pickle.loads(pickle.dumps(seconds))
    assert again == seconds and (again.low, again.high) == (low, high)


@pytest.mark.parametrize(
    "calculate",
    [
        float,
        lambda seconds: seconds * 1e6,
        lambda seconds: 2 / seconds,
        lambda seconds: seconds < 1,
        lambda seconds: max(seconds, FIGURE),
        lambda seconds: sum([FIGURE, seconds]),
    ],
)
def test_a_range_is_no_number(calculate):
    with pytest.raises(ValueError, match=r"seconds is a range, 1e-06 to inf; accepted: a figure"):
        calculate(RANGE)
    assert f"{RANGE:.0e}" == "1e-06 to inf" and Seconds(1e-6) != RANGE and Seconds(*RANGE) == RANGE
