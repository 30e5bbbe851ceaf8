"""Two plain forms: JAX's own ragged product, and every row by the matrices of all groups."""

import jax
import jax.numpy as jnp

from kernels.machines.compat.xla import whole
from kernels.machines.tpu.products import product


@jax.jit
def grouped_matmul(x, w, group_sizes):
    """[m, k], [g, k, n], int32 [g] → [m, n]; XLA chooses how."""
    return jax.lax.ragged_dot(x, w, group_sizes, **whole(x.dtype)).astype(x.dtype)


@jax.jit
def dense(x, w, group_sizes):
    """[m, k], [g, k, n], int32 [g] → [m, n]; one group after another, of which all rows are
    multiplied and some are kept."""
    row, ends = jnp.arange(x.shape[0]), jnp.cumsum(group_sizes)

    def add(z, group):
        matrix, start, end = group
        inside = (row >= start) & (row < end)
        return jnp.where(inside[:, None], product(x, matrix).astype(x.dtype), z), None

    zeros = jnp.zeros((x.shape[0], w.shape[2]), x.dtype)
    return jax.lax.scan(add, zeros, (w, ends - group_sizes, ends))[0]
