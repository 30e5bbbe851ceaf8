"""XLA's own collectives, and products before or after them.

Inside jax.shard_map XLA does one after the other. A product that it partitions itself, of arrays
with shardings under jax.jit, it cuts into a ring of collective-permutes beside partial products.
"""

import jax
import jax.numpy as jnp


def all_gather(x, axis_name):
    """[rows, columns] → [devices · rows, columns]."""
    return jax.lax.all_gather(x, axis_name, tiled=True)


def reduce_scatter(x, axis_name):
    """[devices · rows, columns] → [rows, columns], added up in float32."""
    total = jax.lax.psum_scatter(x.astype(jnp.float32), axis_name, tiled=True)
    return total.astype(x.dtype)


def _product(x, w):
    """In float32."""
    exact = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.dot(x, w, precision=exact, preferred_element_type=jnp.float32)


def all_gather_matmul(x, w, axis_name):
    """[rows, k], [k, columns] → [devices · rows, columns]."""
    return _product(all_gather(x, axis_name), w).astype(x.dtype)


def matmul_reduce_scatter(x, w, axis_name):
    """[devices · rows, k], [k, columns] → [rows, columns], added up in float32."""
    total = jax.lax.psum_scatter(_product(x, w), axis_name, tiled=True)
    return total.astype(x.dtype)
