"""A single number stored to vector memory."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="A scalar is stored to vector memory",
    operator="iota",
    caught_by="compile",
    says="Cannot store scalars to VMEM",
    cause="The program's number lives in the scalar unit; only vectors are stored to VMEM.",
    lesson="Scalars go to SMEM. On a GPU, where there is no such split, the kernel is right.",
    workloads=(Workload("tiny", {"n": 8}, "int32"),),
)


def kernel(n, *, interpret, repaired=False):
    """→ int32 [n]."""

    def body(o_ref):
        i = pl.program_id(0)
        o_ref[i] = i

    space = pltpu.SMEM if repaired else pltpu.VMEM
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),
        grid=(n,),
        out_specs=pl.BlockSpec(memory_space=space),
        interpret=interpret,
    )()
