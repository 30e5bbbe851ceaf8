"""Matmul for a Hopper GPU, through Mosaic GPU: TMA, wgmma, a pipeline, specialised warpgroups.

A block of three warpgroups stays on each SM and takes one tile of the result after the other. One
warpgroup only copies: the blocks of x and y go ahead of the other two, which multiply them, each
half of the tile's columns or rows. Where tiles are few, several blocks share one and divide k: XLA
adds up their sums.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.machines import checks, rewritten
from kernels.machines.gpu.simulator import interprets, multiprocessors

BK = 64  # 64 bfloat16 are the 128 bytes that swizzling wants
BAND = 8  # tiles: blocks that run at once share rows of x and columns of y, which L2 then holds
MEMORY_REGISTERS = 40  # of a thread that only copies; the others take what it leaves
# Rows of 128 bytes in which 16-byte pieces are exchanged, so that no two threads want one bank.
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


@dataclasses.dataclass(frozen=True)
class HopperTile:
    """What a block of three warpgroups works on at a time."""

    bm: int
    bn: int  # columns of both warpgroups
    stages: int  # blocks of x and y in flight, at most 192 KiB of them
    seconds: float  # of a tile, as a part of the largest one's, measured on an H100
    tall: bool = False  # whether the warpgroups divide rows, and not columns


# A small product is over sooner where smaller tiles, though slower, keep all SMs busy.
TILES = (
    HopperTile(128, 256, 3, 1.0),
    HopperTile(128, 128, 4, 0.59),
    HopperTile(64, 128, 8, 0.45),
)
TALL = HopperTile(128, 64, 8, 0.4, tall=True)  # of columns that a wider tile would pad


def tile_for(m, n, sms):
    """The one of TILES that is through with [m, n] first, by rounds of all SMs."""

    def seconds(tile):
        return pl.cdiv(pl.cdiv(m, tile.bm) * pl.cdiv(n, tile.bn), sms) * tile.seconds

    return TALL if n <= TALL.bn else min(TILES, key=seconds)


def parts_for(m, k, n, tile, sms):
    """Into how many k is divided: a power of two, up to half of the SMs and down to 4 steps."""
    tiles = pl.cdiv(m, tile.bm) * pl.cdiv(n, tile.bn)
    most = min(sms // 2 // tiles, pl.cdiv(k, BK) // 4)
    return 2 ** (max(most, 1).bit_length() - 1)


@dataclasses.dataclass(frozen=True)
class HopperSpec:
    """What is multiplied how."""

    activation: Callable[[Any], Any] | None  # an elementwise function of the sums, or None
    transpose_rhs: bool  # whether y is stored by its columns
    interpret: Any  # as plgpu.kernel takes it
    sms: int  # of the GPU


def product(x, y, spec, tile, parts=1):
    """[m, k], [k, n] → [m, n]; the tile's sizes divide m and n, and BK · parts k."""
    (m, k), n = x.shape, y.shape[0 if spec.transpose_rhs else 1]
    bm, bn = tile.bm, tile.bn
    rows, columns = (bm // 2, bn) if tile.tall else (bm, bn // 2)  # of a warpgroup
    tiles, steps = (m // bm, n // bn), k // BK // parts
    activation = spec.activation or (lambda z: z)
    dtype = x.dtype if parts == 1 else jnp.dtype("float32")
    swizzled = plgpu.TilingTransform((8, 128 // dtype.itemsize)), SWIZZLED[1]

    def step(_, x_smem, y_smem, acc_ref):  # [bm, BK], [BK, bn] or [bn, BK]
        wg = jax.lax.axis_index("wg")
        left, right = x_smem, y_smem
        if tile.tall:
            left = x_smem.at[pl.ds(wg * rows, rows)]
        else:
            mine = pl.ds(wg * columns, columns)
            right = y_smem.at[mine] if spec.transpose_rhs else y_smem.at[:, mine]
        plgpu.wgmma(acc_ref, left, right.transpose((1, 0)) if spec.transpose_rhs else right)
        plgpu.wgmma_wait(0)
        return acc_ref

    def pipeline(i, j, part, step, compute):
        first = part * steps
        y_block, y_index = (BK, bn), lambda s: (first + s, j)
        if spec.transpose_rhs:
            y_block, y_index = y_block[::-1], lambda s: (j, first + s)
        return plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(steps,),
            in_specs=[
                plgpu.BlockSpec((bm, BK), lambda s: (i, first + s), transforms=SWIZZLED),
                plgpu.BlockSpec(y_block, y_index, transforms=SWIZZLED),
            ],
            wg_axis="wg",
            num_compute_wgs=2,
            memory_registers=MEMORY_REGISTERS,
            max_concurrent_steps=min(tile.stages, steps),
            compute_context=compute,
        )

    def kernel(x_gmem, y_gmem, o_gmem, o_smem, buffers):
        wg = jax.lax.axis_index("wg")

        @plgpu.nd_loop((math.prod(tiles) * parts,), collective_axes="sm")
        def one(loop):
            part = jax.lax.rem(loop.index[0], parts)
            i, j = plgpu.planar_snake(jax.lax.div(loop.index[0], parts), tiles, 1, BAND)

            def compute(run):
                def sums(acc_ref):
                    run(acc_ref)
                    return acc_ref[...]

                z = pl.run_scoped(sums, plgpu.ACC((rows, columns), jnp.float32))
                if parts == 1:
                    z = rewritten.inlined(activation)(z)
                # The tile before is read out of shared memory before this one is put there.
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                o_smem[wg] = z.astype(o_smem.dtype)
                plgpu.commit_smem()
                down, across = (wg * rows, 0) if tile.tall else (0, wg * columns)
                mine = pl.ds(i * bm + down, rows), pl.ds(j * bn + across, columns)
                plgpu.copy_smem_to_gmem(o_smem.at[wg], o_gmem.at[part, *mine])

            pipeline(i, j, part, step, compute)(x_gmem, y_gmem, allocations=buffers)

        plgpu.wait_smem_to_gmem(0)

    def entry(x_gmem, y_gmem, o_gmem):
        nothing = lambda *_: None
        pl.run_scoped(
            functools.partial(kernel, x_gmem, y_gmem, o_gmem),
            plgpu.SMEM((2, rows, columns), dtype, transforms=swizzled),
            pipeline(0, 0, 0, nothing, nothing).get_allocations(x_gmem, y_gmem),
            collective_axes="wg",
        )

    sums = plgpu.kernel(
        entry,
        out_type=jax.ShapeDtypeStruct((parts, m, n), dtype),
        grid=(min(spec.sms, math.prod(tiles) * parts),),
        grid_names=("sm",),
        num_threads=3,
        thread_name="wg",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=spec.interpret,
        kernel_name="matmul",
    )(x, y)
    return sums[0] if parts == 1 else activation(sums.sum(0)).astype(x.dtype)


@functools.partial(jax.jit, static_argnums=2)
def padded(x, y, spec):
    """The product of arrays of any shape, with zeros up to whole tiles."""
    (m, k), n = x.shape, y.shape[0 if spec.transpose_rhs else 1]
    tile = tile_for(m, n, spec.sms)
    parts = parts_for(m, k, n, tile, spec.sms)
    rows, depth, columns = -m % tile.bm, -k % (BK * parts), -n % tile.bn
    y_more = (columns, depth) if spec.transpose_rhs else (depth, columns)
    x = jnp.pad(x, ((0, rows), (0, depth)))
    y = jnp.pad(y, [(0, more) for more in y_more])
    return product(x, y, spec, tile, parts)[:m, :n]


def _backward(spec, saved, dz):
    """dx = dz yᵀ and dy = xᵀ dz by the same kernel, after dz has gone back through activation."""
    x, y = saved
    plain = dataclasses.replace(spec, activation=None, transpose_rhs=False)
    if spec.activation is not None:
        sums = padded(x, y, dataclasses.replace(spec, activation=None))
        dz = jax.vjp(spec.activation, sums.astype(jnp.float32))[1](dz.astype(jnp.float32))[0]
        dz = dz.astype(x.dtype)
    by_y = dataclasses.replace(plain, transpose_rhs=not spec.transpose_rhs)
    left, right = (dz, x) if spec.transpose_rhs else (x, dz)
    return padded(dz, y, by_y), padded(left.T, right, plain)


_differentiable = jax.custom_vjp(padded, nondiff_argnums=(2,))
_differentiable.defvjp(lambda x, y, spec: (padded(x, y, spec), (x, y)), _backward)


def matmul(x, y, *, activation=None, transpose_rhs=False, interpret=None):
    """[m, k], [k, n] → [m, n], bfloat16, added up in float32.

    Raises:
        ValueError: for another dtype: wgmma rounds float32 to 10 bits of mantissa.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    checks.one_of('x.dtype, for "mosaic_gpu",', str(x.dtype), ("bfloat16",))
    spec = HopperSpec(activation, bool(transpose_rhs), interprets(interpret), multiprocessors())
    return _differentiable(x, y, spec)
