"""A block that reads beyond the end of its array."""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.workload import Workload

BLOCK = 128

BUG = Bug(
    title="The last block reads beyond the array",
    operator="add_vectors",
    caught_by="interpret",
    says="Out-of-bounds read",
    cause="Blocks are counted from 1, so each reads its neighbour's numbers, the last nobody's.",
    lesson="A GPU returns what lies there. The simulation raises, with the line.",
    workloads=(Workload("two_blocks", {"n": 2 * BLOCK}),),
    backend=MOSAIC_GPU,
)


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; a block for each BLOCK elements."""

    def body(x_gmem, y_gmem, o_gmem):
        block = jax.lax.axis_index("block")
        here = pl.ds(block * BLOCK, BLOCK)
        read = here if repaired else pl.ds((block + 1) * BLOCK, BLOCK)
        o_gmem[here] = x_gmem[read] + y_gmem[read]

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.size // BLOCK,),
        grid_names=("block",),
        interpret=interpret,
        kernel_name="shifted_read",
    )(x, y)
