"""Softmax in NKI, and what it asks of its arguments."""

import numpy as np
from refused import refuses

from kernels import neuron
from kernels.softmax import RowBlocks, nki, softmax


def test_the_scalar_engine_adds_up_while_it_raises():
    """Of a tile: one instruction of exp, one short one that reads the sums out."""
    found = neuron.estimate(nki.softmax_kernel, np.zeros((128, 512), np.float32))
    assert found.engines["Scalar"].instructions == 2
    assert found.engines["Scalar"].by_name["activation_reduce"] == 512


test_arguments_are_checked = refuses(
    lambda change: softmax(**dict(x=np.zeros(3, np.float32)) | change),
    (dict(x=np.zeros((2, 0), np.float32)), r"x.shape is \(2, 0\); accepted: dimensions of at"),
    (dict(x=np.zeros((), np.float32)), r"x.shape is \(\); accepted: 1 dimension"),
    (dict(x=np.zeros(3, np.int32)), "x.dtype is 'int32'; accepted: float32, bfloat16"),
    (dict(x=[1.0]), "x is a list; accepted: an array of rank 1"),
    (dict(implementation="torch"), "is 'torch'; accepted: xla, pallas, mosaic_gpu, nki"),
    (dict(block=32), r"block is 32; accepted: None or RowBlocks\(rows"),
    (dict(block=RowBlocks(8, 128), implementation="nki"), 'since "nki" chooses its own'),
)
