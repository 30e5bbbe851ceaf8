"""Chapter 17's exercises take right answers and refuse wrong ones."""

import numpy as np
import pytest
from wrong_17 import WRONG, giou

from kernels.exercises import check, exercises


def needed_speedup(share, wanted):
    with np.errstate(divide="ignore"):
        found = share * wanted / (1 - wanted * (1 - share))
    return np.where(wanted * (1 - share) < 1, found, np.inf)


def ahead(ours, theirs, our_band, their_band):
    def apart(a, b, wide_a, wide_b):
        return (a + a * wide_a < b - b * wide_b).astype(int)

    return apart(ours, theirs, our_band, their_band) - apart(theirs, ours, their_band, our_band)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("needed_speedup", needed_speedup), ("ahead", ahead), ("giou_on_a_gpu", giou)],
)
def test_a_right_answer_passes(name, answer):
    found = check(name, answer)
    assert found.passed is True, str(found)
    assert ", ".join(exercises()[name].rungs) in str(found)


@pytest.mark.parametrize(
    ("name", "answer", "rung", "says"), WRONG, ids=[answer.__name__ for _, answer, *_ in WRONG]
)
def test_a_wrong_answer_is_told_why(name, answer, rung, says):
    found = check(name, answer)
    assert found.passed is False
    assert f"refused at {rung}" in str(found) and says in str(found), str(found)


def test_the_formula_of_needed_speedup_is_amdahls():
    share, wanted = np.array([0.5, 0.5, 0.9, 0.25]), np.array([1.5, 2.5, 5.0, 1.0])
    found = exercises()["needed_speedup"].formula(share, wanted)
    assert found == pytest.approx([3, np.inf, 9, 1])
    within = np.isfinite(found)
    step = 1 / (1 - share + share / found)
    assert step[within] == pytest.approx(wanted[within])


def test_ahead_is_a_tie_where_the_bands_touch():
    formula = exercises()["ahead"].formula
    ours, theirs = np.array([1.0, 1.0, 2.0, 1.0]), np.array([1.1, 1.2, 1.0, 1.0])
    band = np.full(4, 0.06)
    assert formula(ours, theirs, band, band).tolist() == [0, 1, -1, 0]
