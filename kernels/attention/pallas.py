"""Flash attention on a TPU, forward and backward, on transposed scores.

The scores are kept as sᵀ [keys, queries]: the softmax then reduces over sublanes, by plain vector
arithmetic, and its statistics are rows [1, queries]. Between forward and backward one float32 is
saved for each query, the log-sum-exp; the backward pass makes the probabilities again.

Where a window or a mask hides whole blocks of keys, the grid is a list of the blocks that meet, and
the index maps read it. Heads of queries that share a head of keys read the same block of it. Ids of
segments are data: blocks whose ids cannot be equal stay in the list, but nothing is done with them,
and the index maps stay at the last block that was needed, so that nothing is fetched either.

Over 600 lines because both passes share the tiles, what hides a score, and that list.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.attention.arguments import AttentionSpec
from kernels.attention.blocks import LANES, AttentionBlocks, plan
from kernels.machines.pallas import interprets
from kernels.machines.tpu.plan import TpuPlan
from kernels.machines.tpu.products import dot, mask

LOG2E = math.log2(math.e)  # exp(s) is exp2(s log2 e), and exp2 is what the hardware has
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)  # a score that no softmax sees


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlashSpec(AttentionSpec):
    """The same of our kernels for a TPU."""

    plan: TpuPlan[AttentionBlocks]  # of the forward pass
    # What was asked for, of which the backward pass makes its own plan; None lets it choose.
    block: AttentionBlocks | None = None
    mask: tuple[tuple[bool, ...], ...] | None = None  # the blocks of keys that those of queries see


class Tiling(NamedTuple):
    """What a kernel has to know beside its blocks."""

    # Queries and keys: in all, of a block, and of a tile of scores.
    n: int
    m: int
    bq: int
    bk: int
    tq: int
    tk: int
    # How many keys before and after its own place a query sees; None for all of them.
    left: int | None
    right: int | None
    mask: tuple[tuple[bool, ...], ...] | None  # blocks that may meet, [query blocks][key blocks]
    scale: float  # of the scores
    soft_cap: float | None
    group: int  # heads of queries that share one of keys
    # Whether tokens lie in lanes ([D, tokens]) or, as in the arguments, head_dim does.
    seq_minor: bool
    widen: bool  # multiply bfloat16 as float32
    segments: int = 0  # arrays of their ids: none, one, or those of queries and of keys

    @property
    def query_blocks(self):
        return pl.cdiv(self.n, self.bq)

    @property
    def key_blocks(self):
        return pl.cdiv(self.m, self.bk)

    @property
    def pairs(self):
        """Queries and keys that meet, of a head, by and large."""
        if self.left is None:
            return self.n * self.m // (1 + (self.right == 0))
        return self.n * min(self.m, self.left + self.right + 1)

    @property
    def listed(self):
        """Whether the grid is a list of the blocks that meet, and not all of them."""
        packed = self.segments > 0 and self.query_blocks * self.key_blocks > 1
        return packed or self.left is not None or self.mask is not None

    @property
    def several(self):
        """Whether the sums of a query come from several programs, or from none."""
        return self.key_blocks > 1 or self.listed

    @property
    def blind(self):
        """Whether a query may see no key: for its segment, or far behind the last key's window."""
        return self.segments == 2 or (self.left is not None and self.n - self.left > self.m)

    def transpose(self, x):
        """[heads, tokens, D] as the kernel has it, or back."""
        return x.swapaxes(1, 2) if self.seq_minor else x

    def state(self, heads, head_dim):
        """Scratch for m, l and acc of the queries, between one block of keys and the next."""
        if not self.several:
            return []
        rows = (1, 1, head_dim)
        return [pltpu.VMEM((heads, r, self.bq), jnp.float32) for r in rows]

    def span(self, offset, queries, keys):
        """The least and the greatest distance from a key back to a query, of so many of both, the
        first of which are `offset` apart."""
        return offset - (keys - 1), offset + queries - 1

    def within(self, least, greatest):
        """Whether all distances between these two are seen, and whether any is."""
        left = math.inf if self.left is None else self.left
        right = math.inf if self.right is None else self.right
        whole = (least >= -right) & (greatest <= left)
        return whole, (greatest >= -right) & (least <= left)

    def kinds(self):
        """int [query blocks, key blocks], and what the kinds from 2 on stand for.

        0 is a block of keys that is hidden whole, 1 one that is seen whole; 2 and more are seen in
        part, each at another offset: the first query's place less the first key's.
        """
        shape = self.query_blocks, self.key_blocks
        offsets = np.subtract.outer(*(np.arange(n) * b for n, b in zip(shape, (self.bq, self.bk))))
        whole, seen = self.within(*self.span(offsets, self.bq, self.bk))
        cut = np.unique(offsets[seen & ~whole])
        kinds = np.where(whole, 1, np.where(seen, 2 + np.searchsorted(cut, offsets), 0))
        return kinds * (True if self.mask is None else np.array(self.mask)), cut.tolist()

    def tasks(self, heads, offset):
        """(head, first query, first key) of each tile with a key that a query sees, in a block at
        this offset; all of a block with none, which is seen whole."""
        return [
            (head, query, key)
            for head in range(heads)
            for query in range(0, self.bq, self.tq)
            for key in range(0, self.bk, self.tk)
            if offset is None or self.within(*self.span(offset + query - key, self.tq, self.tk))[1]
        ]

    def index(self, head, start, size, whole):
        """Where a tile of `size` tokens, or of what is left of them, stands in a block."""
        tokens = pl.ds(start, min(size, whole - start))
        return (head, slice(None), tokens) if self.seq_minor else (head, tokens, slice(None))

    def tile(self, ref, head, start, size, whole, block, total, cut=True):
        """One tile of a block; zero where it lies beyond the array (`block` × `whole` on)."""
        x = ref[self.index(head, start, size, whole)]
        if self.widen:
            x = x.astype(jnp.float32)
        last = (pl.cdiv(total, whole) - 1) * whole
        if not cut or last + start + size <= total:
            return x
        return mask(x, 1 if self.seq_minor else 0, total - block * whole - start)

    def scores(self, q, k, query, key, block, offset, ids):
        """log2(e) scale k qᵀ, [keys, queries], hidden where a key is none, out of reach or of
        another segment; and the derivative of the soft cap, None without one."""
        s, slope = dot(k, q, (self.head_dim,) * 2), None
        if self.soft_cap is None:
            s = s * (self.scale * LOG2E)
        else:
            s = jnp.tanh(s * (self.scale / self.soft_cap))
            s, slope = s * (self.soft_cap * LOG2E), 1 - s * s
        if ids:
            mine = ids[0][0, :, pl.ds(query, s.shape[1])]
            s = jnp.where(mine == ids[1][key : key + s.shape[0]], s, HIDDEN)
        keys = key + _iota(s.shape, 0)
        last = (self.key_blocks - 1) * self.bk
        if last + key + s.shape[0] > self.m:
            s = jnp.where(block * self.bk + keys < self.m, s, HIDDEN)
        if offset is None:
            return s, slope
        least, greatest = self.span(offset + query - key, s.shape[1], s.shape[0])
        if self.right is not None and least < -self.right:
            s = jnp.where(keys <= query + offset + self.right + _iota(s.shape, 1), s, HIDDEN)
        if self.left is not None and greatest > self.left:
            s = jnp.where(keys >= query + offset - self.left + _iota(s.shape, 1), s, HIDDEN)
        return s, slope

    @property
    def head_dim(self):
        """The axis of head_dim in a tile."""
        return 0 if self.seq_minor else 1

    def each_block(self, i, j, run):
        """Run a block of queries i and keys j, unless all its keys come too late."""
        if self.right is None:
            run(None)
        elif self.query_blocks == self.key_blocks == 1:
            run(0)
        else:
            pl.when(i == j)(functools.partial(run, 0))
            pl.when(i > j)(functools.partial(run, None))


