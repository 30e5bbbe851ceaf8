"""What kernels on a TPU do with blocks of two factors: multiply them, and mask their tails."""

import jax
import jax.numpy as jnp


def accumulator(dtype):
    """The dtype of the sums: int8 products in int32, which is exact; floats in float32."""
    return jnp.int32 if dtype == jnp.int8 else jnp.float32


def product(x, y, contract=(1, 0), widen=False):
    """Two blocks' product in the accumulator's dtype, `contract` being the axis of each that is
    summed. `widen` multiplies in float32. XLA's CPU backend lacks bfloat16 and float8 dots in some
    layouts; float32 holds each of their products exactly, so an interpreted sum is the same."""
    if widen and x.dtype != jnp.int8:
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    return jax.lax.dot_general(
        x,
        y,
        (((contract[0],), (contract[1],)), ((), ())),
        # On a TPU, float32 factors are rounded to bfloat16 unless the highest precision is asked.
        precision=jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=accumulator(x.dtype),
    )


def dot(x, y, contract=(1, 0), widen=False):
    """product; float32 of what is narrow, which neither Mosaic nor a CPU takes as bfloat16."""
    return product(x, y, contract, widen or 1 in x.shape + y.shape)


def mask(block, axis, end, start=None):
    """The block, zero outside of its elements `start` (None: its first) to `end` along `axis`."""
    position = jax.lax.broadcasted_iota(jnp.int32, block.shape, axis)
    inside = position < end if start is None else (position >= start) & (position < end)
    # Selected in 32 bits: a v5e has no narrower vector arithmetic.
    return jnp.where(inside, block.astype(accumulator(block.dtype)), 0).astype(block.dtype)
