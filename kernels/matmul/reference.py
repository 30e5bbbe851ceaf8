"""The oracle. NumPy or JAX arrays in, in float64; so it can be differentiated too."""

import numpy as np


def _operands(x, y, transpose_rhs):
    if x.dtype == np.int8:
        x, y = x.astype(np.int64), y.astype(np.int64)  # sums of 8-bit products, without overflow
    return x, y.T if transpose_rhs else y


def matmul(x, y, *, activation=None, transpose_rhs=False):
    """[m, k], [k, n] → [m, n], in the precision of the arguments."""
    x, y = _operands(x, y, transpose_rhs)
    z = x @ y
    return z if activation is None else activation(z)


def matmul_magnitude(x, y, *, activation=None, transpose_rhs=False):
    """The sum of the absolute values of the products that each element adds up."""
    x, y = _operands(x, y, transpose_rhs)
    return abs(x) @ abs(y)
