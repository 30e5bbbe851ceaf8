"""Shared memory that is added to before anything is in it."""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.workload import Workload

BUG = Bug(
    title="The sum starts from what shared memory happens to hold",
    operator="add_vectors",
    caught_by="interpret",
    says="nan",
    cause="A block's shared memory holds what the block before it left there.",
    lesson="A simulation that fills fresh memory with NaN shows what zeros would hide.",
    workloads=(Workload("one_block", {"n": 128}),),
    backend=MOSAIC_GPU,
)


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; summed up in shared memory."""

    def body(x_gmem, y_gmem, o_gmem, sum_smem):
        if repaired:
            sum_smem[...] = jnp.zeros_like(sum_smem)
        sum_smem[...] = sum_smem[...] + x_gmem[...]
        sum_smem[...] = sum_smem[...] + y_gmem[...]
        o_gmem[...] = sum_smem[...]

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_types=dict(sum_smem=plgpu.SMEM(x.shape, x.dtype)),
        interpret=interpret,
        kernel_name="unwritten_shared",
    )(x, y)
