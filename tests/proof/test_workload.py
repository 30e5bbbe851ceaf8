"""Values are drawn as they are named."""

import itertools

import numpy as np
import pytest

from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import VALUES, Workload, cases, values


@pytest.mark.parametrize("kind", VALUES)
def test_shape_and_dtype(kind):
    dtypes = ["float32", "bfloat16", "float64", "int8", "int32"]
    for shape, dtype in itertools.product([(1,), (1, 1), (7, 13)], dtypes):
        x = values(kind, shape, dtype, np.random.default_rng(0))
        assert (x.shape, str(x.dtype)) == (shape, dtype)


def test_values_are_what_their_kind_says():
    drawn = lambda *asked: values(*asked, np.random.default_rng(0))
    x = drawn("nonfinite", (20, 20), "float32")
    assert np.isnan(x).sum() == 1 and np.isposinf(x).sum() == 1 and np.isneginf(x).sum() == 1
    x = drawn("normal", (4096,), "int8")  # its whole range
    assert x.min() == -128 and x.max() == 127
    x = drawn("cancelling", (1000,), "float64")
    assert abs(x.sum()) < 1e-3 * np.abs(x).sum()
    with pytest.raises(ValueError, match="accepted: normal"):
        drawn("odd", (2,), "float32")


def test_sizes_of_ones_own_come_with_what_cannot_be_done_without():
    bricks = OPERATORS["brick_pad"].workloads
    found = bricks.find("h=5 w=8 c=3 uint8")
    assert found.options == bricks.named[0].options and found.dtype == "uint8"


@pytest.mark.parametrize(
    "text",
    [
        *(f"n=4 {dtype}" for dtype in ("str", "finfo", "int8 int8", "n=5")),
        *(f"n={size}" for size in ("²", "-1", "n=", 1 << 70, 1 << 55)),
    ],
)
def test_a_size_that_cannot_be_and_a_dtype_that_nobody_draws_are_refused(text):
    workloads = OPERATORS["add_vectors"].workloads
    with pytest.raises(ValueError, match=r"workload is .*; accepted: (a whole|sizes (and|whose))"):
        workloads.arguments(workloads.find(text))


def test_a_table_of_cases_says_what_is_special_of_one():
    plain, special = cases("m k", plain=(1, 2), special=(3, 4, "why", {"dtype": "int8"}))
    assert plain == Workload("plain", {"m": 1, "k": 2})
    assert special == Workload("special", {"m": 3, "k": 4}, "int8", why="why")