# --- which blocks meet, and in what order ---------------------------------------------------------


class Meeting(NamedTuple):
    """A block of queries and one of keys, as a program meets them."""

    i: Any  # the block of queries
    j: Any  # the block of keys
    slot: Any  # where dq of these queries is added up
    # Whether these are the queries' first and last keys, and the keys' first and last queries.
    first_keys: Any
    last_keys: Any
    first_queries: Any
    last_queries: Any
    run: Any  # run(body) calls body(offset), unless none of the keys are seen; see Tiling.tasks

    @classmethod
    def here(cls, tiling, list_ref, by_keys=False):
        """The program's own: of its column of `blocks_that_meet`, if there is such a list."""
        if list_ref is not None:
            return cls._on_list(tiling, list_ref)
        # All blocks meet, the one dimension of the grid after the other.
        i, j = (pl.program_id(1 + (axis != by_keys)) for axis in (0, 1))
        last_query, last_key = tiling.query_blocks - 1, tiling.key_blocks - 1
        ends = (lambda: j == 0, lambda: j == last_key, lambda: i == 0, lambda: i == last_query)
        return cls(i, j, i, *ends, functools.partial(tiling.each_block, i, j))

    @classmethod
    def _on_list(cls, tiling, list_ref):
        programs = [(pl.program_id(axis), pl.num_programs(axis)) for axis in (0, 1)]
        column = _column(list_ref, *zip(*programs, strict=True))
        query, key, kind, ends, slot = (list_ref[line, column] for line in range(5))

        def run(body):
            for number, offset in enumerate([None, *tiling.kinds()[1]], 1):
                pl.when(kind == number)(functools.partial(body, offset))

        flags = [lambda bit=bit: (ends & bit) != 0 for bit in (1, 2, 4, 8)]
        return cls(query, key, slot, *flags, run)


