"""Softmax on a TPU and in NKI: any shape, any rank, and what it asks of its arguments."""

import ml_dtypes
import numpy as np
import pytest
from close import assert_right
from hypothesis import given
from hypothesis import strategies as st

from kernels import neuron
from kernels.softmax import RowBlocks, nki, softmax


@given(
    rows=st.sampled_from([1, 2, 31, 127, 128, 129, 257]),
    n=st.sampled_from([1, 3, 101, 512, 1025]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_any_size(rows, n, dtype):
    rng = np.random.default_rng(rows * n)
    x = (5 * rng.standard_normal((rows, n))).astype(getattr(ml_dtypes, dtype, dtype))
    assert_right("softmax", softmax(x, implementation="nki"), x)


def test_rows_that_do_not_stay_in_sbuf():
    x = np.random.default_rng(0).standard_normal((3, 2 * nki.WHOLE + 5)).astype(np.float32)
    assert_right("softmax", softmax(x, implementation="nki"), x)


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5), (1, 2, 1, 4)])
def test_any_rank(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert_right("softmax", softmax(x, implementation="nki"), x)


@pytest.mark.parametrize("slope", [-1, 1])
def test_rows_in_parts_with_the_largest_first_or_last(slope):
    """The sum of the earlier parts has to shrink, or that of the later ones to stay small."""
    x = np.random.default_rng(0).standard_normal((40, 509)).astype(np.float32)
    x += slope * np.arange(509, dtype=np.float32) / 64
    assert_right("softmax", softmax(x, block=RowBlocks(32, 128)), x)


def test_the_scalar_engine_adds_up_while_it_raises():
    """Of a tile: one instruction of exp, one short one that reads the sums out."""
    found = neuron.estimate(nki.softmax_kernel, np.zeros((128, 512), np.float32))
    assert found.engines["Scalar"].instructions == 2
    assert found.engines["Scalar"].by_name["activation_reduce"] == 512


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros((2, 0), np.float32), r"x.shape is \(2, 0\); accepted: dimensions of at least 1"),
        (np.zeros((), np.float32), r"x.shape is \(\); accepted: 1 dimension"),
        (np.zeros(3, np.int32), "x.dtype is 'int32'; accepted: float32, bfloat16"),
        ([1.0], "x is a list; accepted: an array of rank 1"),
    ],
)
def test_arguments_are_checked(x, says):
    with pytest.raises(ValueError, match=says):
        softmax(x)


def test_implementations_and_blocks_are_named():
    x = np.zeros(3, np.float32)
    with pytest.raises(
        ValueError, match="implementation is 'torch'; accepted: xla, pallas, mosaic_gpu, nki"
    ):
        softmax(x, implementation="torch")
    with pytest.raises(ValueError, match=r"block is 32; accepted: None or RowBlocks\(rows"):
        softmax(x, block=32)
    with pytest.raises(ValueError, match='since "nki" chooses its own'):
        softmax(x, block=RowBlocks(8, 128), implementation="nki")
