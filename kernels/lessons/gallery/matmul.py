"""Wrong matmuls in Pallas for a TPU: one in blocks with four faults, and others."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import bug, family, from_table
from kernels.proof.workload import Workload, cases


def in_blocks(x, y, *, interpret, fault):
    """[m, k], [k, n] → [m, n], in blocks of 128 along k, and along m and n where 128 divides them.
    Right when repaired; else it has the fault of that name."""
    (m, k), n = x.shape, y.shape[1]
    bm, bn = (size if size % 128 else 128 for size in (m, n))

    def inside(block, axis):
        place = pl.program_id(2) * 128 + jax.lax.broadcasted_iota(jnp.int32, block.shape, axis)
        return jnp.where(place < k, block, 0)

    def body(x_ref, y_ref, z_ref):
        x, y = x_ref[...], y_ref[...]
        if fault != "unmasked_tail":
            x, y = inside(x, 1), inside(y, 0)

        if fault != "missing_init":

            @pl.when(pl.program_id(2) == 0)
            def _():
                z_ref[...] = jnp.zeros_like(z_ref)

        z_ref[...] += jnp.dot(x, y, precision="highest")

    def y_block(i, j, step):
        return (j, step) if fault == "wrong_index_map" else (step, j)

    along_k = "parallel" if fault == "parallel_reduction" else "arbitrary"
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // bm, n // bn, pl.cdiv(k, 128)),
        in_specs=[
            pl.BlockSpec((bm, 128), lambda i, j, step: (i, step)),
            pl.BlockSpec((128, bn), y_block),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, step: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", along_k)),
        interpret=interpret,
    )(x, y)


_faulty = family(in_blocks)

missing_init = _faulty("missing_init", *cases("m k n", two_steps=(128, 256, 128)))

wrong_index_map = _faulty(
    "wrong_index_map",
    *cases("m k n", one_block=(128, 128, 128, "too small to show it"), four_blocks=(256, 256, 256)),
)

unmasked_tail = _faulty(
    "unmasked_tail",
    *cases(
        "m k n", whole=(16, 256, 128, "128 divides 256: nothing sticks out"), cut=(16, 200, 128)
    ),
)

parallel_reduction = _faulty("parallel_reduction", *cases("m k n", four_steps=(128, 512, 128)))


@bug(Workload("32_steps", {"m": 16, "k": 4096, "n": 128}, "bfloat16"))
def narrow_accumulator(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n]; k and n multiples of 128."""
    (m, k), n = x.shape, y.shape[1]
    bk = k if repaired else 128  # repaired: one float32 sum over all of k, rounded once

    def body(x_ref, y_ref, z_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            z_ref[...] = jnp.zeros_like(z_ref)

        product = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
        z_ref[...] += product.astype(z_ref.dtype)

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(n // 128, k // bk),
        in_specs=[
            pl.BlockSpec((m, bk), lambda j, step: (0, step)),
            pl.BlockSpec((bk, 128), lambda j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((m, 128), lambda j, step: (0, j)),
        interpret=interpret,
    )(x, y)


@bug(*cases("m k n", square=(128, 128, 128)))
def unscaled_result(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n], in one block."""
    larger = 1e6

    def body(x_ref, y_ref, z_ref):
        z = jnp.dot(larger * x_ref[...], y_ref[...], precision="highest")
        z_ref[...] = z / larger if repaired else z

    out = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    return pl.pallas_call(body, out_shape=out, interpret=interpret)(x, y)


@bug(*cases("m k n", two_halves=(128, 128, 128)))
def illegal_block(x, y, *, interpret, bn=64, repaired=False):
    """[m, k], [k, n] → [m, n]; n a multiple of 128."""
    (m, k), n = x.shape, y.shape[1]
    bn = 128 if repaired else bn

    def body(x_ref, y_ref, z_ref):
        z_ref[...] = jnp.dot(x_ref[...], y_ref[...], precision="highest")

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(n // bn,),
        in_specs=[pl.BlockSpec((m, k), lambda j: (0, 0)), pl.BlockSpec((k, bn), lambda j: (0, j))],
        out_specs=pl.BlockSpec((m, bn), lambda j: (0, j)),
        interpret=interpret,
    )(x, y)


vmem_overflow = from_table(
    "vmem_overflow",
    functools.partial(illegal_block.kernel, bn=1024),
    *cases("m k n", long_k=(8, 4096, 2048)),
    shown=illegal_block.kernel,
)
