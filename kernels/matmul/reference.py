"""The oracles. NumPy or JAX arrays in, in float64; so they can be differentiated too."""

import jax.numpy as jnp
import numpy as np

__all__ = ["matmul", "matmul_magnitude"]


def _operands(x, y, prologue, transpose_rhs):
    if x.dtype == np.int8:
        x, y = x.astype(np.int64), y.astype(np.int64)  # sums of 8-bit products, without overflow
    return x if prologue is None else prologue(x), y.T if transpose_rhs else y


def matmul(x, y, *, prologue=None, activation=None, transpose_rhs=False):
    """[m, k], [k, n] → [m, n], in the precision of the arguments."""
    x, y = _operands(x, y, prologue, transpose_rhs)
    z = x @ y
    return z if activation is None else activation(z)


def matmul_magnitude(x, y, *, prologue=None, activation=None, transpose_rhs=False):
    """The sum of the absolute values of the products that each element adds up."""
    x, y = _operands(x, y, prologue, transpose_rhs)
    return abs(x) @ abs(y)


def _dequantised(x, y, x_scale, y_scale):
    return (x.astype(np.int64) @ y.astype(np.int64)) * x_scale[:, None] * y_scale


def quantized_matmul(x, y, x_scale, y_scale, bias, *, activation=None, out_dtype="float32"):
    """act((x y) · x_scale · y_scale + bias); out_dtype is of the implementations."""
    z = _dequantised(x, y, x_scale, y_scale) + bias
    return z if activation is None else activation(z)


def quantized_matmul_magnitude(
    x, y, x_scale, y_scale, bias, *, activation=None, out_dtype="float32"
):
    """The integer sums are exact: what is rounded is the scaled sum and the bias."""
    return abs(_dequantised(x, y, x_scale, y_scale)) + abs(bias)


def _dense(blocks, rows, columns, m, k):
    """x[bm·row + i, bk·column + j] += block[i, j] for every block, as far as x goes."""
    _, bm, bk = blocks.shape
    i = bm * rows[:, None, None] + np.arange(bm)[None, :, None]
    j = bk * columns[:, None, None] + np.arange(bk)[None, None, :]
    return jnp.zeros((m, k), blocks.dtype).at[i, j].add(blocks, mode="drop")


def block_sparse_matmul(blocks, y, rows, columns, *, m=None):
    """x y, of x only blocks at (rows, columns), in the precision of the arguments."""
    if blocks.dtype == np.int8:
        blocks, y = jnp.asarray(blocks, int), jnp.asarray(y, int)
    return _dense(blocks, rows, columns, m or len(y), len(y)) @ y


def block_sparse_matmul_magnitude(blocks, y, rows, columns, *, m=None):
    """The sum of the absolute values of the products that each element adds up."""
    return block_sparse_matmul(abs(blocks), abs(y), rows, columns, m=m)
