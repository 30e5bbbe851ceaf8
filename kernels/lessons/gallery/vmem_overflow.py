"""Blocks that no VMEM has room for."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The blocks do not fit into VMEM",
    operator="matmul",
    caught_by="compile",
    says="MiB of VMEM and may have",
    cause="A whole band of y is asked for, and two buffers of each block, so that one fills while "
    "the other is used.",
    lesson="Add up what a kernel holds before you choose its blocks. Only the compiler knows the "
    "rest of it.",
    workloads=(Workload("long_k", {"m": 8, "k": 4096, "n": 2048}),),
    needs="libtpu",
)


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n]; n a multiple of 1024."""
    (m, k), n = x.shape, y.shape[1]
    bn = 128 if repaired else 1024

    def body(x_ref, y_ref, z_ref):
        z = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)
        z_ref[...] = z.astype(z_ref.dtype)

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
