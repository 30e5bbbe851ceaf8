"""Wrong answers to the exercises of this chapter, and what is said of each."""

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


WRONG = (
    ("squares_backwards", raises, "interpret", "KeyError: 'no such thing'"),
    ("table", mixed_up, "interpret", "element [0, 1] is 1, the reference 0; integers are exact"),
    ("running_maximum", starts_at_zero, "interpret", "negative"),
    ("running_maximum", never_starts, "interpret", "is nan"),
)
