"""Attention on a TPU, straight from the qkv Linear's output to the projection's input.

A program holds whole sequences, so softmax needs no second pass. Everything stands on its side:
scores are [keys, queries], so softmax reduces over sublanes, which is cheap, and its sums are rows;
results are [head_dim, tokens], so the MXU holds probabilities, with all of its columns in use, and
streams the 64 rows of a head's values; upright it would hold the values, and half of its columns
would be idle. Only small arrays are transposed, for two heads of 64 at once.
"""

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.attention import pallas
from kernels.attention.blocks import vmem_limit
from kernels.attention.layout import pack, unpack
from kernels.attention.pallas import one_ahead
from kernels.machines.pallas import interprets
from kernels.machines.tpu.chips import CHIPS, here
from kernels.machines.tpu.plan import TpuPlan

__all__ = ["backward_kernel", "forward_call", "forward_kernel", "make_plan", "one_ahead", "upright"]
LANES = 128
BLOCK = 256  # queries at a time, where there are many
Q, K, V = range(3)  # the order in a row of qkv


@dataclass(frozen=True)
class Packing:
    """How the work is cut."""

    images: int  # in one program
    tokens: int  # of an image
    heads: int  # of a token
    head_dim: int  # numbers of a head
    group: int  # heads that fill whole lane tiles
    block: int  # queries at a time; all of them where that is few
    widen: bool  # multiply bfloat16 as float32

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

    def dot(self, x, y, y_axis=0):
        """x y, or x yᵀ where y's axis 1 is contracted."""
        if self.widen:
            x, y = x.astype(jnp.float32), y.astype(jnp.float32)
        return pallas.dot(x, y, (1, y_axis))

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


def forward_kernel(qkv_ref, o_ref, *lse_ref, packing, scale):
    # qkv_ref [images, N, 3·H·D], o_ref [images, N, H·D], lse_ref [images, H, N]
    def block(start, size):
        queries = pl.ds(start, size)

        def multiplied(image, first):
            return [
                packing.dot(
                    qkv_ref[image, :, packing.lanes(K, head)],
                    qkv_ref[image, queries, packing.lanes(Q, head)],
                    1,
                )
                for head in range(first, first + packing.group)
            ]

        for (image, first), scores in one_ahead(packing.units, multiplied):
            v = qkv_ref[image, :, packing.lanes(V, first, packing.group)].T
            o = []
            for head, s in enumerate(scores, first):
                s = s * (scale * math.log2(math.e))  # 2ˣ is what the hardware has
                most = s.max(0, keepdims=True)
                p = jnp.exp2(s - most)
                total = p.sum(0, keepdims=True)
                o.append(packing.dot(v[packing.rows(head)], p.astype(v.dtype)) / total)
                if lse_ref:
                    lse_ref[0][image, head : head + 1, queries] = most + jnp.log2(total)
            o_ref[image, queries, packing.lanes(0, first, packing.group)] = upright(o, o_ref.dtype)

    packing.for_each_block(block)


def backward_kernel(qkv_ref, lse_ref, do_ref, dqkv_ref, *sums_ref, packing, scale):
    # sums_ref [2, H·D, N]: dkᵀ and dvᵀ, where the queries come in several blocks
    def block(start, size):
        queries = pl.ds(start, size)

        def multiplied(image, first):
            pairs = []
            for head in range(first, first + packing.group):
                q = qkv_ref[image, queries, packing.lanes(Q, head)]
                k, v = (qkv_ref[image, :, packing.lanes(part, head)] for part in (K, V))
                do = do_ref[image, queries, packing.lanes(0, head)]
                s, dp = (packing.dot(*pair, 1) for pair in ((k, q), (v, do)))
                pairs.append((s, dp))
            return pairs

        for (image, first), products in one_ahead(packing.units, multiplied):
            factors = []
            for head, (s, dp) in enumerate(products, first):
                lse = lse_ref[image, head : head + 1, queries]
                p = jnp.exp2(s * (scale * math.log2(math.e)) - lse)
                weighted = p * dp
                ds = weighted - p * weighted.sum(0, keepdims=True)
                factors.append((p.astype(qkv_ref.dtype), ds.astype(qkv_ref.dtype)))
            dq, dk, dv = [], [], []
            for head, (p, ds) in enumerate(factors, first):
                rows = packing.rows(head)
                q = qkv_ref[image, queries, packing.lanes(Q, first, packing.group)].T[rows]
                k = qkv_ref[image, :, packing.lanes(K, first, packing.group)].T[rows]
                do = do_ref[image, queries, packing.lanes(0, first, packing.group)].T[rows]
                dq.append(packing.dot(k, ds) * scale)
                dk.append(packing.dot(q, ds, 1) * scale)
                dv.append(packing.dot(do, p, 1))
            lanes = [packing.lanes(part, first, packing.group) for part in (Q, K, V)]
            dqkv_ref[image, queries, lanes[Q]] = upright(dq, dqkv_ref.dtype)
            for part, gradient in ((K, dk), (V, dv)):
                if sums_ref:
                    sums_ref[0][part - 1, lanes[Q]] += jnp.concatenate(gradient)
                else:
                    dqkv_ref[image, :, lanes[part]] = upright(gradient, dqkv_ref.dtype)

    if sums_ref:
        sums_ref[0][...] = jnp.zeros_like(sums_ref[0])
    packing.for_each_block(block)
    if sums_ref:
        for image, first in packing.units:
            for part in (K, V):
                lanes = packing.lanes(part, first, packing.group)
                rows = packing.lanes(0, first, packing.group)
                dqkv_ref[image, :, lanes] = sums_ref[0][part - 1, rows].T.astype(dqkv_ref.dtype)


