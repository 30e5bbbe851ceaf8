"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


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


def product(x, y, *, interpret, before=lambda x: x, swapped=False, b=128):
    def kernel(x_ref, y_ref, z_ref):
        z_ref[...] = jnp.dot(before(x_ref[...]), y_ref[...], precision="highest")

    (m, k), n = x.shape, y.shape[1]
    turn = (lambda i, j: (j, i)) if swapped else (lambda i, j: (i, j))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=turn(m // b, n // b),
        in_specs=[
            pl.BlockSpec((b, k), lambda *ids: (turn(*ids)[0], 0)),
            pl.BlockSpec((k, b), lambda *ids: (0, turn(*ids)[1])),
        ],
        out_specs=pl.BlockSpec((b, b), lambda *ids: turn(*ids)),
        interpret=interpret,
    )(x, y)


def transposed(x, y, *, interpret):
    return product(y.T, x.T, interpret=interpret, swapped=True)


def in_blocks_of_64(x, y, *, interpret):
    return product(x, y, interpret=interpret, swapped=True, b=64)


def applied_outside(x, y, *, before, interpret):
    return product(before(x), y, interpret=interpret)


def applied_to_both(x, y, *, before, interpret):
    return product(x, before(y), interpret=interpret, before=before)


def not_applied(x, y, *, before, interpret):
    return product(x, y, interpret=interpret)


def plain_product(x, y, *, interpret):
    return product(x, y.T, interpret=interpret)


def forgets_to_transpose(x, y, *, interpret):
    return product(x, y, interpret=interpret)


def relu_outside(x, y, *, interpret):
    return jnp.maximum(product(x, y, interpret=interpret), 0)


def same(x):
    return x


def positive(x):
    return jnp.maximum(x, 0)


def accumulating(
    x, y, *, interpret, starts=True, mask=(), b=128, before=same, each=same, at_last=same
):
    def kernel(x_ref, y_ref, z_ref, sums_ref):
        step = pl.program_id(2)
        a, c = x_ref[...], y_ref[...]
        for name in mask:
            one, axis = (a, 1) if name == "x" else (c, 0)
            real = jax.lax.broadcasted_iota(jnp.int32, one.shape, axis) < k - b * step
            a, c = (jnp.where(real, a, 0), c) if name == "x" else (a, jnp.where(real, c, 0))

        @pl.when((step == 0) & starts)
        def _():
            sums_ref[...] = jnp.zeros_like(sums_ref)

        sums_ref[...] += each(jnp.dot(before(a), c, precision="highest"))
        z_ref[...] = at_last(sums_ref[...])

    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // 128, n // 128, pl.cdiv(k, b)),
        in_specs=[
            pl.BlockSpec((128, b), lambda i, j, l: (i, l)),
            pl.BlockSpec((b, 128), lambda i, j, l: (l, j)),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda i, j, l: (i, j)),
        scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32)],
        interpret=interpret,
    )(x, y)


def never_starts(x, y, *, interpret):
    return accumulating(x, y, interpret=interpret, starts=False, at_last=positive)


def positive_in_each_step(x, y, *, interpret):
    return accumulating(x, y, interpret=interpret, each=positive)


def never_positive(x, y, *, interpret):
    return accumulating(x, y, interpret=interpret)


def masks_x_alone(x, y, *, interpret):
    return accumulating(x, y, interpret=interpret, mask="x", before=jnp.cos)


def no_cosine(x, y, *, interpret):
    return accumulating(x, y, interpret=interpret, mask="xy")


def pads_outside(x, y, *, interpret):
    rest = -x.shape[1] % 128
    x, y = jnp.pad(x, ((0, 0), (0, rest))), jnp.pad(y, ((0, rest), (0, 0)))
    return accumulating(x, y, interpret=interpret, before=jnp.cos)


WRONG = (
    ("columns_first", product, "compile", "y is fetched 4 times, 2 would do"),
    ("columns_first", transposed, "interpret", "shape is"),
    ("columns_first", in_blocks_of_64, "compile", "divisible by 8 and 128"),
    ("input_fusion", applied_outside, "compile", "tanh runs outside the kernel"),
    ("input_fusion", applied_to_both, "interpret", "element ["),
    ("input_fusion", not_applied, "interpret", "on tanh"),
    ("matmul_bias", no_kernel, "compile", "call pl.pallas_call"),
    ("matmul_bias", in_bfloat16, "interpret", "allowed"),
    ("transposed_rhs", plain_product, "compile", "runs outside the kernel"),
    ("transposed_rhs", forgets_to_transpose, "interpret", "on square"),
    ("accumulated", never_starts, "interpret", "is nan"),
    ("accumulated", positive_in_each_step, "interpret", "element ["),
    ("accumulated", never_positive, "interpret", "element ["),
    ("accumulated", relu_outside, "compile", "wanted one of 3 dimensions"),
    ("ragged_k", masks_x_alone, "interpret", "is nan"),
    ("ragged_k", no_cosine, "interpret", "element ["),
    ("ragged_k", pads_outside, "compile", "runs outside the kernel"),
)
