"""Wrong answers to the exercise of "Bring your own kernel", and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def standardise(x, block=8):
    """The variance as a difference of two large numbers, in small blocks."""

    def kernel(x_ref, o_ref):
        x = x_ref[...]
        mean = x.mean(-1, keepdims=True)
        variance = (x * x).mean(-1, keepdims=True) - mean * mean
        o_ref[...] = (x - mean) / jnp.sqrt(variance + 1e-5)

    return _in_blocks(kernel, x, block)


def slow(x, block=8):
    def kernel(x_ref, o_ref):
        centred = x_ref[...] - x_ref[...].mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        o_ref[...] = centred / jnp.sqrt(variance + 1e-5)

    return _in_blocks(kernel, x, block)


def _in_blocks(kernel, x, block):
    spec = pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(len(x), block),),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x)


WRONG = (
    ("own_standardise", standardise, "interpret", "kernels.prove, interpret, large mean of x"),
    ("own_standardise", slow, "speed", "µs, estimated for a v6e; the bar is"),
)
