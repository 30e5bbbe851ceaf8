"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from kernels.matmul import quantize, quantized_matmul


def one_scale(x, y):
    return np.sqrt(np.abs(x).max() / np.abs(y).max())


def upside_down(x, y):
    return np.sqrt(np.abs(y).max(1) / np.abs(x).max(0))


def all_in_int8(x, y, outliers):
    (q, r), (p, c) = quantize(x, axis=1), quantize(y, axis=0)
    return quantized_matmul(q, p, r, c, jnp.zeros(y.shape[1]))


def nothing_in_int8(x, y, outliers):
    return jnp.dot(x, y)


def forgets_the_outliers(x, y, outliers):
    rest = np.setdiff1d(np.arange(x.shape[1]), outliers)
    return all_in_int8(x[:, rest], y[rest], outliers)


def transposed(x, y, outliers):
    return jnp.dot(x, y).T


def shift(y_ref, a_ref):
    return a_ref[...] * y_ref[...].astype(jnp.int32).sum(0, keepdims=True)


def sums_in_int8(x_ref, y_ref, a_ref, r_ref, c_ref, z_ref):
    z = jnp.dot(x_ref[...], y_ref[...]) - shift(y_ref, a_ref)
    z_ref[...] = z.astype(jnp.float32) * r_ref[...] * c_ref[...]


def shifts_in_int8(x_ref, y_ref, a_ref, r_ref, c_ref, z_ref):
    x = x_ref[...] - a_ref[...].astype(jnp.int8)
    z = jnp.dot(x, y_ref[...], preferred_element_type=jnp.int32)
    z_ref[...] = z.astype(jnp.float32) * r_ref[...] * c_ref[...]


def no_zero_point(x_ref, y_ref, a_ref, r_ref, c_ref, z_ref):
    z = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.int32)
    z_ref[...] = z.astype(jnp.float32) * r_ref[...] * c_ref[...]


def one_scale_only(x_ref, y_ref, a_ref, r_ref, c_ref, z_ref):
    z = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.int32) - shift(y_ref, a_ref)
    z_ref[...] = z.astype(jnp.float32) * r_ref[...]


def in_float32(x_ref, y_ref, a_ref, r_ref, c_ref, z_ref):
    x, y = (ref[...].astype(jnp.float32) for ref in (x_ref, y_ref))
    x = x - a_ref[...].astype(jnp.float32)
    z_ref[...] = jnp.dot(x, y, precision="highest") * r_ref[...] * c_ref[...]


def cuts_off(x_ref, q_ref, s_ref):
    s_ref[...] = jnp.abs(x_ref[...]).max(axis=1, keepdims=True) / 127
    q_ref[...] = (x_ref[...] / s_ref[...]).astype(jnp.int8)


def divides_by_zero(x_ref, q_ref, s_ref):
    s_ref[...] = jnp.abs(x_ref[...]).max(axis=1, keepdims=True) / 127
    q_ref[...] = jnp.round(x_ref[...] / s_ref[...]).astype(jnp.int8)


def one_scale_for_all(x_ref, q_ref, s_ref):
    s = jnp.abs(x_ref[...]).max() / 127
    s_ref[...] = jnp.full(s_ref.shape, s)
    q_ref[...] = jnp.round(x_ref[...] / s).astype(jnp.int8)


def without_signs(x_ref, y_ref, z_ref):
    y = y_ref[...].astype(jnp.int32)
    halves = (y & 15).astype(jnp.bfloat16), ((y >> 4) & 15).astype(jnp.bfloat16)
    whole = jnp.concatenate(halves)
    z_ref[...] = jnp.dot(x_ref[...], whole, preferred_element_type=jnp.float32)


def layer(x, y, c, *, interpret, bm=512, bn=512, whole=False, int8=True):
    bm, bn = min(bm, x.shape[0]), min(bn, y.shape[1])

    def kernel(x_ref, y_ref, c_ref, z_ref):
        x = x_ref[...].astype(jnp.float32)
        s = jnp.abs(x).max(axis=None if whole else 1, keepdims=True) / 127
        q = jnp.round(x / jnp.where(s > 0, s, 1))
        factors = (q.astype(jnp.int8), y_ref[...]) if int8 else (q, y_ref[...].astype(q.dtype))
        sums = jnp.dot(*factors, preferred_element_type=jnp.int32 if int8 else jnp.float32)
        z_ref[...] = (sums.astype(jnp.float32) * s * c_ref[...]).astype(z_ref.dtype)

    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        grid=(m // bm, n // bn),
        in_specs=[
            pl.BlockSpec((bm, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, bn), lambda i, j: (0, j)),
            pl.BlockSpec((1, bn), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)),
        interpret=interpret,
    )(x, y, c)


def one_scale_a_block(x, y, c, *, interpret):
    return layer(x, y, c, interpret=interpret, whole=True)


def layer_in_floats(x, y, c, *, interpret):
    return layer(x, y, c, interpret=interpret, int8=False)


WRONG = (
    ("smooth", one_scale, "interpret", "shape is ()"),
    ("smooth", upside_down, "interpret", "element ["),
    ("apart", all_in_int8, "interpret", "the error is"),
    ("apart", forgets_the_outliers, "interpret", "wanted at most"),
    ("apart", transposed, "interpret", "shape is"),
    ("apart", nothing_in_int8, "compile", "no matrix product of it has int8 factors"),
    ("scaled", sums_in_int8, "interpret", "element ["),
    ("scaled", shifts_in_int8, "interpret", "element ["),
    ("scaled", no_zero_point, "interpret", "element ["),
    ("scaled", one_scale_only, "interpret", "element ["),
    ("scaled", in_float32, "compile", "int8"),
    ("quantised", cuts_off, "interpret", "element ["),
    ("quantised", divides_by_zero, "interpret", "is nan"),
    ("quantised", one_scale_for_all, "interpret", "element ["),
    ("int4_weights", without_signs, "interpret", "element ["),
    ("fast_int8", layer, "speed", "the bar is 18,500"),
    ("fast_int8", one_scale_a_block, "interpret", "element ["),
    ("fast_int8", layer_in_floats, "compile", "no matrix product of it has int8 factors"),
)
