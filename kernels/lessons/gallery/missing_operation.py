"""An operation that a TPU kernel cannot use."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The kernel uses an operation that the TPU lacks",
    operator="iota",
    caught_by="compile",
    says="cumsum",
    cause="The interpreters run every operation of JAX; Mosaic knows a part of them.",
    lesson="A running sum, a sort or a gather has to be built from what there is. Lower early.",
    workloads=(Workload("one_register", {"n": 1024}, "int32"),),
)


def kernel(n, *, interpret, repaired=False):
    """→ int32 [n]; n a multiple of 128, at once."""

    def body(o_ref):
        if repaired:
            rows, lanes = (jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, d) for d in (0, 1))
            o_ref[...] = rows * 128 + lanes
        else:
            o_ref[...] = jnp.cumsum(jnp.ones(n, jnp.int32)).reshape(o_ref.shape) - 1

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n // 128, 128), jnp.int32),
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        interpret=interpret,
    )().reshape(n)
