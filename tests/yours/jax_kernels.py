"""Kernels that are shipped with JAX, held against plain references.

Each is imported from jax.experimental.pallas.ops.tpu and called as its users call it.
"""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import example_kernel, flash_attention, matmul
from jax.experimental.pallas.ops.tpu import splash_attention as splashes
from jax.experimental.pallas.ops.tpu.megablox import ops as megablox_ops
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel as ragged
from jax.experimental.pallas.ops.tpu.random import threefry

import kernels

# The package has a function of the same name.
megablox = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def factors(rng, dtype=np.float32):
    return normal(rng, 256, 256, dtype=dtype), normal(rng, 256, 256, dtype=dtype)


def heads(rng, dtype=np.float32):
    return tuple(normal(rng, 1, 2, 256, 128, dtype=dtype) for _ in "qkv")


def attention(q, k, v, bias=0.0, causal=False, seen=True):
    logits = (jnp.einsum("bhqd,bhkd->bhqk", q, k) + bias) * 128**-0.5
    seen = jnp.tril(jnp.ones(logits.shape[-2:], bool)) if causal else seen
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), -1), v)


def flash(q, k, v, *bias, **options):
    return flash_attention.flash_attention(q, k, v, *bias, sm_scale=128**-0.5, **options)


with_bias = lambda rng: (*heads(rng), normal(rng, 1, 2, 256, 256))
SEGMENTS = np.repeat(np.array([0, 1, 2], np.int32), (60, 100, 96))[None]
within = lambda q, k, v, s: attention(q, k, v, seen=s[:, None, :, None] == s[:, None, None])


def splash(mask, q, k, v, heads="mha", **options):
    several = splashes.splash_attention_mask.MultiHeadMask([mask] * q.shape[0])
    make = getattr(splashes.splash_attention_kernel, f"make_splash_{heads}_single_device")
    return make(several, **options)(q, k, v)


def sparse(mask, q, k, v):
    logits = jnp.einsum("hqd,hkd->hqk", q, k)
    logits = jnp.where(np.asarray(mask[:, :]), logits, -jnp.inf)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(logits, -1), v)


CAUSAL = splashes.splash_attention_mask.CausalMask((256, 256))
LOCAL = splashes.splash_attention_mask.LocalMask((256, 256), (64, 0), 0)


def scaled(rng):
    q, k, v = (normal(rng, 2, 256, 128) for _ in "qkv")
    return q * np.float32(128**-0.5), k, v


def one_key_head(rng):
    q, k, v = scaled(rng)
    return q, k[0], v[0]


def shared(q, k, v):
    whole = lambda each: jnp.broadcast_to(each, (q.shape[0], *each.shape))
    return sparse(CAUSAL, q, whole(k), whole(v))


BLOCKS = splashes.splash_attention_kernel.BlockSizes(
    **{f"block_{name}": 128 for name in ["q", "kv", "q_dkv", "kv_dkv", "q_dq", "kv_dq"]},
    block_kv_compute=128,
    block_kv_dkv_compute=128,
)


PAGE, PAGES = 16, 4


def pages(rng, dtype=jnp.bfloat16):
    q = (normal(rng, 2, 8, 128) * np.float32(128**-0.5)).astype(dtype)
    k, v = (normal(rng, 2, 8, PAGE, 128, dtype=dtype) for _ in "kv")
    lengths = np.array([37, 64], np.int32)
    table = rng.permutation(8).reshape(2, PAGES).astype(np.int32)
    return q, k, v, lengths, table


def paged_reference(q, k_pages, v_pages, lengths, page_indices):
    group = q.shape[1] // k_pages.shape[0]
    whole = lambda each: each[:, page_indices].reshape(each.shape[0], len(q), -1, each.shape[-1])
    k, v = (jnp.repeat(whole(each), group, 0) for each in (k_pages, v_pages))
    logits = jnp.einsum("shd,hskd->shk", q, k)
    seen = np.arange(logits.shape[-1]) < lengths[:, None, None]
    return jnp.einsum("shk,hskd->shd", jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), -1), v)


def paged(q, k_pages, v_pages, lengths, page_indices):
    return paged_attention_kernel.paged_attention(
        q, k_pages, v_pages, lengths, page_indices, pages_per_compute_block=2
    )


def ragged_pages(rng):
    q = normal(rng, 32, 4, 128)
    kv = normal(rng, 8, PAGE, 4, 128)
    lengths = np.array([40, 30], np.int32)
    table = rng.permutation(8).reshape(2, PAGES).astype(np.int32)
    return q, kv, lengths, table, np.array([0, 20, 32], np.int32), np.array([2], np.int32)


def groups(rng):
    return normal(rng, 256, 128), normal(rng, 3, 128, 128), np.array([100, 0, 156], np.int32)


def grouped(lhs, rhs, group_sizes):
    rows = len(lhs)
    owner = jnp.repeat(np.arange(len(group_sizes)), group_sizes, total_repeat_length=rows)
    return jnp.einsum("mk,mkn->mn", lhs, rhs[owner])


