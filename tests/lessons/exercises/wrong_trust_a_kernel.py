"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def rounds_down(x, y, *, interpret, sums=jnp.float32):
    def kernel(x_ref, y_ref, z_ref):
        z = jnp.dot(x_ref[...], y_ref[...], precision="highest", preferred_element_type=sums)
        z_ref[...] = z.astype(z_ref.dtype)

    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(max(1, m // 64),),
        in_specs=[pl.BlockSpec((64, k), lambda i: (i, 0)), pl.BlockSpec((k, n), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((64, n), lambda i: (i, 0)),
        interpret=interpret,
    )(x, y)


def rounds_factors(x, y, *, interpret):
    def kernel(x_ref, y_ref, z_ref):
        z = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=sums)
        z_ref[...] = z.astype(z_ref.dtype)

    sums = jnp.int32 if x.dtype == jnp.int8 else jnp.float32
    dtype = sums if x.dtype == jnp.int8 else x.dtype
    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), dtype),
        grid=(pl.cdiv(m, 64),),
        in_specs=[pl.BlockSpec((64, k), lambda i: (i, 0)), pl.BlockSpec((k, n), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((64, n), lambda i: (i, 0)),
        interpret=interpret,
    )(x, y)


def reads_hbm(x_ref, o_ref, buffer_ref, arrived):
    o_ref[...] = 2 * x_ref[...]


def does_not_wait(x_ref, o_ref, buffer_ref, arrived):
    copy = pltpu.make_async_copy(x_ref, buffer_ref, arrived)
    copy.start()
    o_ref[...] = 2 * buffer_ref[...]
    copy.wait()


def does_not_copy(x_ref, o_ref, buffer_ref, arrived):
    o_ref[...] = 2 * buffer_ref[...]


def iota(n, *, interpret, semantics="arbitrary", first=0):
    def kernel(o_ref):
        o_ref[pl.program_id(0)] = pl.program_id(0) + first

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),
        grid=(n,),
        out_specs=pl.BlockSpec(memory_space=pltpu.SMEM),
        compiler_params=pltpu.CompilerParams(dimension_semantics=(semantics,)),
        interpret=interpret,
    )()


def wrong_everywhere(n, *, interpret):
    return iota(n, interpret=interpret, semantics="parallel", first=1)


def divided(bug):
    shapes = {"short_grid": ((4096,), (4096,))}.get(bug, ((16, 256), (256, 128)))
    return tuple(np.ones(shape, np.float32) for shape in shapes)


def breaks_both(bug):
    return np.full(5000, np.nan, np.float32), np.full((1000,), 1, np.float32)


def short_sums(bug):
    if bug == "short_grid":
        return np.ones(5000, np.float32), np.ones(5000, np.float32)
    k = 200 if bug == "unmasked_tail" else 128
    x, y = np.ones((16, k)), np.ones((k, 128))
    return tuple(a.astype(jnp.bfloat16 if k == 128 else "float32") for a in (x, y))


def too_large(bug):
    return np.ones(1 << 21, np.float32), np.ones(1 << 21, np.float32)


WRONG = (
    ("careful", rounds_down, "interpret", "ragged"),
    ("careful", rounds_factors, "compile", "rounds its float32 factors to bfloat16"),
    ("from_hbm", reads_hbm, "simulate", "HBM"),
    ("from_hbm", does_not_wait, "simulate", "race"),
    ("from_hbm", does_not_copy, "interpret", "is nan"),
    ("race", iota, "interpret", "on two cores there is no race"),
    ("race", wrong_everywhere, "interpret", "element [0] is 1, the reference 0"),
    ("reveal", divided, "interpret", "the wrong kernel passes on float32[4096] and float32[4096]"),
    ("reveal", breaks_both, "interpret", "the repaired kernel fails"),
    ("reveal", short_sums, "interpret", "on narrow_accumulator"),
    ("reveal", too_large, "interpret", "larger than"),
    ("reveal", lambda bug: 5000, "interpret", "int is returned, wanted: two arrays"),
)
