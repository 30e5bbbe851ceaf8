"""Sums carried from step to step in bfloat16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The sums are carried in bfloat16",
    operator="matmul",
    caught_by="interpret",
    says="allowed",
    cause="The output block itself is the accumulator, so every step rounds to 8 bits.",
    lesson="A tolerance of two per cent of the largest value lets it pass; the error budget "
    "doesn't.",
    workloads=(Workload("32_steps", {"m": 16, "k": 4096, "n": 128}, "bfloat16"),),
)


def kernel(x, y, *, interpret, repaired=False):
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
