"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax.numpy as jnp
import numpy as np

from kernels import tpu
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


def sums_in_int8(x_ref, y_ref, r_ref, c_ref, z_ref):
    z_ref[...] = jnp.dot(x_ref[...], y_ref[...]).astype(jnp.float32) * r_ref[...] * c_ref[...]


def one_scale_only(x_ref, y_ref, r_ref, c_ref, z_ref):
    z = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.int32)
    z_ref[...] = z.astype(jnp.float32) * r_ref[...]


def in_float32(x_ref, y_ref, r_ref, c_ref, z_ref):
    x, y = (ref[...].astype(jnp.float32) for ref in (x_ref, y_ref))
    z_ref[...] = jnp.dot(x, y, precision="highest") * r_ref[...] * c_ref[...]


def counts_one_factor(chip, result_bytes):
    chip = tpu.CHIPS[chip]
    return int(chip.int8_ops / chip.hbm_bytes_per_second * (1 + result_bytes) / 2)


WRONG = (
    ("longest", lambda a, b: 2**31 // (a * b), "interpret", "131072, the reference 131071"),
    ("smooth", one_scale, "interpret", "shape is ()"),
    ("smooth", upside_down, "interpret", "element ["),
    ("apart", all_in_int8, "interpret", "the error is"),
    ("apart", forgets_the_outliers, "interpret", "wanted at most"),
    ("apart", transposed, "interpret", "shape is"),
    ("apart", nothing_in_int8, "compile", "no matrix product of it has int8 factors"),
    ("smallest", counts_one_factor, "interpret", "the result is"),
    ("scaled", sums_in_int8, "interpret", "element ["),
    ("scaled", one_scale_only, "interpret", "element ["),
    ("scaled", in_float32, "compile", "int8"),
)
