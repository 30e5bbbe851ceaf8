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


def _weights(y, scale, k, weights):
    """[k, n] of what was stored; of int4 two to a byte, the even row of a group in the low half."""
    groups = scale.reshape(-1, y.shape[1])
    w = y.reshape(len(groups), -1, y.shape[1])
    if weights == "int4":
        wide = jnp.asarray(w, int)
        w = jnp.stack([(wide + 8) % 16 - 8, wide // 16], 2).reshape(len(groups), -1, y.shape[1])
    return (w[:, : k // len(groups)] * groups[:, None]).reshape(k, -1)


def _sums(x, y, x_scale, y_scale, weights, absolute=lambda a: a):
    if x.dtype != np.int8:
        return absolute(x) @ absolute(_weights(y, y_scale, x.shape[1], weights))
    return absolute((x.astype(np.int64) @ y.astype(np.int64)) * x_scale[:, None] * y_scale)


def quantized_matmul(
    x, y, x_scale, y_scale, bias, *, weights=None, activation=None, out_dtype=None
):
    """act((x y) · scales + bias); out_dtype is of the implementations."""
    z = _sums(x, y, x_scale, y_scale, weights) + bias
    return z if activation is None else activation(z)


def quantized_matmul_magnitude(x, y, x_scale, y_scale, bias, *, weights=None, **others):
    """Of int8 by int8 the sums are exact: what is rounded is the scaled sum and the bias."""
    return _sums(x, y, x_scale, y_scale, weights, abs) + abs(bias)


def quantized_matmul_rounding(x, y, x_scale, y_scale, bias, *, weights=None, **others):
    """Floats may be multiplied by weights that were scaled, and rounded to x's dtype, before."""
    if x.dtype == np.int8:
        return 0 * bias
    return (x**2 @ _weights(y, y_scale, x.shape[1], weights) ** 2) ** 0.5


def block_sparse_matmul(blocks, y, rows, columns, *, m=None):
    """x y, of x only blocks at (rows, columns), in the precision of the arguments."""
    if blocks.dtype == np.int8:
        blocks, y = jnp.asarray(blocks, int), jnp.asarray(y, int)
    _, bm, bk = blocks.shape
    i = bm * rows[:, None, None] + np.arange(bm)[None, :, None]
    j = bk * columns[:, None, None] + np.arange(bk)[None, None, :]
    # A block may go beyond x.
    x = jnp.zeros((m or len(y), len(y)), blocks.dtype).at[i, j].add(blocks, mode="drop")
    return x @ y
