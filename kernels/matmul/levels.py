"""The same matmul six times, one change each, from a few per cent of the peak to nearly all of it.

v0 whole arrays; v1 blocks; v2 an accumulator; v3 large blocks; v4 no idle pass over the
accumulator; v5 no accumulator. The next level is kernels.matmul.pallas, which chooses its blocks by
the tuner's records. Each takes x [m, k] and y [k, n] of any size in float32, bfloat16, int8 or
float8, and returns [m, n], as kernels.matmul.matmul does.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.pallas import interprets
from kernels.machines.tpu.products import accumulator, product
from kernels.matmul.blocks import BlockSizes, plan
from kernels.matmul.xla import mask_tails, result_dtype

__all__ = ["v0", "v1", "v2", "v3", "v4", "v5"]

SMALL = BlockSizes(128, 128, 128)
LARGE = BlockSizes(512, 1024, 1024)  # the published kernel's


def whole_kernel(x_ref, y_ref, z_ref):
    # x_ref [m, k], y_ref [k, n], z_ref [m, n]: everything, in VMEM
    z_ref[...] = product(x_ref[...], y_ref[...]).astype(z_ref.dtype)


def v0(x, y, *, interpret=None):
    """One program multiplies the whole arrays, as far as VMEM holds them."""
    (m, k), n = x.shape, y.shape[1]
    whole = plan(m, k, n, x.dtype, BlockSizes(m, k, n), buffers=1)
    return pl.pallas_call(
        whole_kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), result_dtype(x.dtype)),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=whole.vmem_limit_bytes),
        interpret=interprets(interpret, "tpu"),
        name="matmul_v0",
    )(x, y)


def blocks_kernel(x_ref, y_ref, z_ref, *, k):
    # x_ref [bm, bk], y_ref [bk, bn], z_ref [bm, bn]: the sums, in the dtype of sums
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _():
        z_ref[...] = jnp.zeros_like(z_ref)

    z_ref[...] += product(*mask_tails(x_ref[...], y_ref[...], step, k))


def v1(x, y, *, interpret=None):
    """Blocks of 128³ on a grid; the result's block collects the sums, in 4 bytes an element."""
    z = blocked(blocks_kernel, x, y, SMALL, interpret, "matmul_v1", out_dtype=accumulator(x.dtype))
    return z.astype(result_dtype(x.dtype))


def accumulated_kernel(x_ref, y_ref, z_ref, acc_ref, *, k):
    # acc_ref [bm, bn]: the sums; z_ref [bm, bn]: the result, in its own dtype
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += product(*mask_tails(x_ref[...], y_ref[...], step, k))

    @pl.when(step == steps - 1)
    def _():
        z_ref[...] = acc_ref[...].astype(z_ref.dtype)


def v2(x, y, *, interpret=None):
    """The sums stay in a scratch accumulator, and the result is written once, in its own dtype."""
    return blocked(accumulated_kernel, x, y, SMALL, interpret, "matmul_v2", scratch=True)


def v3(x, y, *, interpret=None):
    """The same kernel with large blocks."""
    return blocked(accumulated_kernel, x, y, LARGE, interpret, "matmul_v3", scratch=True)


def full_kernel(x_ref, y_ref, z_ref, *, k):
    # x_ref [bm, k], y_ref [k, bn]: all of k, so there is nothing to carry from step to step
    z_ref[...] = product(x_ref[...], y_ref[...]).astype(z_ref.dtype)


def branches_kernel(x_ref, y_ref, z_ref, acc_ref, *, k):
    step, last = pl.program_id(2), pl.num_programs(2) - 1
    dot = lambda: product(*mask_tails(x_ref[...], y_ref[...], step, k))

    @pl.when(step == 0)
    def _():
        acc_ref[...] = dot()

    @pl.when((step > 0) & (step < last))
    def _():
        acc_ref[...] += dot()

    @pl.when(step == last)
    def _():
        z_ref[...] = (acc_ref[...] + dot()).astype(z_ref.dtype)


def v4(x, y, *, interpret=None):
    """The first step writes the accumulator instead of adding to zeros; the last adds on the way
    to the result. Two passes over the accumulator are gone."""
    if x.shape[1] <= LARGE.bk:  # a first step that is also the last would add its product twice
        return blocked(full_kernel, x, y, LARGE, interpret, "matmul_v4")
    return blocked(branches_kernel, x, y, LARGE, interpret, "matmul_v4", scratch=True)


def v5(x, y, *, interpret=None):
    """All of k in one block, and no accumulator: each program is one long dot."""
    return blocked(full_kernel, x, y, BlockSizes(512, x.shape[1], 512), interpret, "matmul_v5")


def blocked(kernel, x, y, block, interpret, name, out_dtype=None, scratch=False):
    """Plan `block` for the operands and call a blocked kernel with it."""
    on = plan(*x.shape, y.shape[1], x.dtype, block)
    return blocked_call(kernel, x, y, on, interprets(interpret, "tpu"), name, out_dtype, scratch)


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5, 6, 7))
def blocked_call(kernel, x, y, plan, interpret, name, out_dtype, scratch):
    """The pallas_call of every level but v0: k is the innermost dimension of its grid."""
    (m, k), n = x.shape, y.shape[1]
    bm, bk, bn = plan.block.bm, plan.block.bk, plan.block.bn
    return pl.pallas_call(
        functools.partial(kernel, k=k),
        out_shape=jax.ShapeDtypeStruct((m, n), out_dtype or result_dtype(x.dtype)),
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, step: (i, step)),
            pl.BlockSpec((bk, bn), lambda i, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, step: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), accumulator(x.dtype))] if scratch else [],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=plan.vmem_limit_bytes,
        ),
        interpret=interpret,
        name=name,
    )(x, y)
