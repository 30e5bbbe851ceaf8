"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def starts_at_zero(x_ref, o_ref, highest_ref):
    b = pl.program_id(0)

    @pl.when(b == 0)
    def _():
        highest_ref[0] = 0.0

    highest_ref[0] = jnp.maximum(highest_ref[0], jnp.max(x_ref[...]))
    o_ref[b] = highest_ref[0]


def never_starts(x_ref, o_ref, highest_ref):
    highest_ref[0] = jnp.maximum(highest_ref[0], jnp.max(x_ref[...]))
    o_ref[pl.program_id(0)] = highest_ref[0]


def mixed_up(o_ref):
    i, j = pl.program_id(0), pl.program_id(1)
    o_ref[i, j] = i + j


def raises(o_ref):
    raise KeyError("no such thing")


def sums_without_a_start(x_ref, o_ref):
    o_ref[...] += x_ref[...]


def keeps_the_last(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def first_column(x, *, interpret):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((x.shape[0], 128), x.dtype),
        grid=(x.shape[0] // 128,),
        in_specs=[pl.BlockSpec((128, 128), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((128, 128), lambda i: (i, 0)),
        interpret=interpret,
    )(x)


def every_block(x, *, interpret):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == pl.program_id(1))
        def _():
            o_ref[...] = x_ref[...]

    blocks = x.shape[0] // 128
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((x.shape[0], 128), x.dtype),
        grid=(blocks, blocks),
        in_specs=[pl.BlockSpec((128, 128), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((128, 128), lambda i, j: (i, 0)),
        interpret=interpret,
    )(x)


WRONG = (
    ("squares_backwards", raises, "interpret", "KeyError: 'no such thing'"),
    ("table", mixed_up, "interpret", "element [0, 1] is 1, the reference 0; integers are exact"),
    ("running_maximum", starts_at_zero, "interpret", "negative"),
    ("running_maximum", never_starts, "interpret", "is nan"),
    ("block_sums", sums_without_a_start, "interpret", "is nan"),
    ("block_sums", keeps_the_last, "interpret", "on eight"),
    ("diagonal", first_column, "interpret", "element ["),
    ("diagonal", every_block, "compile", "x is fetched 9 times, 3 would do"),
)
