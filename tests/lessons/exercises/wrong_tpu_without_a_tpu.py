"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def exponentials(x_ref, y_ref, o_ref):
    z = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = jnp.exp(z - jnp.max(z, axis=1, keepdims=True))


def by_columns(x_ref, y_ref, o_ref):
    z = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = jax.nn.softmax(z, axis=0)


def in_float32(x_ref, y_ref, o_ref):
    x, y = (ref[...].astype(jnp.float32) for ref in (x_ref, y_ref))
    o_ref[...] = jax.nn.softmax(jnp.dot(x, y, precision="highest"), axis=1)


def whole_block(x_ref, o_ref):
    d = x_ref[...] - x_ref[...].mean(1, keepdims=True)
    o_ref[...] = d / jnp.sqrt((d * d).mean(1, keepdims=True))


def forgets_the_mean(x_ref, o_ref):
    x = x_ref[...]
    o_ref[...] = x / jnp.sqrt((x * x).mean(1, keepdims=True))


def first_rows_only(x_ref, o_ref):
    x = x_ref[:64]
    o_ref[:64] = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)


def eight_at_a_time(x_ref, o_ref):
    def eight(i, _):
        rows = pl.ds(pl.multiple_of(8 * i, 8), 8)
        d = x_ref[rows, :] - x_ref[rows, :].mean(1, keepdims=True)
        o_ref[rows, :] = d * jax.lax.rsqrt((d * d).mean(1, keepdims=True))

    jax.lax.fori_loop(0, x_ref.shape[0] // 8, eight, None)


def in_one_pass(x_ref, o_ref):
    x = x_ref[...]
    mean = x.mean(1, keepdims=True)
    o_ref[...] = (x - mean) * jax.lax.rsqrt((x * x).mean(1, keepdims=True) - mean**2)


WRONG = (
    ("softmax", exponentials, "interpret", "element ["),
    ("softmax", by_columns, "interpret", "element ["),
    ("softmax", in_float32, "compile", "bundles in a step on a v5e, at most 110"),
    ("standardise", whole_block, "compile", "spills on a v5e, at most 0 wanted"),
    ("standardise", forgets_the_mean, "interpret", "element ["),
    ("standardise", first_rows_only, "interpret", "is nan"),
    ("standardise_fast", eight_at_a_time, "speed", "the bar is 22,000"),
    ("standardise_fast", in_one_pass, "interpret", "allowed"),
    ("standardise_fast", whole_block, "compile", "spills on a v5e, at most 0 wanted"),
)
