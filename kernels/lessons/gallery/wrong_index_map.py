"""An index map with its two results the wrong way round."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The index map of y has rows and columns swapped",
    operator="matmul",
    caught_by="interpret",
    says="allowed",
    cause="Every block exists, every shape agrees, and each program multiplies the wrong block.",
    lesson="No shape check can see it. Compare numbers with a reference, on more than one block.",
    workloads=(
        Workload("one_block", {"m": 128, "k": 128, "n": 128}, why="too small to show it"),
        Workload("four_blocks", {"m": 256, "k": 256, "n": 256}),
    ),
)


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n], all multiples of 128."""
    (m, k), n = x.shape, y.shape[1]

    def body(x_ref, y_ref, z_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            z_ref[...] = jnp.zeros_like(z_ref)

        z_ref[...] += jnp.dot(x_ref[...], y_ref[...], precision="highest")

    def y_index(i, j, step):
        return (step, j) if repaired else (j, step)

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // 128, n // 128, k // 128),
        in_specs=[
            pl.BlockSpec((128, 128), lambda i, j, step: (i, step)),
            pl.BlockSpec((128, 128), y_index),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda i, j, step: (i, j)),
        interpret=interpret,
    )(x, y)
