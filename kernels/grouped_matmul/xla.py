"""Two plain forms: JAX's own ragged product, and every row by the matrices of all groups."""

import functools

import jax
import jax.numpy as jnp


def _precision(dtype):
    # On a TPU, float32 factors are rounded to bfloat16 unless the highest precision is asked for.
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None


@jax.jit
def grouped_matmul(x, w, group_sizes):
    """[m, k], [g, k, n], int32 [g] → [m, n]; XLA chooses how."""
    wide = {"precision": _precision(x.dtype), "preferred_element_type": jnp.float32}
    return jax.lax.ragged_dot(x, w, group_sizes, **wide).astype(x.dtype)


@jax.jit
def dense(x, w, group_sizes):
    """[m, k], [g, k, n], int32 [g] → [m, n]; one group after another, of which all rows are
    multiplied and some are kept."""
    row, ends = jnp.arange(x.shape[0]), jnp.cumsum(group_sizes)
    dot = functools.partial(
        jnp.dot, precision=_precision(x.dtype), preferred_element_type=jnp.float32
    )

    def add(z, group):
        matrix, start, end = group
        inside = (row >= start) & (row < end)
        return jnp.where(inside[:, None], dot(x, matrix).astype(x.dtype), z), None

    zeros = jnp.zeros((x.shape[0], w.shape[2]), x.dtype)
    return jax.lax.scan(add, zeros, (w, ends - group_sizes, ends))[0]
