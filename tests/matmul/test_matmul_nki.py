"""The product in NKI: any shape, what it refuses, and how often it fetches."""

import ml_dtypes
import numpy as np
import pytest
from close import assert_right
from hypothesis import given
from hypothesis import strategies as st

from kernels import neuron
from kernels.matmul import matmul, nki

SIZES = st.sampled_from([1, 2, 127, 128, 129, 300, 513])


@given(m=SIZES, k=SIZES, n=SIZES, dtype=st.sampled_from(["float32", "bfloat16"]))
def test_any_size(m, k, n, dtype):
    rng = np.random.default_rng(m * k * n)
    x, y = (
        rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))
        for shape in ((m, k), (k, n))
    )
    assert_right("matmul", matmul(x, y, implementation="nki"), x, y)


def test_blocks_of_k_are_added_up():
    x, y = (
        np.round(np.random.default_rng(0).standard_normal(s) * 4).astype(np.float32)
        for s in ((1300, 140), (1300, 530))
    )
    got = neuron.simulate(nki.matmul_kernel, x, y, rows=1, columns=1, depth=2)
    assert np.array_equal(got, x.T @ y)


def test_each_block_is_fetched_as_often_as_it_says():
    """Of two blocks of rows and two of columns, x and y come in twice."""
    x, y = np.zeros((256, 512), np.float32), np.zeros((256, 2048), np.float32)
    found = neuron.estimate(nki.matmul_kernel, x, y, rows=2, columns=2, depth=2)
    assert found.dma_bytes == 2 * (x.nbytes + y.nbytes) + 512 * 2048 * 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"activation": np.tanh}, 'activation is .*; accepted: None, since "nki" only multiplies'),
        ({"prologue": np.tanh}, "prologue is .* only multiplies"),
    ],
)
def test_what_it_does_not_fuse(options, says):
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=says):
        matmul(x, x, implementation="nki", **options)
    with pytest.raises(ValueError, match=r"x.dtype is 'int8'; accepted: float32, bfloat16"):
        matmul(x.astype(np.int8), x.astype(np.int8), implementation="nki")
