"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def matmul_bias(x, y, b, *, interpret):
    def kernel(x_ref, y_ref, b_ref, z_ref):
        z = jnp.dot(x_ref[...], y_ref[...], precision="highest")
        z_ref[...] = jnp.maximum(z + b_ref[...], 0)

    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // 128, n // 128),
        in_specs=[
            pl.BlockSpec((128, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, 128), lambda i, j: (0, j)),
            pl.BlockSpec((1, 128), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda i, j: (i, j)),
        interpret=interpret,
    )(x, y, b[None, :])


def no_kernel(x, y, b, *, interpret):
    return jnp.maximum(jnp.dot(x, y, precision="highest") + b, 0)


def in_bfloat16(x, y, b, *, interpret):
    narrow = (a.astype(jnp.bfloat16) for a in (x, y, b))
    return matmul_bias(*(a.astype(jnp.float32) for a in narrow), interpret=interpret)


WRONG = (
    ("matmul_bias", no_kernel, "compile", "call pl.pallas_call"),
    ("matmul_bias", in_bfloat16, "interpret", "allowed"),
)
