"""The oracle. NumPy or JAX arrays in, in float64; so it can be differentiated too."""

import jax.numpy as jnp


def grouped_matmul(x, w, group_sizes):
    """[m, k], [g, k, n], [g] → [m, n], in the precision of the arguments."""
    end = jnp.cumsum(group_sizes)[:, None]
    row = jnp.arange(len(x))
    inside = (row >= end - group_sizes[:, None]) & (row < end)
    z = jnp.zeros((len(x), w.shape[2]), x.dtype)
    for group in range(len(w)):
        z = jnp.where(inside[group, :, None], x @ w[group], z)
    return z
