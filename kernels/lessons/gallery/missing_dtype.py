"""A dtype that a TPU has no arithmetic for."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The kernel keeps its numbers in float16",
    operator="iota",
    caught_by="compile",
    says="for this chip",
    cause="A GPU's half precision is float16, a TPU's is bfloat16: Mosaic has no arithmetic in "
    "float16 for this chip.",
    lesson="A dtype belongs to a machine. Both interpreters have them all.",
    workloads=(Workload("one_register", {"n": 1024}, "int32"),),
    needs="libtpu",
)


def kernel(n, *, interpret, repaired=False):
    """→ int32 [n]; n a multiple of 128, at most 2048, up to which float16 counts exactly."""
    dtype = jnp.float32 if repaired else jnp.float16

    def body(o_ref, numbers_ref):
        rows, lanes = (jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, d) for d in (0, 1))
        numbers_ref[...] = (rows * 128 + lanes).astype(dtype)
        o_ref[...] = (numbers_ref[...] + numbers_ref[...]).astype(jnp.int32) // 2

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n // 128, 128), jnp.int32),
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((n // 128, 128), dtype)],
        interpret=interpret,
    )().reshape(n)
