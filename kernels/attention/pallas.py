"""Flash attention on a TPU, forward and backward, on transposed scores.

The scores are kept as sᵀ [keys, queries]: the softmax then reduces over sublanes, by plain vector
arithmetic, and its statistics are rows [1, queries]. Between forward and backward one float32 is
saved for each query, the log-sum-exp; the backward pass makes the probabilities again.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.attention.arguments import AttentionSpec
from kernels.attention.blocks import LANES, AttentionBlocks, plan
from kernels.machines.pallas import interprets
from kernels.machines.tpu.plan import TpuPlan

LOG2E = math.log2(math.e)  # exp(s) is exp2(s log2 e), and exp2 is what the hardware has
HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)  # a score that no softmax sees


@dataclasses.dataclass(frozen=True)
class FlashSpec(AttentionSpec):
    """The same of our kernels for a TPU."""

    plan: TpuPlan[AttentionBlocks]  # of the forward pass
    # What was asked for, of which the backward pass makes its own plan; None lets it choose.
    block: AttentionBlocks | None = None


class Tiling(NamedTuple):
    """What a kernel has to know beside its blocks."""

    # Queries and keys: in all, of a block, and of a tile of scores.
    n: int
    m: int
    bq: int
    bk: int
    tq: int
    tk: int
    causal: bool  # whether a query sees no key after its own place
    scale: float  # of the scores
    # Whether tokens lie in lanes ([D, tokens]) or, as in the arguments, head_dim does.
    seq_minor: bool
    widen: bool  # multiply bfloat16 as float32

    @property
    def query_blocks(self):
        return pl.cdiv(self.n, self.bq)

    @property
    def key_blocks(self):
        return pl.cdiv(self.m, self.bk)

    @property
    def pairs(self):
        """Queries and keys that meet, of a head, by and large."""
        return self.n * self.m // (1 + self.causal)

    def transpose(self, x):
        """[heads, tokens, D] as the kernel has it, or back."""
        return x.swapaxes(1, 2) if self.seq_minor else x

    def state(self, heads, head_dim):
        """Scratch for m, l and acc of the queries, between one block of keys and the next."""
        if self.key_blocks == 1:
            return []
        rows = (1, 1, head_dim)
        return [pltpu.VMEM((heads, r, self.bq), jnp.float32) for r in rows]

    def tasks(self, heads, diagonal):
        """(head, first query, first key) of each tile with a key that a query sees."""
        return [
            (head, query, key)
            for head in range(heads)
            for query in range(0, self.bq, self.tq)
            for key in range(0, self.bk, self.tk)
            if not diagonal or key < query + self.tq
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
        position = block * whole + start + _iota(x.shape, 1 if self.seq_minor else 0)
        # Selected in 32 bits: a v5e has no narrower vector arithmetic.
        return jnp.where(position < total, x.astype(jnp.float32), 0).astype(x.dtype)

    def scores(self, q, k, query, key, block, diagonal):
        """log2(e) scale k qᵀ, [keys, queries], hidden where a key is none or comes too late."""
        s = dot(k, q, self.head_dim, self.head_dim) * (self.scale * LOG2E)
        keys = key + _iota(s.shape, 0)
        last = (self.key_blocks - 1) * self.bk
        if last + key + s.shape[0] > self.m:
            s = jnp.where(block * self.bk + keys < self.m, s, HIDDEN)
        if diagonal and key + s.shape[0] > query + 1:
            s = jnp.where(keys <= query + _iota(s.shape, 1), s, HIDDEN)
        return s

    @property
    def head_dim(self):
        """The axis of head_dim in a tile."""
        return 0 if self.seq_minor else 1

    def each_block(self, i, j, run):
        """Run a block of queries i and keys j, unless all its keys come too late."""
        if not self.causal:
            run(False)
        elif self.query_blocks == self.key_blocks == 1:
            run(True)
        else:
            pl.when(i == j)(functools.partial(run, True))
            pl.when(i > j)(functools.partial(run, False))


def _iota(shape, axis):
    return jax.lax.broadcasted_iota(jnp.int32, shape, axis)


def dot(x, y, x_axis, y_axis):
    if 1 in x.shape + y.shape:  # no product of matrices: Mosaic takes it in float32 alone
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    return jax.lax.dot_general(
        x,
        y,
        (((x_axis,), (y_axis,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )


def _shrink(before, now):
    """What brings sums that were scaled by an older maximum to the scale of the new one."""
    return jnp.exp2(before - now)


def _ahead(tasks, start):
    """Each task with start(task), which is called for the task after it before that: the MXU
    works on the next scores while the vector units are busy with the softmax of these."""
    started = start(*tasks[0])
    for task, following in zip(tasks, [*tasks[1:], None], strict=True):
        current = started
        if following:
            started = start(*following)
        yield task, current


def _forward_kernel(q_ref, k_ref, v_ref, o_ref, *rest, tiling):
    i, j = pl.program_id(1), pl.program_id(2)
    last = tiling.key_blocks - 1
    forward_block(i, j, j == 0, j == last, q_ref, k_ref, v_ref, o_ref, *rest, tiling=tiling)


def forward_block(i, j, first, last, q_ref, k_ref, v_ref, o_ref, *rest, tiling):
    """Queries i meet keys j; first and last: whether these are their first and last keys."""
    # q_ref, o_ref [heads, bq, D]; k_ref, v_ref [heads, bk, D]; tokens last where they lie seq_minor
    # lse_ref [heads, 1, bq]; m_ref, l_ref [heads, 1, bq], acc_ref [heads, D, bq] for several blocks
    several = tiling.key_blocks > 1
    lse_ref = rest[0] if len(rest) in (1, 4) else None
    m_ref, l_ref, acc_ref = rest[-3:] if several else (None,) * 3

    def write(head, query, m, l, acc):
        o = acc * (1 / l)
        index = tiling.index(head, query, tiling.tq, tiling.bq)
        o_ref[index] = (o if tiling.seq_minor else o.T).astype(o_ref.dtype)
        if lse_ref is not None:
            lse_ref[head, :, index[2 if tiling.seq_minor else 1]] = m + jnp.log2(l)

    def start(head, query, key, diagonal):
        q = tiling.tile(q_ref, head, query, tiling.tq, tiling.bq, i, tiling.n, cut=False)
        k = tiling.tile(k_ref, head, key, tiling.tk, tiling.bk, j, tiling.m, cut=False)
        return tiling.scores(q, k, query, key, j, diagonal)

    def run(diagonal):
        tasks = tiling.tasks(q_ref.shape[0], diagonal)
        lasts = {(head, query): key for head, query, key in tasks}
        for (head, query, key), s in _ahead(tasks, functools.partial(start, diagonal=diagonal)):
            row = (head, slice(None), pl.ds(query, s.shape[1]))
            if key:
                before = m, l, acc  # noqa: F821, of the tile before
            else:
                before = (m_ref[row], l_ref[row], acc_ref[row]) if several else None
            m = jnp.max(s, axis=0, keepdims=True)
            m = jnp.maximum(m, before[0]) if before else m
            p = jnp.exp2(s - m)
            l = jnp.sum(p, axis=0, keepdims=True)
            v = tiling.tile(v_ref, head, key, tiling.tk, tiling.bk, j, tiling.m)
            acc = dot(v, p.astype(v.dtype), 1 - tiling.head_dim, 0)  # [D, queries]
            if before:
                shrink = _shrink(before[0], m)
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

    tiling.each_block(i, j, run)
    if several:

        @pl.when(last)
        def _():
            for head in range(q_ref.shape[0]):
                for query in range(0, tiling.bq, tiling.tq):
                    row = (head, slice(None), pl.ds(query, min(tiling.tq, tiling.bq - query)))
                    write(head, query, m_ref[row], l_ref[row], acc_ref[row])


def _backward_kernel(
    q_ref, k_ref, v_ref, o_ref, do_ref, lse_ref, dq_ref, dk_ref, dv_ref, *sums, tiling
):
    # as above; dq_sum [heads, query blocks, D, bq], dk_sum, dv_sum [heads, bk, D], all float32
    j, i = pl.program_id(1), pl.program_id(2)
    dq_sum, dk_sum, dv_sum = sums
    heads = q_ref.shape[0]

    @pl.when(i == 0)
    def _():
        dk_sum[...] = jnp.zeros_like(dk_sum)
        dv_sum[...] = jnp.zeros_like(dv_sum)

    @pl.when(j == 0)
    def _():
        for head in range(heads):
            dq_sum[head, i] = jnp.zeros(dq_sum.shape[2:], jnp.float32)

    def queries(ref, head, query):
        return tiling.tile(ref, head, query, tiling.tq, tiling.bq, i, tiling.n)

    def keys(ref, head, key):
        return tiling.tile(ref, head, key, tiling.tk, tiling.bk, j, tiling.m)

    def start(head, query, key, diagonal):
        q, do = (queries(ref, head, query) for ref in (q_ref, do_ref))
        k, v = (keys(ref, head, key) for ref in (k_ref, v_ref))
        s = tiling.scores(q, k, query, key, j, diagonal)
        return q, k, do, s, dot(v, do, tiling.head_dim, tiling.head_dim)  # [keys, queries]

    def statistics(head, query):
        o, do = (queries(ref, head, query).astype(jnp.float32) for ref in (o_ref, do_ref))
        product = o * do
        delta = jnp.sum(product if tiling.seq_minor else product.T, axis=0, keepdims=True)
        lse = lse_ref[head, :, pl.ds(query, delta.shape[1])]
        last = (tiling.query_blocks - 1) * tiling.bq
        if last + query + delta.shape[1] > tiling.n:
            lse = jnp.where(i * tiling.bq + query + _iota(lse.shape, 1) < tiling.n, lse, 0)
        return lse, delta  # [1, queries]

    def run(diagonal):
        tasks = tiling.tasks(heads, diagonal)
        for (head, query, key), started in _ahead(
            tasks, functools.partial(start, diagonal=diagonal)
        ):
            q, k, do, s, dp = started
            if key == 0:
                lse, delta = statistics(head, query)
            p = jnp.exp2(s - lse)
            ds = (p * (dp - delta)).astype(q.dtype)
            p = p.astype(q.dtype)
            at = tiling.index(head, key, tiling.tk, tiling.bk)
            if tiling.seq_minor:
                dv_sum[at] += dot(do, p, 1, 1)  # [D, keys]
                dk_sum[at] += dot(q, ds, 1, 1)
            else:
                dv_sum[at] += dot(p, do, 1, 0)  # [keys, D]
                dk_sum[at] += dot(ds, q, 1, 0)
            at = (head, i, slice(None), pl.ds(query, s.shape[1]))
            dq_sum[at] += dot(k, ds, 1 - tiling.head_dim, 0)  # [D, queries]

    tiling.each_block(i, j, run)

    @pl.when(i == tiling.query_blocks - 1)
    def _():
        dk_ref[...] = (tiling.scale * dk_sum[...]).astype(dk_ref.dtype)
        dv_ref[...] = dv_sum[...].astype(dv_ref.dtype)

    @pl.when(j == tiling.key_blocks - 1)
    def _():
        for head in range(heads):
            dq = tiling.scale * dq_sum[head, i]
            dq_ref[head] = (dq if tiling.seq_minor else dq.T).astype(dq_ref.dtype)


def make_tiling(q, k, spec, block):
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
        spec.causal,
        spec.scale,
        # XLA itself lays arrays out so, rather than pad head_dim to 128 lanes: no copy is needed.
        head_dim % LANES != 0,
        # XLA's CPU backend lacks bfloat16 dots in some layouts; float32 holds them exactly.
        spec.interpret is True and q.dtype == jnp.bfloat16,
    )


def block_spec(tiling, heads, tokens, head_dim, block):
    """The block of `tokens` × head_dim whose number block(i, j) is, i and j the grid's last ids."""
    shape = (heads, head_dim, tokens) if tiling.seq_minor else (heads, tokens, head_dim)

    def index(h, i, j):
        place = block(i, j)
        return (h, 0, place) if tiling.seq_minor else (h, place, 0)

    return pl.BlockSpec(shape, index)


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


