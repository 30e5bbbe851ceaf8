"""A copy into shared memory that is used before its barrier says that it is there."""

import jax
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.workload import Workload

BUG = Bug(
    title="The tile is used before TMA has brought it",
    operator="add_vectors",
    caught_by="simulate",
    says="race",
    cause="TMA copies on its own; without barrier_wait the threads read while it still writes.",
    lesson="The values may be right by luck. Only a race detector sees that nothing ordered them.",
    workloads=(Workload("one_block", {"n": 128}),),
    backend=MOSAIC_GPU,
)


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; y goes through shared memory."""

    def body(x_gmem, y_gmem, o_gmem, y_smem, arrived):
        plgpu.copy_gmem_to_smem(y_gmem, y_smem, arrived)
        if repaired:
            plgpu.barrier_wait(arrived)
        o_gmem[...] = x_gmem[...] + y_smem[...]

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_types=dict(y_smem=plgpu.SMEM(y.shape, y.dtype), arrived=plgpu.Barrier()),
        interpret=interpret,
        kernel_name="unawaited_load",
    )(x, y)