def upright(transposed, dtype):
    """[D, tokens] of each head of a group → [tokens, group · D]."""
    return jnp.concatenate(transposed).T.astype(dtype)


def make_plan(qkv, num_heads, interpret):
    """How the chip at hand works on qkv as it is; None where it has no room for whole sequences.

    The program that needs most is the backward one, and both are cut alike.
    """
    chip = CHIPS[here()]
    packing, limit = Packing.of(qkv, num_heads, interpret), vmem_limit(chip.vmem_bytes)
    fits = packing.vmem_bytes(qkv.shape[2] // 3, qkv.dtype) <= limit
    return TpuPlan(chip, packing, limit) if fits else None


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def forward_call(qkv, plan, scale, interpret, save):
    packing = plan.block
    batch, tokens, columns = qkv.shape
    shapes = [jax.ShapeDtypeStruct((batch, tokens, columns // 3), qkv.dtype)]
    if save:
        shapes.append(jax.ShapeDtypeStruct((batch, packing.heads, tokens), jnp.float32))
    return pl.pallas_call(
        functools.partial(forward_kernel, packing=packing, scale=scale),
        out_shape=shapes,
        grid=(batch // packing.images,),
        in_specs=[_images(packing, qkv)],
        out_specs=[_images(packing, shape) for shape in shapes],
        compiler_params=pallas.compiler_params(plan, "parallel"),  # images are apart
        cost_estimate=_cost(packing, 2, qkv, *shapes),
        interpret=interpret,
        name="vit_attention_forward",
    )(qkv)


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def backward_call(qkv, lse, do, plan, scale, interpret):
    packing = plan.block
    sums = pltpu.VMEM((2, do.shape[2], packing.tokens), jnp.float32)
    return pl.pallas_call(
        functools.partial(backward_kernel, packing=packing, scale=scale),
        out_shape=jax.ShapeDtypeStruct(qkv.shape, qkv.dtype),
        grid=(qkv.shape[0] // packing.images,),
        in_specs=[_images(packing, array) for array in (qkv, lse, do)],
        out_specs=_images(packing, qkv),
        scratch_shapes=[sums] if packing.block < packing.tokens else [],
        compiler_params=pallas.compiler_params(plan, "parallel"),
        cost_estimate=_cost(packing, 5, qkv, lse, do, qkv),
        interpret=interpret,
        name="vit_attention_backward",
    )(qkv, lse, do)


def _cost(packing, products, qkv, *arrays):
    scores = qkv.shape[0] * packing.heads * packing.tokens**2
    return pallas.cost(scores, packing.head_dim, products, qkv, *arrays)


def _images(packing, array):
    """The block of `array` that belongs to one program: some images, whole."""
    return pl.BlockSpec((packing.images, *array.shape[1:]), lambda i: (i, 0, 0))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _differentiable(qkv, plan, scale, interpret):
    return forward_call(qkv, plan, scale, interpret, False)[0]


def _forward(qkv, plan, scale, interpret):
    o, lse = forward_call(qkv, plan, scale, interpret, True)
    return o, (qkv, lse)


_differentiable.defvjp(
    _forward, lambda plan, scale, on, saved, do: (backward_call(*saved, do, plan, scale, on),)
)


def _planned(qkv, num_heads, interpret):
    """The plan, None where heads are to be unpacked, and how to interpret. Nothing else decides."""
    interpret = interprets(interpret, "tpu")
    return make_plan(qkv, num_heads, interpret), interpret


def vit_attention(qkv, num_heads, *, scale, interpret=None):
    """[B, N, 3·H·D] → [B, N, H·D]; grid (B / images,)."""
    qkv = jnp.asarray(qkv)
    plan, on = _planned(qkv, num_heads, interpret)
    if plan:
        return _differentiable(qkv, plan, scale, on)
    heads = unpack(qkv, num_heads)
    return pack(pallas.attention(*heads, causal=False, scale=scale, interpret=on))


def forward(qkv, num_heads, *, scale, interpret=None):
    """→ o [B, N, H·D], and what `backward` needs of the scores: float32 [B, H, N].

    The two halves of `vit_attention`, for a framework that differentiates by itself.
    """
    plan, on = _planned(qkv, num_heads, interpret)
    if plan:
        return tuple(forward_call(qkv, plan, scale, on, True))
    o, lse = pallas.forward(*unpack(qkv, num_heads), causal=False, scale=scale, interpret=on)
    return pack(o), lse


def backward(qkv, o, lse, do, num_heads, *, scale, interpret=None):
    """→ dqkv; o and lse as `forward` gave them, do like o."""
    plan, on = _planned(qkv, num_heads, interpret)
    if plan:
        return backward_call(qkv, lse, do, plan, scale, on)
    o, do = (x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2) for x in (o, do))
    q, k, v = unpack(qkv, num_heads)
    options = {"causal": False, "scale": scale, "interpret": on}
    return pack(*pallas.backward(q, k, v, o, lse, do, **options))