@functools.partial(jax.jit, static_argnums=(3, 4))
def _forward_call(q, k, v, spec, residuals):
    """[heads, n, D], [heads, m, D], [heads, m, D] → [heads, n, D], and [heads, 1, n] of log2."""
    block = spec.plan.block
    tiling = make_tiling(q, k, spec, block)
    heads, n, head_dim = q.shape
    transpose = tiling.transpose

    def seen(i, j):  # a block that is not looked at is not fetched either
        return jnp.minimum(i, j) if spec.causal else j

    queries = block_spec(tiling, block.heads, tiling.bq, head_dim, lambda i, j: i)
    keys = block_spec(tiling, block.heads, tiling.bk, head_dim, seen)
    row = pl.BlockSpec((block.heads, 1, tiling.bq), lambda h, i, j: (h, 0, i))
    shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    q, k, v = map(transpose, (q, k, v))
    o, *lse = pl.pallas_call(
        functools.partial(_forward_kernel, tiling=tiling),
        out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)] + [shape((heads, 1, n))] * residuals,
        grid=(heads // block.heads, tiling.query_blocks, tiling.key_blocks),
        in_specs=[queries, keys, keys],
        out_specs=[queries] + [row] * residuals,
        scratch_shapes=tiling.state(block.heads, head_dim),
        compiler_params=compiler_params(spec.plan, "parallel", "parallel", "arbitrary"),
        cost_estimate=cost(heads * tiling.pairs, head_dim, 2, q, k, v, q),
        interpret=spec.interpret,
        name="flash_attention_forward",
    )(q, k, v)
    return transpose(o), *lse


