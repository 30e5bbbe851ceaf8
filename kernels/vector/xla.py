"""What jax.numpy does: the plainest version."""

import jax
import jax.numpy as jnp


@jax.jit
def add_vectors(x, y):
    """[n], [n] → [n]."""
    return jnp.add(x, y)


def iota(n):
    """→ int32 [n]."""
    return jnp.arange(n, dtype=jnp.int32)
