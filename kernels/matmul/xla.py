"""One line of JAX: the plainest version, and what every kernel is compared with."""

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.jit, static_argnames=("activation", "transpose_rhs"))
def matmul(x, y, *, activation=None, transpose_rhs=False):
    """[m, k], [k, n] → [m, n]."""
    accumulator = jnp.int32 if x.dtype == jnp.int8 else jnp.float32
    # On a TPU, float32 products are rounded to bfloat16 unless the highest precision is asked for.
    z = jax.lax.dot_general(
        x,
        y,
        (((1,), (1 if transpose_rhs else 0,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=accumulator,
    )
    if activation is not None:
        z = activation(z)
    return z.astype(accumulator if x.dtype == jnp.int8 else x.dtype)


def dense(blocks, rows, columns, m, k):
    """[number, bm, bk] at block (rows, columns) of a matrix of zeros, → [m, k]."""
    _, bm, bk = blocks.shape
    x = jnp.zeros((-(-m // bm), -(-k // bk), bm, bk), blocks.dtype).at[rows, columns].add(blocks)
    return x.swapaxes(1, 2).reshape(x.shape[0] * bm, x.shape[1] * bk)[:m, :k]


@functools.partial(jax.jit, static_argnames="m")
def block_sparse_matmul(blocks, y, rows, columns, *, m):
    """[number, bm, bk], [k, n], [number], [number] → [m, n], zeros multiplied and all."""
    return matmul(dense(blocks, rows, columns, m, len(y)), y)
