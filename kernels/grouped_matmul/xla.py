"""Two plain forms: JAX's own ragged product, and every row by the matrices of all groups."""

import jax
import jax.numpy as jnp

from kernels.machines.tpu.products import product


@jax.jit
def grouped_matmul(x, w, group_sizes):
    """[m, k], [g, k, n], int32 [g] → [m, n]; XLA chooses how."""
    # On a TPU, float32 factors are rounded to bfloat16 unless the highest precision is asked for.
    exact = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    wide = {"precision": exact, "preferred_element_type": jnp.float32}
    return jax.lax.ragged_dot(x, w, group_sizes, **wide).astype(x.dtype)


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
