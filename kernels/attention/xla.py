"""Attention as a formula, for all heads at once or for some; and as JAX's own function has it."""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.compat.xla import stored, whole

__all__ = ["SLICE_BYTES", "in_slices", "slice_of"]
_STATIC = ("causal", "scale", "window", "soft_cap")
SLICE_BYTES = 4 << 20  # of scores; few enough for VMEM, and what estimates favour


def slice_of(parts, scores):
    """The largest divisor of `parts` that keeps their scores within SLICE_BYTES; at least 1."""
    fits = max(1, SLICE_BYTES // max(4 * scores, 1))
    return next(s for s in range(min(parts, fits), 0, -1) if parts % s == 0)


def seen(q, k, causal, window, ids=None):
    """bool [N, M], or [B, 1, N, M] with segments' ids: the scores that count; and [..., N, 1], the
    queries that see a key. None for all."""
    if not (causal or window or ids):
        return None, None
    left, right = window or (None, None)
    mask = jnp.ones((q.shape[2], k.shape[2]), bool)
    if causal or window:
        mask = jnp.tril(mask, 0 if causal else right)
    if window:
        mask = jnp.triu(mask, -left)
    if ids:
        mask &= ids[0][:, None, :, None] == ids[-1][:, None, None, :]
    blind = (window and q.shape[2] - left > k.shape[2]) or (ids and len(ids) == 2)
    return mask, mask.any(-1, keepdims=True) if blind else None


def _masked(q, k, v, scale, mask, sighted=None, soft_cap=None):
    """mask: bool [..., N, M], the scores that count; sighted: [..., N, 1], who has any."""
    if (group := q.shape[1] // k.shape[1]) > 1:
        grouped = q.reshape(q.shape[0], -1, group, *q.shape[2:])
        more = {"scale": scale, "mask": mask, "sighted": sighted, "soft_cap": soft_cap}
        some = functools.partial(_masked, **more)
        return jax.vmap(some, (2, None, None), 2)(grouped, k, v).reshape(q.shape)
    dot = functools.partial(jnp.einsum, **whole(q.dtype))
    s = scale * dot("bhnd,bhmd->bhnm", q, k)
    if soft_cap is not None:
        s = soft_cap * jnp.tanh(s / soft_cap)
    if mask is not None:
        seen = mask if sighted is None else mask | ~sighted  # or they would have no maximum
        s = jnp.where(seen, s, -jnp.inf)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    o = dot("bhnm,bhmd->bhnd", p, v).astype(q.dtype)
    return o if sighted is None else jnp.where(sighted, o, 0)


@functools.partial(jax.jit, static_argnames=_STATIC)
def attention(q, k, v, *, causal, scale, window=None, soft_cap=None, segment_ids=None):
    """[B, H, N, D], [B, Hkv, M, D] twice, ids int32 [B, N] and [B, M] → [B, H, N, D]."""
    return _masked(q, k, v, scale, *seen(q, k, causal, window, segment_ids), soft_cap)


@functools.partial(jax.jit, static_argnames=_STATIC)
def in_slices(q, k, v, *, segment_ids=None, **options):
    """The same, some heads at a time, so that XLA keeps their scores in VMEM; backward too."""

    @jax.checkpoint  # or the loop would keep all scores for the way back
    def formula(parts):
        *arrays, ids = parts
        return attention(*arrays, segment_ids=ids, **options)

    (b, hkv, m, _), group = k.shape, q.shape[1] // k.shape[1]
    # With ids, a slice is of one sequence.
    size = slice_of(hkv if segment_ids else b * hkv, group * q.shape[2] * m)
    ids = jax.tree.map(lambda x: jnp.repeat(x[:, None], hkv // size, axis=0), segment_ids)
    slices = [
        x.reshape(-1, 1, heads, *x.shape[2:])
        for x, heads in ((q, group * size), (k, size), (v, size))
    ]
    return jax.lax.map(formula, [*slices, ids]).reshape(*q.shape[:3], v.shape[3])


@functools.partial(jax.jit, static_argnames=_STATIC[:3])
def sdpa(q, k, v, *, causal, scale, window=None):
    """The same by JAX's own function, which wants heads after tokens; the kernel is its choice."""
    dtype, sighted = q.dtype, seen(q, k, causal, window)[1]
    if 1 in q.shape[2:] + k.shape[2:]:
        # XLA's CPU backend refuses bfloat16 products of vectors, or dies of them.
        q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    q, k, v = stored(*(jnp.swapaxes(x, 1, 2) for x in (q, k, v)))
    precision = "highest" if q.dtype == jnp.float32 else None
    with jax.default_matmul_precision(precision):
        o = jax.nn.dot_product_attention(
            q, k, v, scale=scale, is_causal=causal, local_window_size=window
        )
    o = jnp.swapaxes(o, 1, 2).astype(dtype)
    return o if sighted is None else jnp.where(sighted, o, 0)


@functools.partial(jax.jit, static_argnames=("scale", "plan"))
def block_sparse_attention(q, k, v, mask, *, scale, plan):
    """The same with bool [query blocks, key blocks]: every score is computed, and most hidden."""
    sizes = q.shape[2], k.shape[2]
    rows, columns = (jnp.arange(n) // min(plan.block.tokens, n) for n in sizes)
    return _masked(q, k, v, scale, mask[rows][:, columns])
