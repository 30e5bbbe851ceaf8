"""What every form of the kernel does with two blocks: mask them, multiply them, add up wide."""

import jax
import jax.numpy as jnp


def accumulator(dtype):
    """The dtype of the sums: int8 products in int32, which is exact; floats in float32."""
    return jnp.int32 if dtype == jnp.int8 else jnp.float32


def result_dtype(dtype):
    """The dtype of the result: 8 bits would not hold a sum; other dtypes are kept."""
    return dtype if jnp.dtype(dtype).itemsize > 1 else accumulator(dtype)


def product(x, y, contract=(1, 0), widen=False):
    """Two blocks' product in the accumulator's dtype.

    Args:
        x, y: the blocks.
        contract: the axis of each that is summed.
        widen: multiply in float32. XLA's CPU backend lacks bfloat16 and float8 dots in some
            layouts; float32 holds each of their products exactly, so an interpreted sum is the
            same.
    """
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


def mask_tails(x, y, step, k, contract=(1, 0)):
    """The two blocks of a step, counted along k, zero beyond k, where the last block is garbage."""
    bk = x.shape[contract[0]]
    if k % bk == 0:
        return x, y
    return mask_tail(x, contract[0], k - step * bk), mask_tail(y, contract[1], k - step * bk)


def mask_tail(block, axis, size):
    """The block, zero beyond its first `size` elements along `axis`."""
    position = jax.lax.broadcasted_iota(jnp.int32, block.shape, axis)
    # Selected in 32 bits: a v5e has no narrower vector arithmetic.
    wide = block.astype(jnp.int32 if block.dtype == jnp.int8 else jnp.float32)
    return jnp.where(position < size, wide, 0).astype(block.dtype)
