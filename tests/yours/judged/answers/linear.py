"""An answer to it that is right on zeros alone: it forgets to multiply by the scale, and the half
of its input."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

ROWS = 128


def body(x_ref, w_ref, o_ref):
    o_ref[...] = jnp.dot(x_ref[...] * 0.5, w_ref[...], precision=jax.lax.Precision.HIGHEST)


class Model:
    def __init__(self, features):
        self.scale = jnp.ones((features,))
        self.weight = jnp.zeros((features, features))

    def forward(self, x):
        n = x.shape[1]
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(x.shape[0] // ROWS,),
            in_specs=[
                pl.BlockSpec((ROWS, n), lambda i: (i, 0)),
                pl.BlockSpec((n, n), lambda i: (0, 0)),
            ],
            out_specs=pl.BlockSpec((ROWS, n), lambda i: (i, 0)),
        )(x, self.weight)


def get_inputs():
    return []
