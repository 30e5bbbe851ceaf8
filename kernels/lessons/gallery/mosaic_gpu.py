"""Wrong kernels on vectors, in Pallas for a GPU by Mosaic: what its simulator finds."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.lessons.gallery.bug import bug
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.workload import cases

BLOCK = 128
ONE_BLOCK = cases("n", one_block=BLOCK)

_bug = functools.partial(bug, backend=MOSAIC_GPU)


def _run(body, x, y, **options):
    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), **options)(x, y)


@_bug(*cases("n", two_blocks=2 * BLOCK))
def gpu_shifted_read(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; a block for each BLOCK elements."""

    def body(x_gmem, y_gmem, o_gmem):
        block = jax.lax.axis_index("block")
        here = pl.ds(block * BLOCK, BLOCK)
        read = here if repaired else pl.ds((block + 1) * BLOCK, BLOCK)
        o_gmem[here] = x_gmem[read] + y_gmem[read]

    grid = {"grid": (x.size // BLOCK,), "grid_names": ("block",)}
    return _run(body, x, y, interpret=interpret, kernel_name="shifted_read", **grid)


@_bug(*ONE_BLOCK)
def gpu_unawaited_load(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; y goes through shared memory."""

    def body(x_gmem, y_gmem, o_gmem, y_smem, arrived):
        plgpu.copy_gmem_to_smem(y_gmem, y_smem, arrived)
        if repaired:
            plgpu.barrier_wait(arrived)
        o_gmem[...] = x_gmem[...] + y_smem[...]

    scratch = {"y_smem": plgpu.SMEM(y.shape, y.dtype), "arrived": plgpu.Barrier()}
    options = {"interpret": interpret, "kernel_name": "unawaited_load"}
    return _run(body, x, y, scratch_types=scratch, **options)


@_bug(*ONE_BLOCK)
def gpu_unwritten_shared(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; summed up in shared memory."""

    def body(x_gmem, y_gmem, o_gmem, sum_smem):
        if repaired:
            sum_smem[...] = jnp.zeros_like(sum_smem)
        sum_smem[...] = sum_smem[...] + x_gmem[...]
        sum_smem[...] = sum_smem[...] + y_gmem[...]
        o_gmem[...] = sum_smem[...]

    scratch = {"sum_smem": plgpu.SMEM(x.shape, x.dtype)}
    options = {"interpret": interpret, "kernel_name": "unwritten_shared"}
    return _run(body, x, y, scratch_types=scratch, **options)
