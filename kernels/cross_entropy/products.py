"""What the plain forms and the kernels share: how two blocks are multiplied."""

import jax
import jax.numpy as jnp


def dot(x, y, x_axis=1, y_axis=0, widen=False):
    """The product of two matrices, added up in float32.

    Args:
        x, y: float32, multiplied as such, or bfloat16.
        x_axis, y_axis: the axis of each that is summed over.
        widen: multiply bfloat16 as float32, which is the same: XLA's CPU backend lacks some
            products of bfloat16.
    """
    if widen or 1 in x.shape + y.shape:  # neither Mosaic nor a CPU takes narrow vectors
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    return jax.lax.dot_general(
        x,
        y,
        (((x_axis,), (y_axis,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