def transposed(rng):
    lhs, _, sizes = groups(rng)
    return lhs.T.copy(), normal(rng, 256, 128), sizes


def grouped_transposed(lhs, rhs, group_sizes):
    owner = np.repeat(np.arange(len(group_sizes)), group_sizes)
    one = jnp.asarray(np.eye(len(group_sizes)), lhs.dtype)[owner]
    return jnp.einsum("km,mn,mg->gkn", lhs, rhs, one)


def threefry_reference(key):
    key = jax.random.wrap_key_data(key, impl="threefry2x32")
    return jax.random.bits(key, (256, 512), np.uint32)


causal, bf16 = functools.partial(attention, causal=True), {"dtype": jnp.bfloat16}
segment = lambda segments: flash_attention.SegmentIds(q=segments, kv=segments)
# Name → a plain reference, its arguments, the kernel, and names of arguments with gradients.
KERNELS = {
    "double": (lambda x: x * 2, lambda rng: (normal(rng, 8, 128),),
        lambda x: example_kernel.double(x)),
    "blocked_matmul": (jnp.dot, factors,
        lambda x, y: matmul.matmul(x, y, block_shape=(128, 128), block_k=128)),
    "blocked_matmul_bf16": (jnp.dot, functools.partial(factors, **bf16),
        lambda x, y: matmul.matmul(x, y, block_shape=(128, 128), block_k=256)),
    "flash": (attention, heads, lambda q, k, v: flash(q, k, v)),
    "flash_causal": (causal, heads, lambda q, k, v: flash(q, k, v, causal=True)),
    # With the two kernels of its backward pass.
    "flash_gradients": (causal, heads, lambda q, k, v: flash(q, k, v, causal=True), "q", "k", "v"),
    "flash_bf16": (attention, functools.partial(heads, **bf16), lambda q, k, v: flash(q, k, v)),
    "flash_biased": (attention, with_bias, lambda q, k, v, ab: flash(q, k, v, ab)),
    "flash_segments": (within, lambda rng: (*heads(rng), SEGMENTS),
        lambda q, k, v, segments: flash(q, k, v, segment_ids=segment(segments))),
    "splash_causal": (functools.partial(sparse, CAUSAL), scaled,
        lambda q, k, v: splash(CAUSAL, q, k, v)),
    "splash_local": (functools.partial(sparse, LOCAL), scaled,
        lambda q, k, v: splash(LOCAL, q, k, v)),
    "splash_multi_query": (shared, one_key_head, lambda q, k, v: splash(CAUSAL, q, k, v, "mqa")),
    # With the two kernels of its backward pass, which have blocks of their own.
    "splash_gradients": (functools.partial(sparse, CAUSAL), scaled,
        lambda q, k, v: splash(CAUSAL, q, k, v, block_sizes=BLOCKS), "q", "k", "v"),
    "paged": (paged_reference, pages, paged),
    # Refused with reason: the kernel rounds pages of float32 to bfloat16.
    "paged_float32": (paged_reference, functools.partial(pages, dtype=np.float32),
        lambda q, k, v, lengths, table: paged(q, k, v, lengths, table)),
    "ragged_paged": (functools.partial(ragged.ref_ragged_paged_attention, sm_scale=128**-0.5),
        ragged_pages,
        lambda q, kv, lengths, table, starts, count: ragged.ragged_paged_attention(
            *(q, kv, lengths, table, starts, count),
            **{"sm_scale": 128**-0.5, "num_kv_pages_per_block": 2, "num_queries_per_block": 8})),
    "gmm": (grouped, groups, lambda lhs, rhs, group_sizes: megablox.gmm(lhs, rhs, group_sizes)),
    "tgmm": (grouped_transposed, transposed,
        lambda lhs, rhs, group_sizes: megablox.tgmm(lhs, rhs, group_sizes)),
    "gmm_transposed": (
        lambda lhs, rhs, group_sizes: grouped(lhs, rhs.swapaxes(1, 2), group_sizes), groups,
        lambda lhs, rhs, group_sizes: megablox.gmm(lhs, rhs, group_sizes, transpose_rhs=True)),
    # Its gradients are two more calls, of gmm and of tgmm.
    "gmm_gradients": (grouped, groups,
        lambda lhs, rhs, group_sizes: megablox_ops.gmm(lhs, rhs, group_sizes), "lhs", "rhs"),
    "threefry_bits": (threefry_reference, lambda rng: (rng.integers(1 << 32, size=2, dtype="u4"),),
        lambda key: threefry.plthreefry_random_bits(key, 32, (256, 512))),
}  # fmt: skip
for name, (reference, arguments, function, *differentiable) in KERNELS.items():
    function.__name__ = name
    gradients = {"differentiable": differentiable, "values": ("given",)} if differentiable else {}
    kernels.proves(reference, arguments=arguments, **gradients)(function)
