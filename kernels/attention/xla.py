"""Attention as a formula, for all heads at once or for some; and as JAX's own function has it."""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.compat.xla import stored

__all__ = ["SLICE_BYTES", "in_slices", "slice_of"]
_STATIC = ("causal", "scale", "window", "soft_cap")
SLICE_BYTES = 4 << 20  # of scores; few enough for VMEM, and what estimates favour


def slice_of(parts, scores):
    """The largest divisor of `parts` that keeps their scores within SLICE_BYTES; at least 1."""
    fits = max(1, SLICE_BYTES // max(4 * scores, 1))
    return next(s for s in range(min(parts, fits), 0, -1) if parts % s == 0)


def _seen(q, k, causal, window):
    """bool [N, M], the scores that count, and [N, 1], the queries that see a key; None for all."""
    if not causal and window is None:
        return None, None
    left, right = window or (None, None)
    mask = jnp.tril(jnp.ones((q.shape[2], k.shape[2]), bool), 0 if causal else right)
    if left is None:
        return mask, None
    mask = jnp.triu(mask, -left)
    return mask, mask.any(-1, keepdims=True) if q.shape[2] - left > k.shape[2] else None


def _masked(q, k, v, scale, mask, sighted=None, soft_cap=None):
    """mask: bool [N, M], the scores that count; sighted: [N, 1], the queries that have any."""
    if (group := q.shape[1] // k.shape[1]) > 1:
        grouped = q.reshape(q.shape[0], -1, group, *q.shape[2:])
        more = {"scale": scale, "mask": mask, "sighted": sighted, "soft_cap": soft_cap}
        some = functools.partial(_masked, **more)
        return jax.vmap(some, (2, None, None), 2)(grouped, k, v).reshape(q.shape)
    dot = functools.partial(
        jnp.einsum,
        precision=jax.lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
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
def attention(q, k, v, *, causal, scale, window=None, soft_cap=None):
    """[B, H, N, D], [B, Hkv, M, D] twice → [B, H, N, D]."""
    return _masked(q, k, v, scale, *_seen(q, k, causal, window), soft_cap)


@functools.partial(jax.jit, static_argnames=_STATIC)
def in_slices(q, k, v, **options):
    """The same, some heads at a time, so that XLA keeps their scores in VMEM; backward too."""

    @jax.checkpoint  # or the loop would keep all scores for the way back
    def formula(parts):
        return attention(*parts, **options)

    group = q.shape[1] // k.shape[1]
    size = slice_of(k.shape[0] * k.shape[1], group * q.shape[2] * k.shape[2])
    slices = [
        x.reshape(-1, 1, heads, *x.shape[2:])
        for x, heads in ((q, group * size), (k, size), (v, size))
    ]
    return jax.lax.map(formula, slices).reshape(*q.shape[:3], v.shape[3])


@functools.partial(jax.jit, static_argnames=_STATIC[:3])
def sdpa(q, k, v, *, causal, scale, window=None):
    """The same by JAX's own function, which wants heads after tokens; the kernel is its choice."""
    dtype, sighted = q.dtype, _seen(q, k, causal, window)[1]
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