def _ends(blocks):
    """Where each of them stands for the first time, and for the last."""
    steps = np.arange(blocks.size)
    firsts = np.unique(blocks, return_index=True)[1]
    lasts = blocks.size - 1 - np.unique(blocks[::-1], return_index=True)[1]
    return np.isin(steps, firsts), np.isin(steps, lasts)


def blocks_that_meet(tiling, by_keys=False):
    """int32 [6, programs]: what the programs of a head do, one after the other.

    The block of queries, that of keys, the kind (see Tiling.kinds), flags of first and last (see
    Meeting), the slot of dq, and the last block of queries of which dq is whole. Every block stands
    in the list, with kind 0 if it meets none.
    """
    kinds, _ = tiling.kinds()
    meet = kinds > 0
    meet[~meet.any(1), 0] = True
    if by_keys:
        meet[0, ~meet.any(0)] = True
    key, query = np.nonzero(meet.T) if by_keys else np.nonzero(meet)[::-1]
    ends = [*_ends(query), *_ends(key)]
    flags = sum(bits << place for place, bits in enumerate(ends))
    slots, idle, slot = {}, [], []
    for block, first, last in zip(query.tolist(), *ends[:2], strict=True):
        if first:
            slots[block] = idle.pop() if idle else max(slot, default=-1) + 1
        slot.append(slots[block])
        if last:
            idle.append(slots[block])
    whole = np.flatnonzero(ends[1])
    after = np.searchsorted(whole, np.arange(query.size), side="right")
    done = query[whole[np.maximum(after - 1, 0)]]
    return np.array([query, key, kinds[query, key], flags, slot, done], np.int32)


def _of_sequences(lists, ids, tiling, by_keys):
    """int32 [6, B · programs]: the list of each sequence, one behind another, by its segments' ids.

    Of two blocks whose ids cannot be equal the kind is 0, and in place of the block that the pass
    goes through stands the last one that met another, or the first that will.
    """

    def bounds(ids, size):
        ids = jnp.pad(ids, ((0, 0), (0, -ids.shape[1] % size)), mode="edge")
        ids = ids.reshape(len(ids), -1, size)
        return ids.min(2), ids.max(2)

    (query, key, kind, *_), passing = lists, 0 if by_keys else 1
    (least, most), (low, high) = bounds(ids[0], tiling.bq), bounds(ids[-1], tiling.bk)
    meet = (most[:, query] >= low[:, key]) & (high[:, key] >= least[:, query]) & (kind > 0)
    step = jnp.where(meet, jnp.arange(len(kind)), meet.argmax(1, keepdims=True))
    needed = lists[passing][jax.lax.cummax(step, axis=1)]
    lists = jnp.repeat(lists[:, None], len(meet), axis=1)
    return lists.at[2].multiply(meet).at[passing].set(needed).reshape(len(lists), -1)


