"""One line of JAX each: the plainest version, and what every kernel is compared with."""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.tpu.products import accumulator, mask, product
from kernels.matmul.quantized import Dequantise


def result_dtype(dtype):
    """The dtype of the result: 8 bits would not hold a sum; other dtypes are kept."""
    return dtype if jnp.dtype(dtype).itemsize > 1 else accumulator(dtype)


def mask_tails(x, y, step, k, contract=(1, 0)):
    """The two blocks of a step, counted along k, zero beyond k, where the last block is garbage."""
    bk = x.shape[contract[0]]
    if k % bk == 0:
        return x, y
    return mask(x, contract[0], k - step * bk), mask(y, contract[1], k - step * bk)


@functools.partial(jax.jit, static_argnames=("prologue", "activation", "transpose_rhs"))
def matmul(x, y, *, prologue=None, activation=None, transpose_rhs=False):
    """[m, k], [k, n] → [m, n]."""
    if prologue is not None:
        x = prologue(x.astype(jnp.float32)).astype(x.dtype)
    z = product(x, y, (1, 1 if transpose_rhs else 0))
    if activation is not None:
        z = activation(z)
    return z.astype(result_dtype(x.dtype))


def in_groups(y, groups, weights):
    """Stored weights as [groups, rows, n]: all rows, or of int4 the even rows of each group and the
    odd ones, which XLA need not bring together."""
    w = y.reshape(groups, -1, y.shape[1])
    # To the left and back to the right brings the sign of the low half along.
    return ((w << 4) >> 4, w >> 4) if weights == "int4" else (w,)


def dequantised(w, y_scale, dtype):
    """[groups, rows, n] times the scales [groups, n]: [rows of all, n] of `dtype`."""
    return (w.astype(jnp.float32) * y_scale[:, None]).reshape(-1, w.shape[2]).astype(dtype)


@functools.partial(jax.jit, static_argnames=("weights", "activation", "out_dtype"))
def quantized_matmul(x, y, x_scale, y_scale, bias, *, weights=None, activation=None, out_dtype):
    """[m, k], stored [k, n]; float32 [m] or None, [n] or [groups, n], [n] → [m, n]."""
    if x.dtype == jnp.int8:
        z = Dequantise(activation)(product(x, y), x_scale[:, None], y_scale, bias)
        return z.astype(out_dtype)
    y_scale = y_scale.reshape(-1, y.shape[1])
    (m, k), groups = x.shape, len(y_scale)
    parts = in_groups(y, groups, weights)
    if k // groups % len(parts):
        x = jnp.pad(x.reshape(m, groups, -1), ((0, 0), (0, 0), (0, 1))).reshape(m, -1)
    z = bias
    for i, w in enumerate(parts):
        rows = x[:, i :: len(parts)]
        if m > k // groups:
            z = z + product(rows, dequantised(w, y_scale, x.dtype))
        else:  # fewer sums than weights, so these are scaled; XLA keeps no wide weights
            by_group = jax.vmap(product, in_axes=(1, 0))
            sums = by_group(rows.reshape(m, groups, -1), w.astype(x.dtype))
            z = z + (sums * y_scale[:, None]).sum(0)
    return (z if activation is None else activation(z)).astype(out_dtype)


def dense(blocks, rows, columns, m, k):
    """[number, bm, bk] at block (rows, columns) of a matrix of zeros, → [m, k]."""
    _, bm, bk = blocks.shape
    x = jnp.zeros((-(-m // bm), -(-k // bk), bm, bk), blocks.dtype).at[rows, columns].add(blocks)
    return x.swapaxes(1, 2).reshape(x.shape[0] * bm, x.shape[1] * bk)[:m, :k]


@functools.partial(jax.jit, static_argnames="m")
def block_sparse_matmul(blocks, y, rows, columns, *, m):
    """[number, bm, bk], [k, n], [number], [number] → [m, n], zeros multiplied and all."""
    return matmul(dense(blocks, rows, columns, m, len(y)), y)
