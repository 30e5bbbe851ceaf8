"""The formulas behind the exercises of the last chapter, worked out by hand."""

import jax
import numpy as np
import pytest

from kernels.exercises import exercises
from kernels.exercises.everywhere import PROGRAMS


def test_needed_speedup_turns_amdahl_round():
    share, wanted = np.array([0.5, 0.5, 0.9, 0.25]), np.array([1.5, 2.5, 5.0, 1.0])
    found = exercises()["needed_speedup"].formula(share, wanted)
    assert found == pytest.approx([3, np.inf, 9, 1])
    within = np.isfinite(found)
    step = 1 / (1 - share + share / found)
    assert step[within] == pytest.approx(wanted[within])


def test_ahead_is_a_tie_where_the_bands_touch():
    formula = exercises()["ahead"].formula
    ours, theirs = np.array([1.0, 1.0, 2.0, 1.0]), np.array([1.2, 1.3, 1.0, 1.0])
    band = np.repeat([[-0.2], [0.0]], 4, 1)  # up to a fifth too low, never too high
    assert formula(ours, theirs, band, band).tolist() == [0, 1, -1, 0]
    one, touching = np.array([1.0]), np.array([1.25])
    assert formula(one, touching, np.array([[-0.2], [0.0]]), np.zeros((2, 1))).tolist() == [0]


@pytest.mark.parametrize("name", ["linear", "gradients", "batched"])
def test_product_flops_are_those_that_xla_counts(name):
    function, shapes, *_ = PROGRAMS[name]
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    counted = jax.jit(function).lower(*arrays).cost_analysis()["flops"]
    found = exercises()["product_flops"].formula(function, *arrays)
    assert found <= counted < 1.3 * found  # what is not a product is small
