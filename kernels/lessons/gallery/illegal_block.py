"""A block shape that a TPU's registers cannot tile."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The block is half a register wide",
    operator="matmul",
    caught_by="compile",
    says="divisible by 8 and 128",
    cause="A TPU moves tiles of 8 × 128; a block 64 columns wide would have to start inside one.",
    lesson="Neither interpreter knows the tiles. Lower every kernel before you believe it.",
    workloads=(Workload("two_halves", {"m": 128, "k": 128, "n": 128}),),
)


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n]; n a multiple of 128."""
    (m, k), n = x.shape, y.shape[1]
    bn = 128 if repaired else 64

    def body(x_ref, y_ref, z_ref):
        z_ref[...] = jnp.dot(x_ref[...], y_ref[...], precision="highest")

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(n // bn,),
        in_specs=[
            pl.BlockSpec((m, k), lambda j: (0, 0)),
            pl.BlockSpec((k, bn), lambda j: (0, j)),
        ],
        out_specs=pl.BlockSpec((m, bn), lambda j: (0, j)),
        interpret=interpret,
    )(x, y)
