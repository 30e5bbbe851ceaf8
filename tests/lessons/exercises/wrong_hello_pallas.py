"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
from jax.experimental import pallas as pl


def forgets_y(a_ref, x_ref, y_ref, o_ref):
    o_ref[...] = a_ref[0] * x_ref[...]


def writes_nothing(a_ref, x_ref, y_ref, o_ref):
    y_ref[...]


def writes_half(a_ref, x_ref, y_ref, o_ref):
    half = o_ref.shape[0] // 2 or 1
    o_ref[:half] = a_ref[0] * x_ref[:half] + y_ref[:half]


def sum_twice(x_ref, y_ref, s_ref, d_ref):
    s_ref[...] = d_ref[...] = x_ref[...] + y_ref[...]


def forgets_the_difference(x_ref, y_ref, s_ref, d_ref):
    s_ref[...] = x_ref[...] + y_ref[...]


def multiply(x, y, *, interpret, backward):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[...]

    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    product = jax.custom_vjp(pl.pallas_call(kernel, out_shape=like, interpret=interpret))
    product.defvjp(lambda x, y: (product(x, y), (x, y)), backward)
    return product(x, y)


def passes_the_cotangent(x, y, *, interpret):
    return multiply(x, y, interpret=interpret, backward=lambda kept, c: (c, c))


def mixes_up_the_gradients(x, y, *, interpret):
    return multiply(x, y, interpret=interpret, backward=lambda kept, c: (c * kept[0], c * kept[1]))


def has_no_gradient(x, y, *, interpret):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[...]

    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=like, interpret=interpret)(x, y)


def uses_no_kernel(x, y, *, interpret):
    return x * y


def divides_by_the_sum(x_ref, o_ref):
    o_ref[...] = x_ref[...] / x_ref[...].sum(axis=1, keepdims=True)


def one_length_for_all(x_ref, o_ref):
    o_ref[...] = x_ref[...] / ((x_ref[...] ** 2).sum()) ** 0.5


WRONG = (
    ("sum_and_difference", sum_twice, "interpret", "element [1, "),
    ("sum_and_difference", forgets_the_difference, "interpret", "is nan"),
    ("multiply", passes_the_cotangent, "interpret", "gradient of x: element ["),
    ("multiply", mixes_up_the_gradients, "interpret", "gradient of x: element ["),
    ("multiply", has_no_gradient, "interpret", "Linearization failed"),
    ("multiply", uses_no_kernel, "compile", "no kernel"),
    ("axpy", forgets_y, "interpret", "element ["),
    ("axpy", writes_nothing, "interpret", "is this element ever written?"),
    ("axpy", writes_half, "interpret", "is this element ever written?"),
    ("axpy", lambda *refs: None, "interpret", "is nan"),
    ("normalised", divides_by_the_sum, "interpret", "on tile"),
    ("normalised", one_length_for_all, "interpret", "element ["),
)
