"""Attention on a TPU, straight from the qkv Linear's output to the projection's input.

A program holds whole sequences, so softmax needs no second pass. Everything stands on its side:
scores are [keys, queries], so softmax reduces over sublanes, which is cheap, and its sums are rows;
results are [head_dim, tokens], so a head of 64 streams 64 rows through the MXU and not 128, half
of them wasted. Only small arrays are transposed, for two heads of 64 at once.
"""

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.pallas import interprets

LANES = 128
BLOCK = 256  # queries at a time, where there are many
VMEM_LIMIT = 100 << 20  # bytes that the kernels ask for, of the 128 MiB of a v5e or v6e
Q, K, V = range(3)  # the order in a row of qkv

# What is contracted: x y, and x yᵀ.
_PLAIN = (((1,), (0,)), ((), ()))
_RHS_TRANSPOSED = (((1,), (1,)), ((), ()))


@dataclass(frozen=True)
class _Plan:
    """How the work is cut. images: in one program. group: heads that fill whole lane tiles.

    block: queries at a time; all of them where that is few.
    """

    images: int
    tokens: int
    heads: int
    head_dim: int
    group: int
    block: int
    widen: bool

    @classmethod
    def of(cls, qkv, num_heads, interpret):
        batch, tokens, columns = qkv.shape
        head_dim = columns // (3 * num_heads)
        group = LANES // head_dim if LANES % head_dim == 0 else 1
        if num_heads % group:
            group = 1
        images = max(n for n in range(1, max(1, 2 * BLOCK // tokens) + 1) if batch % n == 0)
        # XLA's CPU backend lacks bfloat16 dots in some layouts; float32 holds them exactly.
        widen = interpret is True and qkv.dtype == jnp.bfloat16
        block = tokens if tokens <= 2 * BLOCK else BLOCK
        return cls(images, tokens, num_heads, head_dim, group, block, widen)

    def lanes(self, part, head, count=1):
        """Where `count` heads of q, k or v stand in a row of qkv."""
        first = (part * self.heads + head) * self.head_dim
        return slice(first, first + count * self.head_dim)

    def rows(self, head):
        """Where a head stands in a group that has been transposed."""
        first = head % self.group * self.head_dim
        return slice(first, first + self.head_dim)

    def vmem_bytes(self, features, dtype):
        """VMEM of a backward program, in bytes.

        Two buffers each for a row of qkv, do and dqkv; float32 sums of dk and dv where queries come
        in blocks; about eight tiles of scores a head.
        """
        item = jnp.dtype(dtype).itemsize
        row = 2 * item * self.images * 7 * features
        row += 8 * features if self.block < self.tokens else 0
        return self.tokens * (row + 8 * 4 * self.group * self.block)

    @property
    def units(self):
        """(image, first head) of each group of heads."""
        return [(i, h) for i in range(self.images) for h in range(0, self.heads, self.group)]

    def dot(self, x, y, contracted=_PLAIN):
        # A product of vectors, not of matrices, Mosaic takes in float32 alone.
        if self.widen or 1 in x.shape + y.shape:
            x, y = x.astype(jnp.float32), y.astype(jnp.float32)
        return jax.lax.dot_general(
            x,
            y,
            contracted,
            precision=jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
            preferred_element_type=jnp.float32,
        )

    def for_each_block(self, body):
        """body(start, size) for each block of queries; the last one may be shorter."""
        blocks, rest = divmod(self.tokens, self.block)
        if blocks == 1:
            body(0, self.block)
        else:

            @pl.loop(0, blocks)
            def _(i):
                body(pl.multiple_of(i * self.block, self.block), self.block)

        if rest:
            body(self.tokens - rest, rest)


def _one_ahead(units, start, finish):
    """finish(unit, start(unit)) for each unit, the next one's start before this one's finish.

    The compiler keeps much of the order it is given: so the MXU multiplies for the next heads
    while the vector unit works on these.
    """
    waiting = start(units[0])
    for unit, following in zip(units, [*units[1:], None], strict=True):
        ready, waiting = waiting, following and start(following)
        finish(unit, ready)


def _forward_kernel(qkv_ref, o_ref, *lse_ref, plan, scale):
    # qkv_ref [images, N, 3·H·D], o_ref [images, N, H·D], lse_ref [images, H, N]
    def block(start, size):
        queries = pl.ds(start, size)

        def scores(unit):
            image, first = unit
            return [
                plan.dot(
                    qkv_ref[image, :, plan.lanes(K, head)],
                    qkv_ref[image, queries, plan.lanes(Q, head)],
                    _RHS_TRANSPOSED,
                )
                for head in range(first, first + plan.group)
            ]

        def output(unit, scores):
            image, first = unit
            v = qkv_ref[image, :, plan.lanes(V, first, plan.group)].T
            o = []
            for head, s in enumerate(scores, first):
                s = s * (scale * math.log2(math.e))  # 2ˣ is what the hardware has
                most = s.max(0, keepdims=True)
                p = jnp.exp2(s - most)
                total = p.sum(0, keepdims=True)
                o.append(plan.dot(v[plan.rows(head)], p.astype(v.dtype)) / total)
                if lse_ref:
                    lse_ref[0][image, head : head + 1, queries] = most + jnp.log2(total)
            o_ref[image, queries, plan.lanes(0, first, plan.group)] = _upright(o, o_ref.dtype)

        _one_ahead(plan.units, scores, output)

    plan.for_each_block(block)


def _backward_kernel(qkv_ref, lse_ref, do_ref, dqkv_ref, *sums_ref, plan, scale):
    # sums_ref [2, H·D, N]: dkᵀ and dvᵀ, where the queries come in several blocks
    def block(start, size):
        queries = pl.ds(start, size)

        def products(unit):
            image, first = unit
            found = []
            for head in range(first, first + plan.group):
                q = qkv_ref[image, queries, plan.lanes(Q, head)]
                k, v = (qkv_ref[image, :, plan.lanes(part, head)] for part in (K, V))
                do = do_ref[image, queries, plan.lanes(0, head)]
                found.append((plan.dot(k, q, _RHS_TRANSPOSED), plan.dot(v, do, _RHS_TRANSPOSED)))
            return found

        def gradients(unit, products):
            image, first = unit
            factors = []
            for head, (s, dp) in enumerate(products, first):
                lse = lse_ref[image, head : head + 1, queries]
                p = jnp.exp2(s * (scale * math.log2(math.e)) - lse)
                weighted = p * dp
                ds = weighted - p * weighted.sum(0, keepdims=True)
                factors.append((p.astype(qkv_ref.dtype), ds.astype(qkv_ref.dtype)))
            dq, dk, dv = [], [], []
            for head, (p, ds) in enumerate(factors, first):
                rows = plan.rows(head)
                q = qkv_ref[image, queries, plan.lanes(Q, first, plan.group)].T[rows]
                k = qkv_ref[image, :, plan.lanes(K, first, plan.group)].T[rows]
                do = do_ref[image, queries, plan.lanes(0, first, plan.group)].T[rows]
                dq.append(plan.dot(k, ds) * scale)
                dk.append(plan.dot(q, ds, _RHS_TRANSPOSED) * scale)
                dv.append(plan.dot(do, p, _RHS_TRANSPOSED))
            dqkv_ref[image, queries, plan.lanes(Q, first, plan.group)] = _upright(
                dq, dqkv_ref.dtype
            )
            for part, gradient in ((K, dk), (V, dv)):
                if sums_ref:
                    rows = plan.lanes(0, first, plan.group)
                    sums_ref[0][part - 1, rows] += jnp.concatenate(gradient)
                else:
                    dqkv_ref[image, :, plan.lanes(part, first, plan.group)] = _upright(
                        gradient, dqkv_ref.dtype
                    )

        _one_ahead(plan.units, products, gradients)

    if sums_ref:
        sums_ref[0][...] = jnp.zeros_like(sums_ref[0])
    plan.for_each_block(block)
    if sums_ref:
        for image, first in plan.units:
            for part in (K, V):
                lanes = plan.lanes(part, first, plan.group)
                rows = plan.lanes(0, first, plan.group)
                dqkv_ref[image, :, lanes] = sums_ref[0][part - 1, rows].T.astype(dqkv_ref.dtype)


def _upright(transposed, dtype):
    """[D, tokens] of each head of a group → [tokens, group · D]."""
    return jnp.concatenate(transposed).T.astype(dtype)


_PARAMS = pltpu.CompilerParams(
    dimension_semantics=("parallel",),  # images are apart from each other
    vmem_limit_bytes=VMEM_LIMIT,
)


def fits(qkv, num_heads):
    """Whether the program that needs most, the backward one, has room for whole sequences."""
    plan = _Plan.of(qkv, num_heads, None)
    return plan.vmem_bytes(qkv.shape[2] // 3, qkv.dtype) <= VMEM_LIMIT


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _forward_call(qkv, num_heads, scale, interpret, save):
    plan = _Plan.of(qkv, num_heads, interpret)
    batch, tokens, columns = qkv.shape
    shapes = [jax.ShapeDtypeStruct((batch, tokens, columns // 3), qkv.dtype)]
    if save:
        shapes.append(jax.ShapeDtypeStruct((batch, num_heads, tokens), jnp.float32))
    return pl.pallas_call(
        functools.partial(_forward_kernel, plan=plan, scale=scale),
        out_shape=shapes,
        grid=(batch // plan.images,),
        in_specs=[_images(plan, qkv)],
        out_specs=[_images(plan, shape) for shape in shapes],
        compiler_params=_PARAMS,
        cost_estimate=_cost(plan, 2, qkv, *shapes),
        interpret=interpret,
        name="vit_attention_forward",
    )(qkv)


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def _backward_call(qkv, lse, do, num_heads, scale, interpret):
    plan = _Plan.of(qkv, num_heads, interpret)
    sums = pltpu.VMEM((2, do.shape[2], plan.tokens), jnp.float32)
    return pl.pallas_call(
        functools.partial(_backward_kernel, plan=plan, scale=scale),
        out_shape=jax.ShapeDtypeStruct(qkv.shape, qkv.dtype),
        grid=(qkv.shape[0] // plan.images,),
        in_specs=[_images(plan, array) for array in (qkv, lse, do)],
        out_specs=_images(plan, qkv),
        scratch_shapes=[sums] if plan.block < plan.tokens else [],
        compiler_params=_PARAMS,
        cost_estimate=_cost(plan, 5, qkv, lse, do, qkv),
        interpret=interpret,
        name="vit_attention_backward",
    )(qkv, lse, do)


def _cost(plan, products, qkv, *arrays):
    """What XLA is told of a call: products of the size of the scores, and each array once."""
    scores = qkv.shape[0] * plan.heads * plan.tokens**2
    return pl.CostEstimate(
        flops=2 * products * scores * plan.head_dim,
        transcendentals=scores,
        bytes_accessed=sum(a.size * a.dtype.itemsize for a in (qkv, *arrays)),
    )


def _images(plan, array):
    """The block of `array` that belongs to one program: some images, whole."""
    return pl.BlockSpec((plan.images, *array.shape[1:]), lambda i: (i, 0, 0))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _differentiable(qkv, num_heads, scale, interpret):
    return _forward_call(qkv, num_heads, scale, interpret, False)[0]


def _forward(qkv, num_heads, scale, interpret):
    o, lse = _forward_call(qkv, num_heads, scale, interpret, True)
    return o, (qkv, lse)


def _backward(num_heads, scale, interpret, saved, do):
    return (_backward_call(*saved, do, num_heads, scale, interpret),)


_differentiable.defvjp(_forward, _backward)


def vit_attention(qkv, num_heads, *, scale, interpret=None):
    """[B, N, 3·H·D] → [B, N, H·D]; grid (B / images,)."""
    return _differentiable(jnp.asarray(qkv), num_heads, scale, interprets(interpret, "tpu"))


def forward(qkv, num_heads, *, scale, interpret=None):
    """→ o [B, N, H·D], and what `backward` needs of the scores: float32 [B, H, N].

    The two halves of `vit_attention`, for a framework that differentiates by itself.
    """
    return tuple(_forward_call(qkv, num_heads, scale, interprets(interpret, "tpu"), True))


def backward(qkv, lse, do, num_heads, *, scale, interpret=None):
    """→ dqkv; lse as `forward` gave it, do like o."""
    return _backward_call(qkv, lse, do, num_heads, scale, interprets(interpret, "tpu"))
