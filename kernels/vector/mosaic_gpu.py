"""add_vectors for a GPU: Pallas, through Mosaic GPU."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.machines.gpu.simulator import interprets
from kernels.vector.pallas import differentiable

BLOCK = 1024  # elements of a block: eight for each of a warpgroup's 128 threads


def _add_vectors_kernel(x_gmem, y_gmem, o_gmem):  # each [n], in global memory
    here = pl.ds(jax.lax.axis_index("block") * BLOCK, BLOCK)
    o_gmem[here] = x_gmem[here] + y_gmem[here]


@differentiable
@functools.partial(jax.jit, static_argnums=2)
def _add_vectors(x, y, interpret):
    n = x.size
    blocks = pl.cdiv(n, BLOCK)
    # Nothing masks a part of a block, so the last one gets its zeros from outside.
    x, y = (jnp.pad(vector, (0, blocks * BLOCK - n)) for vector in (x, y))
    call = plgpu.kernel(
        _add_vectors_kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(blocks,),
        grid_names=("block",),
        interpret=interpret,
        kernel_name="add_vectors",
    )
    return call(x, y)[:n]


def add_vectors(x, y, *, interpret=None):
    """[n], [n] → [n]; a warpgroup for each BLOCK elements."""
    return _add_vectors(jnp.asarray(x), jnp.asarray(y), interprets(interpret))
