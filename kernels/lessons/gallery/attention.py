"""Wrong attention: an online softmax with five faults, skipped blocks with two, and a gradient that
forgets its scale or its soft cap."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import family
from kernels.machines.tpu.products import dot
from kernels.proof.workload import Workload

ONE = {"b": 1, "h": 1, "n": 128, "m": 128, "d": 64}  # a block of keys
TWO = ONE | {"m": 256}
SQUARE = TWO | {"n": 256}
PACKED = SQUARE | {"segment_ids": 4}


def online(q, k, v, *, interpret, fault, scale=None, causal=False):
    """[1, 1, n, d], [1, 1, m, d] twice → [1, 1, n, d], 128 keys at a time; if they are causal, the
    last keys first. Right when repaired; else it has the fault of that name."""
    (*_, n, d), m = q.shape, k.shape[2]
    steps = pl.cdiv(m, 128)
    scale = d**-0.5 if scale is None else scale
    k, v = (jnp.pad(x[0, 0], ((0, -m % 128), (0, 0))) for x in (k, v))

    def block(step):
        return steps - 1 - step if causal else step

    def body(q_ref, k_ref, v_ref, o_ref, max_ref, sum_ref, acc_ref):
        q, k, v = (ref[...].astype(jnp.float32) for ref in (q_ref, k_ref, v_ref))
        s = scale * dot(q, k.T)
        query, key = (lax.broadcasted_iota(jnp.int32, s.shape, axis) for axis in (0, 1))
        key += 128 * block(pl.program_id(0))
        if fault != "padded_keys":
            s = jnp.where(key < m, s, -1e30)
        if causal:
            s = jnp.where(query >= key, s, -jnp.inf if fault == "masked_first_block" else -1e30)
        here = s.max(1, keepdims=True)

        @pl.when(pl.program_id(0) == 0)
        def _():
            max_ref[...] = here
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        before = max_ref[...]
        now = before if fault == "stale_maximum" else jnp.maximum(before, here)
        p, shrink = jnp.exp(s - now), jnp.exp(before - now)
        terms = p
        if fault == "rounded_probabilities":
            # To bfloat16 and back; XLA on a CPU takes away a pair of casts that says so.
            terms = lax.reduce_precision(p, exponent_bits=8, mantissa_bits=7)
        new = terms.sum(1, keepdims=True)
        if fault == "late_rescale":
            sum_ref[...] = shrink * (sum_ref[...] + new)
        else:
            sum_ref[...] = shrink * sum_ref[...] + new
        max_ref[...] = now
        acc_ref[...] = shrink * acc_ref[...] + dot(p, v)
        o_ref[...] = (acc_ref[...] / sum_ref[...]).astype(o_ref.dtype)

    keys = pl.BlockSpec((128, d), lambda step: (block(step), 0))
    whole = pl.BlockSpec((n, d), lambda step: (0, 0))
    o = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, d), q.dtype),
        grid=(steps,),
        in_specs=[whole, keys, keys],
        out_specs=whole,
        scratch_shapes=[pltpu.VMEM((n, width), jnp.float32) for width in (1, 1, d)],
        interpret=interpret,
    )(q[0, 0], k, v)
    return o[None, None]


_faulty = family(online)

stale_maximum = _faulty(
    "stale_maximum",
    Workload("small_logits", TWO),
    Workload("large_logits", TWO, values="wide", options={"scale": 1.0}),
)

late_rescale = _faulty("late_rescale", Workload("one_block", ONE), Workload("two_blocks", TWO))

masked_first_block = _faulty(
    "masked_first_block",
    Workload("all_keys", SQUARE, why="no mask at all"),
    Workload("causal", SQUARE, options={"causal": True}, why="the last keys come first"),
)

padded_keys = _faulty("padded_keys", Workload("whole", TWO), Workload("ragged", ONE | {"m": 200}))

rounded_probabilities = _faulty(
    "rounded_probabilities", Workload("bf16", TWO, "bfloat16"), Workload("f32", TWO)
)


def skipping(q, k, v, ids=None, *, interpret, window, causal, fault):
    """[1, 1, n, d] three times → [1, 1, n, d]: causal, in blocks of 128, the last keys first. Right
    when repaired; else blocks are skipped by the fault of that name."""
    (*_, n, d), left = q.shape, window[0]
    ids = jnp.zeros((1, n), jnp.int32) if ids is None else jnp.asarray(ids)

    def body(q_ref, k_ref, v_ref, mine_ref, theirs_ref, o_ref, max_ref, sum_ref, acc_ref):
        i, steps = pl.program_id(0), pl.num_programs(1)
        j = i - pl.program_id(1)  # below 0: no block

        @pl.when(j == i)
        def _():
            max_ref[...] = jnp.full_like(max_ref, -1e30)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        furthest, last = 128 * i - left, 128 * j + 127
        in_reach = (last > furthest) if fault == "skipped_edge" else (last >= furthest)
        mine, theirs = mine_ref[...], theirs_ref[...]  # [128, 1], [1, 128]
        if fault == "ends_of_ids":
            meet = (mine[127, 0] >= theirs[0, 0]) & (theirs[0, 127] >= mine[0, 0])
        else:
            meet = (mine.max() >= theirs.min()) & (theirs.max() >= mine.min())

        @pl.when((j >= 0) & in_reach & meet)
        def _():
            s = d**-0.5 * dot(q_ref[...], k_ref[...].T)
            query = 128 * i + lax.broadcasted_iota(jnp.int32, s.shape, 0)
            key = 128 * j + lax.broadcasted_iota(jnp.int32, s.shape, 1)
            seen = (key <= query) & (query - left <= key) & (mine == theirs)
            s = jnp.where(seen, s, -1e30)
            now = jnp.maximum(max_ref[...], s.max(1, keepdims=True))
            p, shrink = jnp.exp(s - now), jnp.exp(max_ref[...] - now)
            max_ref[...] = now
            sum_ref[...] = shrink * sum_ref[...] + p.sum(1, keepdims=True)
            acc_ref[...] = shrink * acc_ref[...] + dot(p, v_ref[...])

        @pl.when(pl.program_id(1) == steps - 1)
        def _():
            o_ref[...] = acc_ref[...] / sum_ref[...]

    def key_block(i, step):
        return jnp.maximum(i - step, 0)

    queries = pl.BlockSpec((128, d), lambda i, step: (i, 0))
    keys = pl.BlockSpec((128, d), lambda i, step: (key_block(i, step), 0))
    mine = pl.BlockSpec((128, 1), lambda i, step: (i, 0))
    theirs = pl.BlockSpec((1, 128), lambda i, step: (0, key_block(i, step)))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, d), q.dtype),
        grid=(n // 128, n // 128),
        in_specs=[queries, keys, keys, mine, theirs],
        out_specs=queries,
        scratch_shapes=[pltpu.VMEM((128, width), jnp.float32) for width in (1, 1, d)],
        interpret=interpret,
    )(q[0, 0], k[0, 0], v[0, 0], ids.T, ids)[None, None]


_skipping = family(skipping)

skipped_edge = _skipping(
    "skipped_edge",
    Workload("inside", SQUARE, options={"causal": True, "window": (128, 0)}),
    Workload("on_the_edge", SQUARE, options={"causal": True, "window": (1, 0)}),
)

ends_of_ids = _skipping(
    "ends_of_ids",
    Workload("in_order", PACKED, options={"causal": True, "window": (256, 0)}),
    Workload("shuffled", PACKED, options={"causal": True, "window": (256, 0)}),
)


def whole(q, k, v, *, interpret, fault, scale=None, soft_cap=None):
    """[1, 1, n, d] three times → [1, 1, n, d], all keys at once. Right when repaired; else its
    gradient has the fault of that name."""
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def probabilities(q_ref, k_ref):
        s, slope = scale * dot(q_ref[...], k_ref[...].T), 1.0
        if soft_cap is not None:
            share = jnp.tanh(s / soft_cap)
            s, slope = soft_cap * share, 1 - share * share
        p = jnp.exp(s - s.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True), slope

    def forward(q_ref, k_ref, v_ref, o_ref):
        o_ref[...] = dot(probabilities(q_ref, k_ref)[0], v_ref[...])

    def backward(q_ref, k_ref, v_ref, do_ref, dq_ref, dk_ref, dv_ref):
        p, slope = probabilities(q_ref, k_ref)
        dp = dot(do_ref[...], v_ref[...].T)
        ds = p * (dp - (p * dp).sum(1, keepdims=True))
        if fault != "uncapped_gradient":
            ds = ds * slope
        dq_ref[...] = (1.0 if fault == "unscaled_gradient" else scale) * dot(ds, k_ref[...])
        dk_ref[...] = scale * dot(ds.T, q_ref[...])
        dv_ref[...] = dot(p.T, do_ref[...])

    def call(body, *arrays, results):
        head = jax.ShapeDtypeStruct(q.shape[2:], q.dtype)
        arrays = [x[0, 0] for x in arrays]
        heads = pl.pallas_call(body, out_shape=[head] * results, interpret=interpret)(*arrays)
        return tuple(x[None, None] for x in heads)

    @jax.custom_vjp
    def attention(q, k, v):
        return call(forward, q, k, v, results=1)[0]

    attention.defvjp(
        lambda *qkv: (attention(*qkv), qkv), lambda qkv, do: call(backward, *qkv, do, results=3)
    )
    return attention(q, k, v)


_unlike_its_gradient = family(whole, differentiable=True)

unscaled_gradient = _unlike_its_gradient(
    "unscaled_gradient",
    Workload("scale_of_one", ONE, options={"scale": 1.0}),
    Workload("usual_scale", ONE),
)

uncapped_gradient = _unlike_its_gradient(
    "uncapped_gradient",
    Workload("high_cap", ONE, options={"soft_cap": 1e6}),
    Workload("low_cap", ONE, options={"soft_cap": 2.0}),
)
