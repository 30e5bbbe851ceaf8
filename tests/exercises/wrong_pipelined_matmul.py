"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels import tpu


def times(x, y, interpret, sums=jnp.float32):
    def kernel(x_ref, y_ref, z_ref):
        z = jnp.dot(x_ref[...], y_ref[...], precision="highest", preferred_element_type=sums)
        z_ref[...] = z.astype(z_ref.dtype)

    like = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    return pl.pallas_call(kernel, out_shape=like, interpret=interpret)(x, y)


def product(x, y, interpret, backward):
    call = jax.custom_vjp(lambda x, y: times(x, y, interpret))
    call.defvjp(lambda x, y: (times(x, y, interpret), (x, y)), backward)
    return call(x, y)


def by_xla(x, y, *, interpret):
    def backward(kept, c):
        x, y = (a.astype(jnp.float32) for a in kept)
        c = c.astype(jnp.float32)
        dx, dy = (jnp.dot(a, b, precision="highest") for a, b in ((c, y.T), (x.T, c)))
        return dx.astype(kept[0].dtype), dy.astype(kept[1].dtype)

    return product(x, y, interpret, backward)


def forgets_to_transpose(x, y, *, interpret):
    def backward(kept, c):
        x, y = kept
        return times(c, y, interpret), times(x, c, interpret)

    return product(x, y, interpret, backward)


def half_a_gradient(x, y, *, interpret):
    def backward(kept, c):
        return times(c, kept[1].T, interpret), jnp.zeros_like(kept[1])

    return product(x, y, interpret, backward)


def one_buffer(bm, bk, bn):
    return 2 * (bm * bk + bk * bn + bm * bn) + 4 * bm * bn


def bytes_not_cycles(n, b):
    return 4 * b * n + 250 * (n // b) ** 2


def counts_programs_in_rows(n, b):
    return 4 * b * n / tpu.CHIPS["v5e"].hbm_bytes_per_cycle + 250 * n / b


def x_stays(m, k, n, bm, bn):
    return 2 * (m * k + k * n * (m // bm) + m * n)


WRONG = (
    ("lost", bytes_not_cycles, "interpret", "the result is"),
    ("lost", counts_programs_in_rows, "interpret", "the result is"),
    ("vmem", one_buffer, "interpret", "the result is 163840, the reference 262144"),
    ("better_order", x_stays, "interpret", "on tall"),
    ("backward", by_xla, "compile", "its gradients included: 1, wanted 3"),
    ("backward", forgets_to_transpose, "interpret", "gradient of x: element ["),
    ("backward", half_a_gradient, "interpret", "gradient of y: every element is zero"),
)
