"""Attention over pages on a TPU: the pages are fetched by hand, a block ahead of the products.

    for each tile of rows of one sequence:
        for each block of pages that its last row sees:
            start the copies of the next block: of this tile, or the next one that sees any
            wait for the copies of this block
            for each head of the keys:
                s = scale q kᵀ; hide what is behind a row
                m, l, acc = online softmax of s with v
        o = acc / l

One copy brings a page of all heads. What a tile sees and the table are prefetched scalars, and so
is how many blocks came before a tile: which of the two buffers it begins with follows from that.
Decode is a tile of one row for each sequence.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.checks import fail
from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here
from kernels.machines.tpu.plan import TpuPlan
from kernels.machines.tpu.products import product
from kernels.paged_attention import tiles

LANES, SUBLANES = 128, 8
TOKENS, PAGES = 1024, 64  # of a block at most, unless it is asked for
LOG2E = math.log2(math.e)
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)  # a score that no softmax sees


class PageBlocks(NamedTuple):
    """Of a block: how many pages, of how many heads of the keys."""

    pages: int
    heads: int


def make_plan(hkv, page, head_dim, width, dtype, block=None, rows=SUBLANES):
    """How many pages and heads are fetched at a time, for the chip at hand.

    Args:
        hkv, page, head_dim, dtype: of the pages.
        width: pages of a sequence at most.
        block: pages of a block; None is up to TOKENS tokens and PAGES pages.
        rows: queries that meet a head of the keys at a time.

    Raises:
        ValueError: where not even one head of a block finds room in VMEM.
    """
    chip = CHIPS[here()]
    pages = min(block or max(min(TOKENS // page, PAGES), 1), width)
    tokens, lanes = pages * _tiled(page, dtype), -(-head_dim // LANES) * LANES
    limit = chip.vmem_bytes * 3 // 4
    # Two buffers of k and of v, of q and o, and the sums; while a head is worked on, as much again
    # and the scores.
    itemsize = jnp.dtype(dtype).itemsize
    head = 4 * (tokens + rows) * lanes * itemsize + rows * (lanes + 2 * LANES) * 4
    left = limit - 4 * tokens * lanes * 4 - 3 * rows * tokens * 4
    heads = next((n for n in range(hkv, 0, -1) if hkv % n == 0 and n * head <= left), 0)
    if not heads:
        fail("block", f"{pages} pages of {page} tokens × {head_dim}", f"less, for VMEM: {limit} B")
    return TpuPlan(chip, PageBlocks(pages, heads), limit)


def _tiled(page, dtype):
    """Rows of a page in whole tiles."""
    tile = SUBLANES * 4 // jnp.dtype(dtype).itemsize
    return -(-page // tile) * tile


def _kernel(
    sequence_ref, first_ref, seen_ref, before_ref, following_ref, table_ref,
    q_ref, k_hbm_ref, v_hbm_ref, o_ref,
    k_ref, v_ref, m_ref, l_ref, acc_ref, arrived, *, width, page, scale, widen, tile,
):  # fmt: skip
    # table_ref [S · width], the others a number for each tile, in SMEM
    # q_ref, o_ref, acc_ref [heads, group · tile, D]; m_ref, l_ref [heads, group · tile, 1]
    # k_hbm_ref, v_hbm_ref [Hkv, P, rows, D] in HBM; k_ref, v_ref [2, heads, pages, rows, D]
    part, this = pl.program_id(0), pl.program_id(1)
    _, heads, pages, rows, head_dim = k_ref.shape
    seen, before = seen_ref[this], before_ref[this]
    blocks = pl.cdiv(seen, pages * page)

    def each_page(place, block, slot, act):
        """Start or wait for the copies of those pages of a block that the tile at place sees."""
        row_of_table = sequence_ref[place] * width + block * pages

        def both(j, _):
            number = table_ref[row_of_table + j]
            for hbm_ref, ref in ((k_hbm_ref, k_ref), (v_hbm_ref, v_ref)):
                page_ref = hbm_ref.at[pl.ds(part * heads, heads), number]
                act(pltpu.make_async_copy(page_ref, ref.at[slot, :, j], arrived.at[slot]))

        left = pl.cdiv(seen_ref[place], page) - block * pages
        pl.when(left < pages)(lambda: lax.fori_loop(0, left, both, None))

        @pl.when(left >= pages)
        def _():  # of a whole block without a loop, in half as many instructions
            for j in range(pages):
                both(j, None)

    m_ref[...] = jnp.full_like(m_ref, HIDDEN)
    l_ref[...] = jnp.zeros_like(l_ref)
    acc_ref[...] = jnp.zeros_like(acc_ref)

    def work(block, slot):
        left = seen - block * pages * page  # tokens from here on

        def clear(j, _):  # v that no row sees: a probability of 0 times NaN would be NaN
            row = lax.broadcasted_iota(jnp.int32, (heads, rows, head_dim), 1)
            v = v_ref[slot, :, j].astype(jnp.float32)
            is_seen = row < jnp.minimum(left - j * page, page)
            v_ref[slot, :, j] = jnp.where(is_seen, v, 0).astype(v_ref.dtype)

        lax.fori_loop(jnp.minimum(left // page, pages), pages, clear, None)
        column = lax.broadcasted_iota(jnp.int32, (1, pages * rows), 1)
        if rows > page:  # the rest of each page is padding
            column, row = column // rows * page, column % rows
            column = jnp.where(row < page, column + row, left)
        if tile > 1:  # a row sees itself and what is before it
            row = lax.rem(lax.broadcasted_iota(jnp.int32, (q_ref.shape[1], 1), 0), tile)
            left = jnp.minimum(first_ref[this] + row + 1 - block * pages * page, left)

        def meet(head, _):
            k, v = (ref[slot, head].reshape(pages * rows, head_dim) for ref in (k_ref, v_ref))
            s = product(q_ref[head], k, (1, 1), widen) * (scale * LOG2E)
            s = jnp.where(column < left, s, HIDDEN)
            m = jnp.maximum(m_ref[head], s.max(1, keepdims=True))
            p, shrink = jnp.exp2(s - m), jnp.exp2(m_ref[head] - m)
            m_ref[head] = m
            l_ref[head] = shrink * l_ref[head] + p.sum(1, keepdims=True)
            acc_ref[head] = shrink * acc_ref[head] + product(p.astype(v.dtype), v, widen=widen)

        if tile > 1:
            lax.fori_loop(0, heads, meet, None)
        else:
            for head in range(heads):  # their short chains overlap
                meet(head, None)

    def step(block, _):
        last = block + 1 == blocks
        next_tile = jnp.where(last, following_ref[this], this)
        next_slot = lax.rem(before + block + 1, 2)

        @pl.when(next_tile < pl.num_programs(1))
        def _():
            next_block = jnp.where(last, 0, block + 1)
            each_page(next_tile, next_block, next_slot, lambda copy: copy.start())

        @pl.when(block >= 0)
        def _():
            each_page(this, block, 1 - next_slot, lambda copy: copy.wait())
            work(block, 1 - next_slot)

    # For the very first block nobody has asked: a round before it does no more than that.
    first = jnp.where((before == 0) & (blocks > 0), -1, 0)
    lax.fori_loop(first, blocks, step, None)
    o = acc_ref[...] / l_ref[...]
    o_ref[...] = jnp.where(seen > 0, o, 0).astype(o_ref.dtype)


def _following(blocks):
    """For each tile the next one that has any blocks; len(blocks) where there is none."""
    place = jnp.where(blocks > 0, jnp.arange(len(blocks), dtype=jnp.int32), len(blocks))
    later = lax.cummin(place, reverse=True)
    return jnp.append(later[1:], jnp.int32(len(blocks)))


def _attend(arrays, q, sequence, first, seen, *, scale, block, interpret):
    """kernels.paged_attention.tiles.Attend of arrays: k_pages, v_pages and page_table."""
    k_pages, v_pages, page_table = arrays
    (number, tile, h, d), (hkv, _, page, _) = q.shape, k_pages.shape
    group = h // hkv
    # The queries of a head of the keys: those of a tile's rows for each head of queries in turn.
    q = q.reshape(number, tile, hkv, group, d).transpose(0, 2, 3, 1, 4)
    q = q.reshape(number, hkv, group * tile, d)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, -q.shape[2] % SUBLANES), (0, 0)))
    plan = make_plan(hkv, page, d, page_table.shape[1], q.dtype, block, q.shape[2])
    block, rows = plan.block, _tiled(page, k_pages.dtype)
    if rows > page:
        more = ((0, 0), (0, 0), (0, rows - page), (0, 0))
        k_pages, v_pages = jnp.pad(k_pages, more), jnp.pad(v_pages, more)
    blocks = pl.cdiv(seen, block.pages * page)
    queries = pl.BlockSpec((None, block.heads, *q.shape[2:]), lambda part, s, *_: (s, part, 0, 0))
    state = (block.heads, q.shape[2])
    before = jnp.cumsum(blocks, dtype=jnp.int32) - blocks
    scalars = sequence, first, seen, before, _following(blocks), page_table.reshape(-1)
    o = pl.pallas_call(
        functools.partial(
            _kernel,
            width=page_table.shape[1],
            page=page,
            scale=scale,
            widen=interpret is True and q.dtype == jnp.bfloat16,
            tile=tile,
        ),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(scalars),
            grid=(hkv // block.heads, number),
            in_specs=[queries, *[pl.BlockSpec(memory_space=pl.ANY)] * 2],
            out_specs=queries,
            scratch_shapes=[
                *[pltpu.VMEM((2, block.heads, block.pages, rows, d), q.dtype)] * 2,
                *[pltpu.VMEM((*state, 1), jnp.float32)] * 2,
                pltpu.VMEM((*state, d), jnp.float32),
                pltpu.SemaphoreType.DMA((2,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(
            # A tile finds its first block asked for by the one before.
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=plan.vmem_limit_bytes,
        ),
        interpret=interpret,
        name="paged_attention",
    )(*scalars, q, k_pages, v_pages)
    o = o[:, :, : group * tile].reshape(number, hkv, group, tile, d)
    return o.transpose(0, 3, 1, 2, 4).reshape(number, tile, h, d)


def _attends(k_pages, v_pages, page_table, scale, block=None, interpret=None):
    how = {"scale": scale, "block": block, "interpret": interprets(interpret, "tpu")}
    return functools.partial(_attend, (k_pages, v_pages, page_table), **how)


@functools.partial(jax.jit, static_argnames=("scale", "block", "interpret"))
def paged_attention(q, k_pages, v_pages, lengths, page_table, **options):
    """[S, H, D], [Hkv, P, page, D] twice, [S], [S, pages] → [S, H, D]."""
    return tiles.decode(_attends(k_pages, v_pages, page_table, **options), q, lengths)


@functools.partial(jax.jit, static_argnames=("scale", "block", "interpret"))
def ragged_paged_attention(q, k_pages, v_pages, lengths, page_table, query_starts, **options):
    """[T, H, D], [Hkv, P, page, D] twice, [S], [S, pages], [S + 1] → [T, H, D]."""
    attend = _attends(k_pages, v_pages, page_table, **options)
    return tiles.ragged(attend, q, lengths, query_starts, q.shape[1] // len(k_pages))