@functools.partial(jax.jit, static_argnums=6)
def _backward_call(q, k, v, o, lse, do, spec):
    """dq, dk, dv. One pass: dk and dv add up along the grid's last dimension, dq along both."""
    own = _plan(q, k, spec.causal, spec.block, backward=True, chip=spec.plan.chip)
    block = own.block
    tiling = make_tiling(q, k, spec, block)
    heads, _, head_dim = q.shape
    transpose = tiling.transpose
    last = tiling.key_blocks - 1

    def seen(j, i):
        return jnp.minimum(jnp.maximum(i, j), tiling.query_blocks - 1) if spec.causal else i

    queries = block_spec(tiling, block.heads, tiling.bq, head_dim, seen)
    keys = block_spec(tiling, block.heads, tiling.bk, head_dim, lambda j, i: j)
    # dq is complete only in the last round; until then its first block waits in VMEM.
    dq_spec = block_spec(
        tiling, block.heads, tiling.bq, head_dim, lambda j, i: jnp.where(j == last, i, 0)
    )
    row = pl.BlockSpec((block.heads, 1, tiling.bq), lambda h, j, i: (h, 0, seen(j, i)))
    sums = pltpu.VMEM(keys.block_shape, jnp.float32)
    q, k, v, o, do = map(transpose, (q, k, v, o, do))
    gradients = pl.pallas_call(
        functools.partial(_backward_kernel, tiling=tiling),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v)],
        grid=(heads // block.heads, tiling.key_blocks, tiling.query_blocks),
        in_specs=[queries, keys, keys, queries, queries, row],
        out_specs=[dq_spec, keys, keys],
        scratch_shapes=[
            pltpu.VMEM((block.heads, tiling.query_blocks, head_dim, tiling.bq), jnp.float32),
            sums,
            sums,
        ],
        compiler_params=compiler_params(own, "parallel", "arbitrary", "arbitrary"),
        cost_estimate=cost(heads * tiling.pairs, head_dim, 5, q, k, v, o, do, q, k, v),
        interpret=spec.interpret,
        name="flash_attention_backward",
    )(q, k, v, o, do, lse)
    return tuple(map(transpose, gradients))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _differentiable(q, k, v, spec):
    return _forward_call(q, k, v, spec, False)[0]


