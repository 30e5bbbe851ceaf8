"""The product in NKI, where the ladder does not look: blocks of k, and how often it fetches."""

import numpy as np

from kernels import neuron
from kernels.matmul import nki


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
