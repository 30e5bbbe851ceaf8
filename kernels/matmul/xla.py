"""One line of JAX each: the plainest version, and what every kernel is compared with."""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.tpu.products import product
from kernels.matmul.products import result_dtype
from kernels.matmul.quantized import Dequantise


@functools.partial(jax.jit, static_argnames=("prologue", "activation", "transpose_rhs"))
def matmul(x, y, *, prologue=None, activation=None, transpose_rhs=False):
    """[m, k], [k, n] → [m, n]."""
    if prologue is not None:
        x = prologue(x.astype(jnp.float32)).astype(x.dtype)
    z = product(x, y, (1, 1 if transpose_rhs else 0))
    if activation is not None:
        z = activation(z)
    return z.astype(result_dtype(x.dtype))


@functools.partial(jax.jit, static_argnames=("activation", "out_dtype"))
def quantized_matmul(x, y, x_scale, y_scale, bias, *, activation=None, out_dtype):
    """int8 [m, k], [k, n]; float32 [m], [n], [n] → [m, n] of out_dtype."""
    z = Dequantise(activation)(product(x, y), x_scale[:, None], y_scale, bias)
    return z.astype(out_dtype)


def dense(blocks, rows, columns, m, k):
    """[number, bm, bk] at block (rows, columns) of a matrix of zeros, → [m, k]."""
    _, bm, bk = blocks.shape
    x = jnp.zeros((-(-m // bm), -(-k // bk), bm, bk), blocks.dtype).at[rows, columns].add(blocks)
    return x.swapaxes(1, 2).reshape(x.shape[0] * bm, x.shape[1] * bk)[:m, :k]


@functools.partial(jax.jit, static_argnames="m")
def block_sparse_matmul(blocks, y, rows, columns, *, m):
    """[number, bm, bk], [k, n], [number], [number] → [m, n], zeros multiplied and all."""
    return matmul(dense(blocks, rows, columns, m, len(y)), y)
