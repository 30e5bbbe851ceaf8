"""A last block of k that is cut short, multiplied as if it were whole."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The cut-off end of k is multiplied as if it were there",
    operator="matmul",
    caught_by="interpret",
    says="not finite",
    cause="A block that sticks out of the array is filled up with garbage, and a sum adds it.",
    lesson="Rows and columns that stick out are dropped; along a reduction they must be masked.",
    workloads=(
        Workload("whole", {"m": 16, "k": 256, "n": 128}, why="128 divides 256: nothing sticks out"),
        Workload("cut", {"m": 16, "k": 200, "n": 128}),
    ),
)


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n], any k."""
    (m, k), n = x.shape, y.shape[1]

    def inside(block, axis):
        place = pl.program_id(0) * 128 + jax.lax.broadcasted_iota(jnp.int32, block.shape, axis)
        return jnp.where(place < k, block, 0)

    def body(x_ref, y_ref, z_ref):
        x, y = x_ref[...], y_ref[...]
        if repaired:
            x, y = inside(x, 1), inside(y, 0)

        @pl.when(pl.program_id(0) == 0)
        def _():
            z_ref[...] = jnp.zeros_like(z_ref)

        z_ref[...] += jnp.dot(x, y, precision="highest")

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(pl.cdiv(k, 128),),
        in_specs=[
            pl.BlockSpec((m, 128), lambda step: (0, step)),
            pl.BlockSpec((128, n), lambda step: (step, 0)),
        ],
        out_specs=pl.BlockSpec((m, n), lambda step: (0, 0)),
        interpret=interpret,
    )(x, y)