def _forward(q, k, v, spec):
    o, lse = _forward_call(q, k, v, spec, True)
    return o, (q, k, v, o, lse)


_differentiable.defvjp(_forward, lambda spec, saved, do: _backward_call(*saved, do, spec))


def _plan(q, k, causal, block, **more):
    """The plan of a pass, of q [heads, n, D] and k [heads, m, D]."""
    (heads, n, head_dim), m = q.shape, k.shape[1]
    return plan(n, m, heads, head_dim, q.dtype, block=block, causal=causal, **more)


def _together(*arrays):
    """[B, H, …] → [B·H, …]."""
    return [jnp.asarray(x).reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for x in arrays]


def _spec(q, k, causal, scale, interpret, block=None):
    """The spec for q and k [B·H, …]."""
    on, own = interprets(interpret, "tpu"), _plan(q, k, causal, block)
    return FlashSpec(causal, scale, on, own, block)


def attention(q, k, v, *, causal, scale, block=None, interpret=None):
    """[B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D]."""
    together = _together(q, k, v)
    spec = _spec(*together[:2], causal, scale, interpret, block)
    return _differentiable(*together, spec).reshape(q.shape)


def forward(q, k, v, *, causal, scale, interpret=None):
    """→ o [B, H, N, D], and what `backward` needs of the scores: float32 [B, H, N].

    The two halves of `attention`, for a framework that differentiates by itself.
    """
    together = _together(q, k, v)
    o, lse = _forward_call(*together, _spec(*together[:2], causal, scale, interpret), True)
    return o.reshape(q.shape), lse.reshape(q.shape[:3])


def backward(q, k, v, o, lse, do, *, causal, scale, interpret=None):
    """→ dq, dk, dv in the shapes of q, k, v; o and lse as `forward` gave them, do like o."""
    together = _together(q, k, v, o, lse[:, :, None], do)
    gradients = _backward_call(*together, _spec(*together[:2], causal, scale, interpret))
    return tuple(g.reshape(x.shape) for g, x in zip(gradients, (q, k, v), strict=True))
