"""Grouped matmul on a TPU: a program for each block of rows and each group that has rows in it.

Which those are is computed in JAX before the kernel, and prefetched to the scalar memory, where
index maps read it. So a block whose rows belong to three groups is visited three times, one after
another, and each visit keeps the rows of its own group; an empty group costs nothing. How many
visits there are is the size of the grid, known only when the kernel starts.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.grouped_matmul.blocks import plan
from kernels.machines import checks
from kernels.machines.pallas import interprets
from kernels.machines.tpu.products import mask, product

MOST_VISITS = 80_000  # each takes two int32 of a v5e's 1 MiB of scalar memory, each group one


def make_visits(group_sizes, m, bm, *, empty):
    """The blocks of rows that each group has rows in, group by group.

    Args:
        group_sizes: int32 [g]; what goes beyond m rows is cut off.
        m, bm: rows, and those of a block.
        empty: True visits an empty group once, since its result is zero, and not the rows beyond
            all groups; False visits these as a group of their own, and no empty group.

    Returns:
        groups, blocks: int32 [most visits], which group each visit is for and which block of rows.
        starts: int32 [g + 2], the first row of each group, that beyond all of them, and m.
        count: int32, how many visits there are.

    Raises:
        ValueError: where there may be more visits than scalar memory holds.
    """
    total, most = pl.cdiv(m, bm), pl.cdiv(m, bm) + group_sizes.shape[0]
    if most > MOST_VISITS:
        checks.fail("group_sizes.shape[0] + blocks of rows", most, f"at most {MOST_VISITS}")
    ends = jnp.clip(jnp.cumsum(jnp.maximum(group_sizes, 0)), 0, m).astype(jnp.int32)
    starts = jnp.concatenate([jnp.zeros(1, jnp.int32), ends, jnp.full(1, m, jnp.int32)])
    first, last = starts[:-1], starts[1:]
    counts = jnp.where(last > first, (last - 1) // bm - first // bm + 1, int(empty))
    if empty:
        counts = counts.at[-1].set(0)
    before = jnp.cumsum(counts) - counts
    # Sums over a mask: as gathers, these few numbers would take longer than the kernel's start.
    visit = jnp.arange(most, dtype=jnp.int32)[:, None]
    mine = (visit >= before) & (visit < before + counts)
    pick = lambda values: jnp.sum(jnp.where(mine, values, 0), axis=1, dtype=jnp.int32)
    blocks = jnp.minimum(pick(first // bm + visit - before), total - 1)
    return pick(jnp.arange(len(counts))), blocks, starts, counts.sum(dtype=jnp.int32)


def _rows_kernel(
    groups_ref, blocks_ref, starts_ref, x_ref, w_ref, z_ref, *scratch, axis, k, interpret
):
    # groups_ref, blocks_ref [visits], starts_ref [g + 2] in SMEM; x_ref [bm, bk]; w_ref [bk, bn]
    # with axis 0, or [bn, bk] with axis 1: the one that is summed over; z_ref [bm, bn]
    # acc_ref [bm, bn] where k is cut
    visit, step, last = pl.program_id(1), pl.program_id(2), pl.num_programs(2) - 1
    group, (bm, bk) = groups_ref[visit], x_ref.shape
    beyond = group == starts_ref.shape[0] - 2

    def dot():
        x, w = x_ref[...], w_ref[...]
        if k % bk:
            x, w = mask(x, 1, k - step * bk), mask(w, axis, k - step * bk)
        return product(x, w, (1, axis), widen=interpret is True)

    def write(sums):
        # Rows of other groups keep what was written at their visit, or wait for it.
        first = blocks_ref[visit] * bm
        row = first + jax.lax.broadcasted_iota(jnp.int32, z_ref.shape, 0)
        inside = (row >= starts_ref[group]) & (row < starts_ref[group + 1])
        z_ref[...] = jnp.where(inside, sums, z_ref[...].astype(jnp.float32)).astype(z_ref.dtype)

    @pl.when(beyond & (step == last))
    def _():
        write(0.0)

    if not scratch:
        pl.when(~beyond)(lambda: write(dot()))
        return
    (acc_ref,) = scratch

    @pl.when(~beyond & (step == 0))
    def _():
        acc_ref[...] = dot()

    @pl.when(~beyond & (step > 0) & (step < last))
    def _():
        acc_ref[...] += dot()

    @pl.when(~beyond & (step == last))
    def _():
        write(acc_ref[...] + dot())


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def multiply_rows(x, w, group_sizes, plan, axis, interpret):
    """Each row of x by the matrix of its group; zeros for the rows beyond all groups.

    for each block of columns, each visit (its group, its block of rows), each step along k:
        sums (+)= x[block of rows, step] w[group][step, columns]
        in the last step: z[block of rows, columns] = sums, in the rows of the group

    Args:
        x: [m, k].
        w: [g, k, n] with axis 0, [g, n, k] with axis 1.
        group_sizes: int32 [g].
        plan: made for m, k, n, g.
        axis: of each matrix of w, the one that is summed over.
        interpret: as pallas_call takes it.

    Returns:
        [m, n] in x's dtype.

    Source:
        The visits are those of MegaBlocks (arXiv 2211.15841) as JAX's megablox has them.
    """
    (m, k), (g, *matrix) = x.shape, w.shape
    n, (bm, bk, bn) = matrix[1 - axis], (plan.block.bm, plan.block.bk, plan.block.bn)
    *scalars, count = make_visits(group_sizes, m, bm, empty=False)
    steps = pl.cdiv(k, bk)

    def w_place(j, visit, step, groups, blocks, starts):
        place = (step, j) if axis == 0 else (j, step)
        return jnp.minimum(groups[visit], g - 1), *place

    return pl.pallas_call(
        functools.partial(_rows_kernel, axis=axis, k=k, interpret=interpret),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(pl.cdiv(n, bn), count, steps),
            in_specs=[
                pl.BlockSpec((bm, bk), lambda j, visit, step, _, blocks, __: (blocks[visit], step)),
                pl.BlockSpec((None, bk, bn) if axis == 0 else (None, bn, bk), w_place),
            ],
            out_specs=pl.BlockSpec(
                (bm, bn), lambda j, visit, step, _, blocks, __: (blocks[visit], j)
            ),
            scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)] if steps > 1 else [],
        ),
        compiler_params=pltpu.CompilerParams(
            # A block of rows is completed visit by visit; columns know nothing of each other.
            dimension_semantics=("parallel", "arbitrary", "arbitrary"),
            vmem_limit_bytes=plan.vmem_limit_bytes,
        ),
        interpret=interpret,
        name="grouped_matmul",
    )(*scalars, x, w)


def _matrices_kernel(
    groups_ref, blocks_ref, starts_ref, x_ref, dz_ref, dw_ref, acc_ref, *, interpret
):
    # groups_ref, blocks_ref [visits], starts_ref [g + 2] in SMEM; x_ref [bm, bk], dz_ref [bm, bn]
    # dw_ref, acc_ref [bk, bn]
    visit, last = pl.program_id(2), pl.num_programs(2) - 1
    group, bm = groups_ref[visit], x_ref.shape[0]

    @pl.when((visit == 0) | (groups_ref[jnp.maximum(visit - 1, 0)] != group))
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    first = blocks_ref[visit] * bm
    start, end = starts_ref[group] - first, starts_ref[group + 1] - first
    whole = (start <= 0) & (end >= bm)

    def add(x, dz):
        acc_ref[...] += product(x, dz, (0, 0), widen=interpret is True)

    @pl.when(whole)
    def _():
        add(x_ref[...], dz_ref[...])

    @pl.when(~whole & (end > start))
    def _():
        # Both: zero times the NaN of another group's row would still be NaN.
        add(mask(x_ref[...], 0, end, start), mask(dz_ref[...], 0, end, start))

    @pl.when((visit == last) | (groups_ref[jnp.minimum(visit + 1, last)] != group))
    def _():
        dw_ref[...] = acc_ref[...].astype(dw_ref.dtype)


@functools.partial(jax.jit, static_argnums=(3, 4))
def multiply_transposed(x, dz, group_sizes, plan, interpret):
    """Of each group the transposed rows of x times its rows of dz; zeros for an empty one.

    for each block of k and of n, each visit (its group, its block of rows), an empty group's too:
        at a group's first visit: sums = 0
        sums += x[the group's rows of the block, k]ᵀ dz[the same rows, n]
        at its last visit: dw[group, k, n] = sums

    Args:
        x, dz: [m, k], [m, n].
        group_sizes: int32 [g].
        plan: made for m, k, n, g, transposed.
        interpret: as pallas_call takes it.

    Returns:
        [g, k, n] in x's dtype.

    Source:
        The visits are those of MegaBlocks (arXiv 2211.15841) as JAX's megablox has them.
    """
    (m, k), n, g = x.shape, dz.shape[1], group_sizes.shape[0]
    bm, bk, bn = plan.block.bm, plan.block.bk, plan.block.bn
    *scalars, count = make_visits(group_sizes, m, bm, empty=True)
    return pl.pallas_call(
        functools.partial(_matrices_kernel, interpret=interpret),
        out_shape=jax.ShapeDtypeStruct((g, k, n), x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(pl.cdiv(k, bk), pl.cdiv(n, bn), count),
            in_specs=[
                pl.BlockSpec((bm, bk), lambda i, j, visit, _, blocks, __: (blocks[visit], i)),
                pl.BlockSpec((bm, bn), lambda i, j, visit, _, blocks, __: (blocks[visit], j)),
            ],
            out_specs=pl.BlockSpec(
                (None, bk, bn), lambda i, j, visit, groups, *_: (groups[visit], i, j)
            ),
            scratch_shapes=[pltpu.VMEM((bk, bn), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=plan.vmem_limit_bytes,
        ),
        interpret=interpret,
        name="grouped_matmul_dw",
    )(*scalars, x, dz)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _call(x, w, group_sizes, rows_plan, interpret):
    return multiply_rows(x, w, group_sizes, rows_plan, 0, interpret)


def _backward(rows_plan, interpret, saved, dz):
    """dx = dz wᵀ, group by group; dw = xᵀ dz of each group's rows."""
    x, w, group_sizes = saved
    (m, k), (g, _, n) = x.shape, w.shape
    by_rows = plan(m, n, k, g, x.dtype, chip=rows_plan.chip)
    by_groups = plan(m, k, n, g, x.dtype, chip=rows_plan.chip, transposed=True)
    dx = multiply_rows(dz, w, group_sizes, by_rows, 1, interpret)
    return dx, multiply_transposed(x, dz, group_sizes, by_groups, interpret), None


_call.defvjp(lambda *arguments: (_call(*arguments), arguments[:3]), _backward)


def grouped_matmul(x, w, group_sizes, *, block=None, interpret=None):
    """[m, k], [g, k, n], int32 [g] → [m, n]; grid (n / bn, visits, k / bk)."""
    x, w, group_sizes = map(jnp.asarray, (x, w, group_sizes))
    (m, k), (g, _, n) = x.shape, w.shape
    rows_plan = plan(m, k, n, g, x.dtype, block)
    return _call(x, w, group_sizes, rows_plan, interprets(interpret, "tpu"))
