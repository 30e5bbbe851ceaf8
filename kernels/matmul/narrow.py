"""Narrow weights on a TPU: read as they are stored, widened in the kernel, multiplied wide.

Each program has all of k: a few rows of x, and some columns of y. What a group's scale is
multiplied with depends on the rows: of few rows the sums, which are fewer than the weights; of many
the weights, so that the matrix unit adds up all groups at once.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines import checks
from kernels.machines.tpu.chips import CHIPS, here
from kernels.machines.tpu.plan import LANES, RESERVE, TpuPlan
from kernels.machines.tpu.products import product
from kernels.matmul.blocks import MIB, BlockSizes
from kernels.matmul.xla import dequantised, in_groups

UNROLLED = 64  # groups; of more, the kernel loops


def vmem_bytes(block, x_dtype, weights):
    """Bytes of VMEM of a program: two buffers of its blocks, the weights widened, and the sums.

    A float32 product is made of bfloat16 ones: three parts of 2 bytes of both factors.
    """
    item = jnp.dtype(x_dtype).itemsize
    stored = 0.5 if weights == "int4" else 1
    x, y, z = block.bm * block.bk, block.bk * block.bn, block.bm * block.bn
    parts = 6 * (x + y) if item == 4 else 0
    return int(2 * (item * x + stored * y + 4 * z) + (item + 4) * y + parts + 8 * z)


def plan(m, k, n, x_dtype, weights, block=None):
    """Blocks of a product by narrow weights, of which VMEM holds all of k.

    Args:
        m, k, n: of the product.
        x_dtype: of x.
        weights: what is stored.
        block: None takes up to 512 rows and columns, and halves the larger while they do not fit;
            of more rows up to 1,024 columns, since each block of columns fetches all rows again.

    Raises:
        ValueError: for blocks that cut k, are not whole register tiles, or do not fit into VMEM.
    """
    chip = CHIPS[here()]
    most = chip.vmem_bytes - RESERVE
    bm, bn = min(m, 512), min(n, 512 if m <= 512 else 1024)
    while block is None and vmem_bytes(BlockSizes(bm, k, bn), x_dtype, weights) > most:
        if max(bm, bn) <= LANES:
            break
        bm, bn = (bm // 2, bn) if bm > bn else (bm, -(-bn // 2 // LANES) * LANES)
    block = (block or BlockSizes(bm, k, bn)).fitted(m, k, n, x_dtype)
    if block.bk < k:
        checks.fail("block.bk", block.bk, f"all {k}: narrow weights are not cut along k")
    own = vmem_bytes(block, x_dtype, weights)
    if own > most:
        wanted = f"blocks of at most {most / MIB:.0f} MiB in all on a {chip.name}"
        checks.fail("block", f"{block}, which takes {own / MIB:.3g} MiB of VMEM", wanted)
    limit = max(chip.vmem_limit_bytes, min(own * 3 // 2 + 4 * MIB, chip.vmem_bytes - RESERVE // 2))
    return TpuPlan(chip, block, limit)


def candidates(m, k, n, x_dtype, weights, vmem_total):
    """Blocks worth trying: more columns first."""
    sizes = [[min(size, whole) for size in (1024, 512, 256, 128)] for whole in (n, m)]
    every = dict.fromkeys(BlockSizes(bm, k, bn) for bn in sizes[0] for bm in sizes[1])
    return [b for b in every if vmem_bytes(b, x_dtype, weights) <= vmem_total - RESERVE]


def widened(y, weights, dtype):
    """A block of stored weights in `dtype`, which holds each exactly: two rows of a row of int4.

    Eight rows of int4 lie in a register's word as four rows of bytes do, low halves first. So the
    bytes need no shifts to be looked at as int4.
    """
    return (pltpu.bitcast(y, jnp.int4) if weights == "int4" else y).astype(dtype)


def narrow_kernel(x_ref, y_ref, scale_ref, bias_ref, z_ref, *, weights, activation, interpret):
    # x_ref [bm, k], or [groups, bm, rows of a group] where lanes do not divide groups
    # y_ref [groups, rows as stored, bn]; scale_ref [groups, bn]; bias_ref [1, bn]; z_ref [bm, bn]
    groups, (bm, bn) = scale_ref.shape[0], z_ref.shape
    size = x_ref.shape[-1] // (1 if len(x_ref.shape) == 3 else groups)
    multiply = functools.partial(product, widen=interpret is True)

    def add(group, sums):
        x = x_ref[group] if len(x_ref.shape) == 3 else x_ref[:, group * size : (group + 1) * size]
        w = widened(y_ref[group], weights, x_ref.dtype)
        return sums + multiply(x, w) * scale_ref[pl.ds(group, 1)]

    if groups == 1 or len(x_ref.shape) == 3 or bm <= size:
        sums = jnp.zeros((bm, bn), jnp.float32)
        if groups <= UNROLLED:
            for group in range(groups):
                sums = add(group, sums)
        else:
            sums = jax.lax.fori_loop(0, groups, add, sums)
    else:
        w = widened(y_ref[...], weights, jnp.float32) * scale_ref[...][:, None]
        sums = multiply(x_ref[...], w.reshape(groups * size, bn).astype(x_ref.dtype))
    z = sums + bias_ref[...]
    z_ref[...] = (z if activation is None else activation(z)).astype(z_ref.dtype)


@functools.partial(jax.jit, static_argnums=(4, 5, 6, 7, 8))
def narrow_call(x, y, y_scale, bias, weights, activation, out_dtype, plan, interpret):
    """act(x (y · scales) + bias) of stored weights.

    for each block of rows and of columns:
        for each group of rows of y: sums += (x of the group · y of the group) · its scales
        z = act(sums + bias)
    or, of more rows than a group has, sums = x · (y · scales)

    Args:
        x: [m, k].
        y, y_scale, bias: as stored; [groups, n]; [n].
        weights, activation, out_dtype: as quantized_matmul has them.
        plan: of the blocks.
        interpret: as pallas_call takes it.

    Returns:
        [m, n] of out_dtype.

    Source:
        Scales of groups of rows, Frantar et al. 2022, arXiv:2210.17323; the unpacking is ours.
    """
    (m, k), (groups, n) = x.shape, y_scale.shape
    y = y.reshape(groups, -1, n)
    size, (bm, bn) = k // groups, (plan.block.bm, plan.block.bn)
    odd = weights == "int4" and size % 2  # the last half byte of a group holds nothing
    x_spec = pl.BlockSpec((bm, k), lambda j, i: (i, 0))
    if (groups > 1 and size % LANES) or odd:
        x = jnp.pad(x.reshape(m, groups, size), ((0, 0), (0, 0), (0, odd))).swapaxes(0, 1)
        x_spec = pl.BlockSpec((groups, bm, size + odd), lambda j, i: (0, i, 0))
    kernel = functools.partial(
        narrow_kernel, weights=weights, activation=activation, interpret=interpret
    )
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), out_dtype),
        grid=(pl.cdiv(n, bn), pl.cdiv(m, bm)),
        in_specs=[
            x_spec,
            pl.BlockSpec((groups, y.shape[1], bn), lambda j, i: (0, 0, j)),
            pl.BlockSpec((groups, bn), lambda j, i: (0, j)),
            pl.BlockSpec((1, bn), lambda j, i: (0, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda j, i: (i, j)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel"), vmem_limit_bytes=plan.vmem_limit_bytes
        ),
        interpret=interpret,
        name="narrow_matmul",
    )(x, y, y_scale, bias[None])


def _backward(weights, activation, out_dtype, plan, interpret, saved, dz):
    """dx = dz wᵀ, which XLA multiplies: what comes back are many rows, of whom few wait."""
    x, y, y_scale, _ = saved
    if activation is not None:
        sums = narrow_call(*saved, weights, None, "float32", plan, interpret)
        (dz,) = jax.vjp(activation, sums)[1](dz.astype(jnp.float32))
    multiply = functools.partial(
        product, dz.astype(x.dtype), contract=(1, 1), widen=interpret is True
    )
    (m, k), groups = x.shape, len(y_scale)
    stored = in_groups(y, groups, weights)
    parts = [multiply(dequantised(w, y_scale, x.dtype)) for w in stored]
    dx = jnp.stack(parts, 2).reshape(m, groups, -1)[:, :, : k // groups]
    return dx.reshape(m, k).astype(x.dtype), None, None, None


# With a gradient in x: the weights, their scales and the bias are frozen.
narrow_matmul = jax.custom_vjp(narrow_call, nondiff_argnums=(4, 5, 6, 7, 8))
narrow_matmul.defvjp(lambda *operands: (narrow_call(*operands), operands[:4]), _backward)
