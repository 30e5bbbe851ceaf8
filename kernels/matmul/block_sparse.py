"""Block-sparse matrices times dense ones on a TPU: a grid step for each block that there is.

Prefetched scalars reach the scalar memory before the first step. Index maps read them, and so a
step fetches the block of y that its own block meets, wherever that is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines import checks
from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here
from kernels.machines.tpu.plan import TpuPlan
from kernels.machines.tpu.products import accumulator, mask, product
from kernels.matmul.blocks import LANES, BlockSizes, vmem_limit
from kernels.matmul.xla import result_dtype

MOST_STEPS = 80_000  # each takes three int32 of a v5e's 1 MiB of scalar memory


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("blocks", "rows", "columns"),
    meta_fields=("shape",),
)
@dataclass(frozen=True)
class BlockSparse:
    """A matrix of which only some blocks are stored; the others are zero.

    A JAX pytree. x @ y is block_sparse_matmul of its arrays.

    Args:
        blocks: [number, bm, bk]. What a block holds beyond the matrix's edge is ignored; no two
            stand in the same place.
        rows, columns: int32 [number], where each block stands, counted in blocks, sorted by rows.
        shape: (m, k).
    """

    blocks: Any
    rows: Any
    columns: Any
    shape: tuple[int, int]

    @classmethod
    def from_dense(cls, x: Any, block: tuple[int, int] = (LANES, LANES)) -> BlockSparse:
        """Store the blocks of a matrix that hold anything but zeros.

        Args:
            x: [m, k], concrete.
            block: (bm, bk).

        Returns:
            The matrix; its last blocks are filled up with zeros.

        Raises:
            ValueError: for another rank, a zero dimension, or a block that is not two sizes.
        """
        checks.array("x", x, rank=2, dtypes=(str(getattr(x, "dtype", "")),))
        if len(block) != 2:
            checks.fail("block", block, "(bm, bk)")
        for name, size in zip(("bm", "bk"), block, strict=True):
            checks.positive_int(f"block.{name}", size)
        x = np.asarray(x)
        x_padded = np.pad(x, [(0, -size % step) for size, step in zip(x.shape, block)])
        (rows, bm), (columns, bk) = ((s // b, b) for s, b in zip(x_padded.shape, block))
        tiles = x_padded.reshape(rows, bm, columns, bk).swapaxes(1, 2)
        row, column = np.nonzero((tiles != 0).any((2, 3)))
        return cls(
            jnp.asarray(tiles[row, column]),
            jnp.asarray(row, jnp.int32),
            jnp.asarray(column, jnp.int32),
            x.shape,
        )

    def to_dense(self) -> Any:
        """[m, k], zeros included."""
        from kernels.matmul import xla

        return xla.dense(self.blocks, self.rows, self.columns, *self.shape)

    def __matmul__(self, y: Any) -> Any:
        """[m, k], [k, n] → [m, n], by the Pallas kernel."""
        from kernels.matmul import block_sparse_matmul

        checks.same("y.shape[0]", y.shape[0], "x.shape[1]", self.shape[1])
        return block_sparse_matmul(self.blocks, y, self.rows, self.columns, m=self.shape[0])


def _steps(order, rows, columns, height):
    """What each step reads and writes: its block of x, its row, its column, [number + height] each.

    A step for every block, and one more at the beginning of each row, which sets the row to zero;
    so a row without blocks is written too. rows is sorted.
    """
    if len(rows) + height > MOST_STEPS:
        accepted = f"at most {MOST_STEPS} together, for a TPU's scalar memory"
        checks.fail("blocks", f"{len(rows)} blocks for {height} rows of blocks", accepted)
    row = jnp.sort(jnp.concatenate([jnp.arange(height, dtype=jnp.int32), rows]))
    begins = jnp.diff(row, prepend=-1) > 0
    # Steps so far less rows begun are blocks so far. A row's first step names the block after it,
    # which is then there in time.
    block = jnp.arange(len(row)) - row - jnp.where(begins, 0, 1)
    block = jnp.minimum(block, len(rows) - 1)
    return order[block], row, columns[block]


def _multiply_kernel(
    order_ref, rows_ref, columns_ref, x_ref, y_ref, z_ref, acc_ref, *, axis, k, interpret
):
    # rows_ref, … [steps] in SMEM; y_ref [bk, bn]; z_ref, acc_ref [bm, bn]
    # x_ref [bm, bk] with axis 1, or [bk, bm] with axis 0: the axis that is summed over
    step, last = pl.program_id(1), pl.num_programs(1) - 1
    row = rows_ref[step]
    begins = (step == 0) | (rows_ref[jnp.maximum(step - 1, 0)] != row)

    @pl.when(begins)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(~begins)
    def _():
        x, y = x_ref[...], y_ref[...]
        if k % len(y):
            left = k - columns_ref[step] * len(y)
            x, y = mask(x, axis, left), mask(y, 0, left)
        acc_ref[...] += product(x, y, (axis, 0), widen=interpret is True)

    @pl.when((step == last) | (rows_ref[jnp.minimum(step + 1, last)] != row))
    def _():
        z_ref[...] = acc_ref[...].astype(z_ref.dtype)


def _multiply(x, y, order, rows, columns, *, m, plan, axis, interpret):
    """The sum of every block x[order[s]] times block columns[s] of y, into block rows[s] of z.

    x: [number, bm, bk] with axis 1, [number, bk, bm] with axis 0: the one that is summed over.
    y: [k, n]. rows is sorted. Returns z: [m, n].
    """
    _, *block = x.shape
    (k, n), bk, bm, bn = y.shape, block[axis], block[1 - axis], plan.block.bn
    steps = _steps(order, rows, columns, pl.cdiv(m, bm))
    return pl.pallas_call(
        functools.partial(_multiply_kernel, axis=axis, k=k, interpret=interpret),
        out_shape=jax.ShapeDtypeStruct((m, n), result_dtype(x.dtype)),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(pl.cdiv(n, bn), len(steps[0])),
            in_specs=[
                pl.BlockSpec(block, lambda j, s, order, rows, columns: (order[s], 0)),
                pl.BlockSpec((bk, bn), lambda j, s, order, rows, columns: (columns[s], j)),
            ],
            out_specs=pl.BlockSpec((bm, bn), lambda j, s, order, rows, columns: (rows[s], j)),
            scratch_shapes=[pltpu.VMEM((bm, bn), accumulator(x.dtype))],
        ),
        compiler_params=pltpu.CompilerParams(
            # Steps add to what came before in their row; columns of z know nothing of each other.
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=vmem_limit(BlockSizes(bm, bk, bn), x.dtype, plan.chip),
        ),
        interpret=interpret,
        name="block_sparse_matmul",
    )(*steps, x.reshape(-1, block[1]), y)


def _sample_kernel(rows_ref, columns_ref, dz_ref, y_ref, dx_ref, acc_ref, *, m, k, n, interpret):
    # rows_ref, columns_ref [number] in SMEM; dz_ref [bm, bn], y_ref [bk, bn]; dx_ref [bm, bk]
    block, step = pl.program_id(0), pl.program_id(1)
    (bm, bn), bk = dz_ref.shape, len(y_ref)
    dz, y = dz_ref[...], y_ref[...]
    if n % bn:
        dz, y = mask(dz, 1, n - step * bn), mask(y, 1, n - step * bn)

    @pl.when(step == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += product(dz, y, (1, 1), widen=interpret is True)

    @pl.when(step == pl.num_programs(1) - 1)
    def _():
        dx = acc_ref[...]
        if m % bm:
            dx = mask(dx, 0, m - rows_ref[block] * bm)
        if k % bk:
            dx = mask(dx, 1, k - columns_ref[block] * bk)
        dx_ref[...] = dx.astype(dx_ref.dtype)


def _sample(dz, y, rows, columns, *, plan, interpret):
    """dz [m, n] times yᵀ [n, k], but only the blocks at (rows[s], columns[s]): [number, bm, bk]."""
    (m, n), k = dz.shape, len(y)
    bm, bk, bn = plan.block.bm, plan.block.bk, plan.block.bn
    return pl.pallas_call(
        functools.partial(_sample_kernel, m=m, k=k, n=n, interpret=interpret),
        out_shape=jax.ShapeDtypeStruct((len(rows) * bm, bk), dz.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(len(rows), pl.cdiv(n, bn)),
            in_specs=[
                pl.BlockSpec((bm, bn), lambda s, j, rows, columns: (rows[s], j)),
                pl.BlockSpec((bk, bn), lambda s, j, rows, columns: (columns[s], j)),
            ],
            out_specs=pl.BlockSpec((bm, bk), lambda s, j, *_: (s, 0)),
            scratch_shapes=[pltpu.VMEM((bm, bk), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=vmem_limit(plan.block, dz.dtype, plan.chip),
        ),
        interpret=interpret,
        name="block_sparse_sample",
    )(rows, columns, dz, y).reshape(-1, bm, bk)


def make_plan(n, block, dtype, bn=None):
    """The blocks of x, (bm, bk), and of y, for the chip at hand.

    Args:
        n: columns of y.
        block: (bm, bk).
        dtype: of both.
        bn: columns of y in a block; None is all of n if it can be had in VMEM, else half of it, and
            so on, in whole lanes.
    """
    chip = CHIPS[here()]
    if bn is None:
        bn = n
        while bn > LANES and not BlockSizes(*block, bn).fits(dtype, chip.vmem_bytes):
            bn = pl.cdiv(pl.cdiv(bn, 2), LANES) * LANES
    sizes = BlockSizes(*block, min(bn, n))
    return TpuPlan(chip, sizes, vmem_limit(sizes, dtype, chip))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
@functools.partial(jax.jit, static_argnums=(4, 5, 6))
def _call(blocks, y, rows, columns, m, plan, interpret):
    order = jnp.arange(len(blocks), dtype=jnp.int32)
    return _multiply(blocks, y, order, rows, columns, m=m, plan=plan, axis=1, interpret=interpret)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _backward(m, plan, interpret, saved, dz):
    """dblocks = the blocks of dz yᵀ; dy = xᵀ dz, for which the blocks come column by column."""
    blocks, y, rows, columns = saved
    dx = _sample(dz, y, rows, columns, plan=plan, interpret=interpret)
    order = jnp.argsort(columns).astype(jnp.int32)
    by_columns = blocks, dz, order, columns[order], rows[order]
    dy = _multiply(*by_columns, m=len(y), plan=plan, axis=0, interpret=interpret)
    return dx, dy, None, None


_call.defvjp(lambda *arguments: (_call(*arguments), arguments[:4]), _backward)


def block_sparse_matmul(blocks, y, rows, columns, *, m, bn=None, interpret=None):
    """The stored blocks times y; grid (n / bn, steps), a step for each block and each block row.

    Args:
        blocks, y, rows, columns, m, interpret: as the operator takes them.
        bn: columns of y in a block; None lets make_plan choose.
    """
    blocks, y, rows, columns = map(jnp.asarray, (blocks, y, rows, columns))
    if not len(blocks):  # a grid has at least one step, so it gets a block of zeros
        blocks = jnp.zeros((1, *blocks.shape[1:]), blocks.dtype)
        rows = columns = jnp.zeros(1, jnp.int32)
    plan = make_plan(y.shape[1], blocks.shape[1:], blocks.dtype, bn)
    return _call(blocks, y, rows, columns, m, plan, interprets(interpret, "tpu"))