def _column(list_ref, place, grid):
    """Of the list, where a program stands that is at this place of the grid."""
    sequences = list_ref.shape[1] // grid[1]
    return place[1] if sequences == 1 else place[0] // (grid[0] // sequences) * grid[1] + place[1]


def _iota(shape, axis):
    return jax.lax.broadcasted_iota(jnp.int32, shape, axis)


def one_ahead(tasks, start):
    """Each task with start(task), which is called for the task after it before that: the MXU
    works on the next scores while the vector units are busy with the softmax of these."""
    started = start(*tasks[0])
    for task, following in zip(tasks, [*tasks[1:], None], strict=True):
        current = started
        if following:
            started = start(*following)
        yield task, current


def _forward_kernel(list_ref, q_ref, k_ref, v_ref, ids, o_ref, *rest, tiling):
    # q_ref, o_ref [heads, bq, D]; k_ref, v_ref [heads of keys, bk, D]; tokens last if seq_minor
    # ids: None, or those of the segments, [1, 1, bq] and [1, 1, bk]; list_ref: None, or the list
    # lse_ref [heads, 1, bq]; m_ref, l_ref [heads, 1, bq], acc_ref [heads, D, bq] for several blocks
    meeting = Meeting.here(tiling, list_ref)
    i, j, several = meeting.i, meeting.j, tiling.several
    first, last = meeting.first_keys(), meeting.last_keys()
    lse_ref = rest[0] if len(rest) in (1, 4) else None
    m_ref, l_ref, acc_ref = rest[-3:] if several else (None,) * 3

    def write(head, query, m, l, acc):
        if tiling.blind:  # of a query that sees no key, the result and all probabilities are zero
            l = jnp.where(m == HIDDEN, jnp.inf, l)
        o = acc * (1 / l)
        index = tiling.index(head, query, tiling.tq, tiling.bq)
        o_ref[index] = (o if tiling.seq_minor else o.T).astype(o_ref.dtype)
        if lse_ref is not None:
            lse_ref[head, :, index[2 if tiling.seq_minor else 1]] = m + jnp.log2(l)

    def start(head, query, key, offset, segments):
        q = tiling.tile(q_ref, head, query, tiling.tq, tiling.bq, i, tiling.n, cut=False)
        shared = head // tiling.group
        k = tiling.tile(k_ref, shared, key, tiling.tk, tiling.bk, j, tiling.m, cut=False)
        return tiling.scores(q, k, query, key, j, offset, segments)[0]

    def run(offset):
        tasks = tiling.tasks(q_ref.shape[0], offset)
        firsts = {(head, query): key for head, query, key in reversed(tasks)}
        lasts = {(head, query): key for head, query, key in tasks}
        segments = ids and (ids[0], ids[1][0].T)  # once for all tiles
        begin = functools.partial(start, offset=offset, segments=segments)
        for (head, query, key), s in one_ahead(tasks, begin):
            row = (head, slice(None), pl.ds(query, s.shape[1]))
            if key > firsts[head, query]:
                before = m, l, acc  # noqa: F821, of the tile before
            else:
                before = (m_ref[row], l_ref[row], acc_ref[row]) if several else None
            m = jnp.max(s, axis=0, keepdims=True)
            m = jnp.maximum(m, before[0]) if before else m
            p = jnp.exp2(s - m)
            l = jnp.sum(p, axis=0, keepdims=True)
            v = tiling.tile(v_ref, head // tiling.group, key, tiling.tk, tiling.bk, j, tiling.m)
            acc = dot(v, p.astype(v.dtype), (1 - tiling.head_dim, 0))  # [D, queries]
            if before:
                shrink = jnp.exp2(before[0] - m)  # sums that an older maximum has scaled
                l += before[1] * shrink
                acc += before[2] * shrink
            if key == lasts[head, query]:
                if several:
                    m_ref[row], l_ref[row], acc_ref[row] = m, l, acc
                else:
                    write(head, query, m, l, acc)

    if several:

        @pl.when(first)
        def _():
            m_ref[...] = jnp.full_like(m_ref, HIDDEN)
            l_ref[...] = jnp.zeros_like(l_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

    meeting.run(run)
    if several:

        @pl.when(last)
        def _():
            for head in range(q_ref.shape[0]):
                for query in range(0, tiling.bq, tiling.tq):
                    row = (head, slice(None), pl.ds(query, min(tiling.tq, tiling.bq - query)))
                    write(head, query, m_ref[row], l_ref[row], acc_ref[row])


def _backward_kernel(
    list_ref, q_ref, k_ref, v_ref, ids, o_ref, do_ref, lse_ref, dq_ref, dk_ref, dv_ref, *acc, tiling
):
    # as above; dq_sum [heads, slots, D, bq], dk_sum, dv_sum [heads of keys, bk, D], all float32
    meeting, (dq_sum, dk_sum, dv_sum) = Meeting.here(tiling, list_ref, by_keys=True), acc
    i, j, slot, heads = meeting.i, meeting.j, meeting.slot, q_ref.shape[0]

    @pl.when(meeting.first_queries())
    def _():
        dk_sum[...] = jnp.zeros_like(dk_sum)
        dv_sum[...] = jnp.zeros_like(dv_sum)

    @pl.when(meeting.first_keys())
    def _():
        for head in range(heads):
            dq_sum[head, slot] = jnp.zeros(dq_sum.shape[2:], jnp.float32)

    def queries(ref, head, query):
        return tiling.tile(ref, head, query, tiling.tq, tiling.bq, i, tiling.n)

    def keys(ref, head, key):
        return tiling.tile(ref, head // tiling.group, key, tiling.tk, tiling.bk, j, tiling.m)

    def start(head, query, key, offset, segments):
        q, do = (queries(ref, head, query) for ref in (q_ref, do_ref))
        k, v = (keys(ref, head, key) for ref in (k_ref, v_ref))
        scores = tiling.scores(q, k, query, key, j, offset, segments)
        return q, k, do, *scores, dot(v, do, (tiling.head_dim,) * 2)  # [keys, queries]

    def statistics(head, query):
        o, do = (queries(ref, head, query).astype(jnp.float32) for ref in (o_ref, do_ref))
        product = o * do
        delta = jnp.sum(product if tiling.seq_minor else product.T, axis=0, keepdims=True)
        lse = lse_ref[head, :, pl.ds(query, delta.shape[1])]
        last = (tiling.query_blocks - 1) * tiling.bq
        if last + query + delta.shape[1] > tiling.n:
            lse = jnp.where(i * tiling.bq + query + _iota(lse.shape, 1) < tiling.n, lse, 0)
        return lse, delta  # [1, queries]

    def run(offset):
        row = None
        segments = ids and (ids[0], ids[1][0].T)
        begin = functools.partial(start, offset=offset, segments=segments)
        for (head, query, key), started in one_ahead(tiling.tasks(heads, offset), begin):
            q, k, do, s, slope, dp = started
            if row != (head, query):
                row = head, query
                lse, delta = statistics(head, query)
            p = jnp.exp2(s - lse)
            ds = p * (dp - delta)
            ds = (ds if slope is None else ds * slope).astype(q.dtype)
            p = p.astype(q.dtype)
            at = tiling.index(head // tiling.group, key, tiling.tk, tiling.bk)
            if tiling.seq_minor:
                dv_sum[at] += dot(do, p, (1, 1))  # [D, keys]
                dk_sum[at] += dot(q, ds, (1, 1))
            else:
                dv_sum[at] += dot(p, do, (1, 0))  # [keys, D]
                dk_sum[at] += dot(ds, q, (1, 0))
            at = (head, slot, slice(None), pl.ds(query, s.shape[1]))
            dq_sum[at] += dot(k, ds, (1 - tiling.head_dim, 0))  # [D, queries]

    meeting.run(run)

    @pl.when(meeting.last_queries())
    def _():
        dk_ref[...] = (tiling.scale * dk_sum[...]).astype(dk_ref.dtype)
        dv_ref[...] = dv_sum[...].astype(dv_ref.dtype)

    @pl.when(meeting.last_keys())
    def _():
        for head in range(heads):
            dq = tiling.scale * dq_sum[head, slot]
            dq_ref[head] = (dq if tiling.seq_minor else dq.T).astype(dq_ref.dtype)


def make_tiling(q, k, ids, spec, block):
    """How q [heads, n, D] and k [heads, m, D] are worked through in these blocks."""
    n, head_dim = q.shape[1:]
    m = k.shape[1]
    return Tiling(
        n,
        m,
        min(block.tokens, n),
        min(block.tokens, m),
        block.tq,
        block.tk,
        *spec.reach,
        spec.mask,
        spec.scale,
        spec.soft_cap,
        q.shape[0] // k.shape[0],
        # XLA itself lays arrays out so, rather than pad head_dim to 128 lanes: no copy is needed.
        head_dim % LANES != 0,
        # XLA's CPU backend lacks bfloat16 dots in some layouts; float32 holds them exactly.
        spec.interpret is True and q.dtype == jnp.bfloat16,
        0 if ids is None else len(ids),
    )


def block_spec(tiling, heads, tokens, head_dim, place, programs=1):
    """The block of `tokens` × head_dim whose number place(…) is, of a place in the grid; so many
    programs of the grid's first dimension share its heads."""
    shape = (heads, head_dim, tokens) if tiling.seq_minor else (heads, tokens, head_dim)

    def index(h, *ids):
        at, h = place(h, *ids), h if programs == 1 else h // programs
        return (h, 0, at) if tiling.seq_minor else (h, at, 0)

    return pl.BlockSpec(shape, index)


def _grid(tiling, heads, ids, *, by_keys=False):
    """The list that is prefetched, or None, the grid, and how many slots dq needs; heads: the size
    of the grid's first dimension."""
    if tiling.listed:
        lists = blocks_that_meet(tiling, by_keys)
        grid, slots, lists = (heads, lists.shape[1]), lists[4].max() + 1, jnp.asarray(lists)
        return lists if ids is None else _of_sequences(lists, ids, tiling, by_keys), grid, slots
    blocks = tiling.query_blocks, tiling.key_blocks
    return None, (heads, *(blocks[::-1] if by_keys else blocks)), tiling.query_blocks


def _order(grid, queries):
    """How the grid's dimensions after the first are run: a list in its order."""
    return ("arbitrary",) if len(grid) == 2 else (queries, "arbitrary")


def _keys_spec(tiling, heads, head_dim, place, *, apart=False):
    """The block of keys of so many heads of queries; apart: of arrays with one for each program."""
    programs = 1 if apart else max(1, tiling.group // heads)
    return block_spec(tiling, max(1, heads // tiling.group), tiling.bk, head_dim, place, programs)


def _place(grid, line, otherwise):
    """What block_spec asks for: a number of that line of the list where the grid is a list."""
    if len(grid) == 2:
        return lambda *at: at[-1][line, _column(at[-1], at, grid)]
    return lambda _, first, second, list_ref: otherwise(first, second)


def _operands(tiling, ids, grid, heads, head_dim, place, place_of_keys):
    """The blocks of so many heads of queries, of their keys, of the segments' ids and of a row of
    numbers for the queries; and the ids, int32 [B, 1, n] and [B, 1, m], None for none."""
    queries = block_spec(tiling, heads, tiling.bq, head_dim, place)
    keys = _keys_spec(tiling, heads, head_dim, place_of_keys)
    row = pl.BlockSpec((heads, 1, tiling.bq), lambda h, *at: (h, 0, place(h, *at)))
    if ids is None:
        return queries, keys, None, row, None

    def spec(tokens, place):
        return pl.BlockSpec((1, 1, tokens), lambda h, *at: (h // several, 0, place(h, *at)))

    several = grid[0] // ids[0].shape[0]  # programs of a sequence
    of_ids = spec(tiling.bq, place), spec(tiling.bk, place_of_keys)
    return queries, keys, of_ids, row, (ids[0][:, None], ids[-1][:, None])


def compiler_params(plan, *semantics):
    """More VMEM than a kernel is granted unasked, for whole sequences of several heads."""
    limit = plan.vmem_limit_bytes
    return pltpu.CompilerParams(dimension_semantics=semantics, vmem_limit_bytes=limit)


def cost(scores, head_dim, products, *arrays):
    """What XLA is told of a call: products of the size of the scores, and each array once."""
    return pl.CostEstimate(
        flops=2 * products * scores * head_dim,
        transcendentals=scores,
        bytes_accessed=sum(a.size * a.dtype.itemsize for a in arrays),
    )


@functools.partial(jax.jit, static_argnums=(4, 5))
def _forward_call(q, k, v, ids, spec, residuals):
    """[heads, n, D], [heads of keys, m, D] twice → [heads, n, D], and [heads, 1, n] of log2."""
    block = spec.plan.block
    tiling = make_tiling(q, k, ids, spec, block)
    heads, n, head_dim = q.shape
    transpose = tiling.transpose
    listed, grid, _ = _grid(tiling, heads // block.heads, ids)

    def seen(i, j):  # a block that is not looked at is not fetched either
        return jnp.minimum(i, j) if spec.causal else j

    places = _place(grid, 0, lambda i, j: i), _place(grid, 1, seen)
    queries, keys, of_ids, row, ids = _operands(tiling, ids, grid, block.heads, head_dim, *places)
    shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    q, k, v = map(transpose, (q, k, v))
    o, *lse = pl.pallas_call(
        functools.partial(_forward_kernel, tiling=tiling),
        out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)] + [shape((heads, 1, n))] * residuals,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=grid,
            in_specs=[queries, keys, keys, of_ids],
            out_specs=[queries] + [row] * residuals,
            scratch_shapes=tiling.state(block.heads, head_dim),
        ),
        compiler_params=compiler_params(spec.plan, "parallel", *_order(grid, "parallel")),
        cost_estimate=cost(heads * tiling.pairs, head_dim, 2, q, k, v, q),
        interpret=spec.interpret,
        name="flash_attention_forward",
    )(listed, q, k, v, ids)
    return transpose(o), *lse


@functools.partial(jax.jit, static_argnums=7)
def _backward_call(q, k, v, ids, o, lse, do, spec):
    """dq, dk, dv. One pass: dk and dv add up along the grid's last dimension, dq along both."""
    own = _plan(q, k, ids, spec.reach, spec.block, backward=True, chip=spec.plan.chip)
    block = own.block
    tiling = make_tiling(q, k, ids, spec, block)
    heads, _, head_dim = q.shape
    transpose = tiling.transpose
    last = tiling.key_blocks - 1
    listed, grid, slots = _grid(tiling, heads // block.heads, ids, by_keys=True)

    def seen(j, i):
        return jnp.minimum(jnp.maximum(i, j), tiling.query_blocks - 1) if spec.causal else i

    places = _place(grid, 0, seen), _place(grid, 1, lambda j, i: j)
    queries, keys, of_ids, row, ids = _operands(tiling, ids, grid, block.heads, head_dim, *places)
    # dq is complete only in the last round; until then its first block waits in VMEM.
    done = _place(grid, 5, lambda j, i: jnp.where(j == last, i, 0))
    dq_spec = block_spec(tiling, block.heads, tiling.bq, head_dim, done)
    # Programs that share their keys' heads have a sum each, which XLA adds up.
    shared = max(1, tiling.group // block.heads)
    sums = _keys_spec(tiling, block.heads, head_dim, places[1], apart=True)
    sum_vmem = pltpu.VMEM(keys.block_shape, jnp.float32)
    q, k, v, o, do = map(transpose, (q, k, v, o, do))
    dq_shape = jax.ShapeDtypeStruct(q.shape, q.dtype)
    dk_shape = jax.ShapeDtypeStruct(
        (shared * k.shape[0], *k.shape[1:]), jnp.float32 if shared > 1 else k.dtype
    )
    dq, *dk_dv = pl.pallas_call(
        functools.partial(_backward_kernel, tiling=tiling),
        out_shape=[dq_shape, dk_shape, dk_shape],
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=grid,
            in_specs=[queries, keys, keys, of_ids, queries, queries, row],
            out_specs=[dq_spec, sums, sums],
            scratch_shapes=[
                pltpu.VMEM((block.heads, slots, head_dim, tiling.bq), jnp.float32),
                sum_vmem,
                sum_vmem,
            ],
        ),
        compiler_params=compiler_params(own, "parallel", *_order(grid, "arbitrary")),
        cost_estimate=cost(heads * tiling.pairs, head_dim, 5, q, k, v, o, do, q, k, v),
        interpret=spec.interpret,
        name="flash_attention_backward",
    )(listed, q, k, v, ids, o, do, lse)
    if shared > 1:
        dk_dv = [d.reshape(-1, shared, *d.shape[1:]).sum(1).astype(k.dtype) for d in dk_dv]
    return tuple(map(transpose, (dq, *dk_dv)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _differentiable(q, k, v, ids, spec):
    return _forward_call(q, k, v, ids, spec, False)[0]


def _forward(q, k, v, ids, spec):
    o, lse = _forward_call(q, k, v, ids, spec, True)
    return o, (q, k, v, ids, o, lse)


_differentiable.defvjp(_forward, lambda spec, saved, do: (*_backward_call(*saved, do, spec), None))


def _plan(q, k, ids, reach, block, **more):
    """The plan of a pass, of q [heads, n, D] and k [heads of keys, m, D]."""
    (heads, n, head_dim), m = q.shape, k.shape[1]
    more |= {"group": heads // k.shape[0], "window": None if reach[0] is None else reach}
    if ids is not None:  # then a program is of one sequence
        heads //= ids[0].shape[0]
    return plan(n, m, heads, head_dim, q.dtype, block=block, causal=reach[1] == 0, **more)


def _together(*arrays):
    """[B, H, …] → [B·H, …]."""
    return [jnp.asarray(x).reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for x in arrays]


def _spec(q, k, interpret, block=None, ids=None, **options):
    """The spec for q and k [B·H, …]."""
    on, reach = interprets(interpret, "tpu"), AttentionSpec(**options).reach
    return FlashSpec(**options, interpret=on, plan=_plan(q, k, ids, reach, block), block=block)


def attention(q, k, v, *, block=None, interpret=None, segment_ids=None, **options):
    """[B, H, N, D], [B, Hkv, M, D] twice → [B, H, N, D], with the options of AttentionSpec, and
    int32 [B, N] (and [B, M] for others of the keys) of segment_ids."""
    together, ids = _together(q, k, v), jax.tree.map(jnp.asarray, segment_ids)
    spec = _spec(*together[:2], interpret, block, ids, **options)
    return _differentiable(*together, ids, spec).reshape(q.shape)


def block_sparse_attention(q, k, v, mask, *, scale, plan, interpret=None):
    """The same of the blocks that a mask keeps, bool [query blocks, key blocks] of the plan's."""
    on, mask = interprets(interpret, "tpu"), tuple(map(tuple, mask.tolist()))
    more = {"interpret": on, "plan": plan, "block": plan.block, "mask": mask}
    spec = FlashSpec(causal=False, scale=scale, **more)
    return _differentiable(*_together(q, k, v), None, spec).reshape(q.shape)


def forward(q, k, v, *, interpret=None, **options):
    """→ o [B, H, N, D], and what `backward` needs of the scores: float32 [B, H, N].

    The two halves of `attention`, for a framework that differentiates by itself.
    """
    together = _together(q, k, v)
    o, lse = _forward_call(*together, None, _spec(*together[:2], interpret, **options), True)
    return o.reshape(q.shape), lse.reshape(q.shape[:3])


def backward(q, k, v, o, lse, do, *, interpret=None, **options):
    """→ dq, dk, dv in the shapes of q, k, v; o and lse as `forward` gave them, do like o."""
    q3, k3, v3, *rest = _together(q, k, v, o, lse[:, :, None], do)
    gradients = _backward_call(q3, k3, v3, None, *rest, _spec(q3, k3, interpret, **options))
    return tuple(g.reshape(x.shape) for g, x in zip(gradients, (q, k, v), strict=True))
