"""Wrong answers to the exercises of this chapter, and what is said of each."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


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


def total(x_ref, o_ref, buffer_ref, arrived, ahead=True, turns=True):
    blocks = x_ref.shape[0] // 64

    def copy(i):
        rows, place = pl.ds(pl.multiple_of(64 * i, 64), 64), i % 2 if turns else 0
        return pltpu.make_async_copy(x_ref.at[rows], buffer_ref.at[place], arrived.at[place])

    o_ref[...] = jnp.zeros_like(o_ref)
    if ahead:
        copy(0).start()

    @pl.loop(0, blocks)
    def _(i):
        if not ahead:
            copy(i).start()
        else:

            @pl.when(i + 1 < blocks)
            def _():
                copy(i + 1).start()

        copy(i).wait()
        o_ref[...] += buffer_ref[i % 2 if turns else 0]


def one_at_a_time(*refs):
    total(*refs, ahead=False)


def one_buffer_for_both(*refs):
    total(*refs, turns=False)


def emitted(x_ref, y_ref, o_ref, turned=False):
    def add_or_multiply(x_block, y_block, o_block):
        o_block[...] = x_block[...] + y_block[...]

    block = pl.BlockSpec((64, 128), lambda i, j: (i, j))
    grid = x_ref.shape[0] // 64, x_ref.shape[1] // 128
    pltpu.emit_pipeline(add_or_multiply, grid=grid, in_specs=[block, block], out_specs=[block])(
        x_ref, y_ref, o_ref
    )


def gated(x, a, b, *, interpret, bm=512, bn=512, gate=jax.nn.silu):
    bm, bn = min(bm, x.shape[0]), min(bn, a.shape[1])

    def kernel(x_ref, a_ref, b_ref, z_ref):
        dot = functools.partial(jnp.dot, preferred_element_type=jnp.float32)
        z = gate(dot(x_ref[...], a_ref[...])) * dot(x_ref[...], b_ref[...])
        z_ref[...] = z.astype(z_ref.dtype)

    (m, k), n = x.shape, a.shape[1]
    weights = pl.BlockSpec((k, bn), lambda i, j: (0, j))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // bm, n // bn),
        in_specs=[pl.BlockSpec((bm, k), lambda i, j: (i, 0)), weights, weights],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)),
        interpret=interpret,
    )(x, a, b)


def gated_by_a_sigmoid(x, a, b, *, interpret):
    return gated(x, a, b, interpret=interpret, gate=jax.nn.sigmoid)


def gated_by_xla(x, a, b, *, interpret):
    return jax.nn.silu(jnp.dot(x, a)) * jnp.dot(x, b)


WRONG = (
    ("backward", by_xla, "compile", "its gradients included: 1, wanted 3"),
    ("backward", forgets_to_transpose, "interpret", "gradient of x: element ["),
    ("backward", half_a_gradient, "interpret", "gradient of y: every element is zero"),
    ("double_buffer", one_at_a_time, "compile", "1 copy is under way"),
    ("double_buffer", one_buffer_for_both, "interpret", "on four"),
    ("emitted", emitted, "interpret", "element ["),
    ("fast_gated", gated, "speed", "the bar is 42,500"),
    ("fast_gated", gated_by_a_sigmoid, "interpret", "element ["),
    ("fast_gated", gated_by_xla, "compile", "dot_general runs outside the kernel"),
)
