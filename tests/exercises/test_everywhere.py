"""The formulas behind the exercises of the last chapter, worked out by hand."""

import numpy as np
import pytest

from kernels.exercises import exercises


def test_needed_speedup_turns_amdahl_round():
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


def test_linears_at_peak_of_one_block():
    rows, width, peak = 1000, 10, 197e12
    products = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    operations = sum(2 * rows * m * n for m, n in products)
    found = exercises()["linears_at_peak"].formula(1, rows, width)
    assert found == pytest.approx(3 * operations / peak * 1e3)
