"""Attention as a formula, for all heads at once or for some; and as JAX's own function has it."""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.compat.xla import stored

__all__ = ["SLICE_BYTES", "in_slices", "slice_of"]
SLICE_BYTES = 4 << 20  # of scores; few enough for VMEM, and what estimates favour


def slice_of(parts, scores):
    """The largest divisor of `parts` that keeps their scores within SLICE_BYTES; at least 1."""
    fits = max(1, SLICE_BYTES // max(4 * scores, 1))
    return next(s for s in range(min(parts, fits), 0, -1) if parts % s == 0)


def _masked(q, k, v, scale, mask):
    """mask: bool [N, M], the scores that count; None for all of them."""
    dot = functools.partial(
        jnp.einsum,
        precision=jax.lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    s = scale * dot("bhnd,bhmd->bhnm", q, k)
    if mask is not None:
        s = jnp.where(mask, s, -jnp.inf)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    return dot("bhnm,bhmd->bhnd", p, v).astype(q.dtype)


@functools.partial(jax.jit, static_argnames=("causal", "scale"))
def attention(q, k, v, *, causal, scale):
    """[B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D]."""
    mask = jnp.tril(jnp.ones((q.shape[2], k.shape[2]), bool)) if causal else None
    return _masked(q, k, v, scale, mask)


@functools.partial(jax.jit, static_argnames=("causal", "scale"))
def in_slices(q, k, v, *, causal, scale):
    """The same, some heads at a time, so that XLA keeps their scores in VMEM; backward too."""

    @jax.checkpoint  # or the loop would keep all scores for the way back
    def formula(parts):
        return attention(*parts, causal=causal, scale=scale)

    size = slice_of(q.shape[0] * q.shape[1], q.shape[2] * k.shape[2])
    slices = [x.reshape(-1, 1, size, *x.shape[2:]) for x in (q, k, v)]
    return jax.lax.map(formula, slices).reshape(*q.shape[:3], v.shape[3])


@functools.partial(jax.jit, static_argnames=("causal", "scale"))
def sdpa(q, k, v, *, causal, scale):
    """The same by JAX's own function, which wants heads after tokens; the kernel is its choice."""
    dtype = q.dtype
    if 1 in q.shape[2:] + k.shape[2:]:
        # XLA's CPU backend refuses bfloat16 products of vectors, or dies of them.
        q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    q, k, v = stored(*(jnp.swapaxes(x, 1, 2) for x in (q, k, v)))
    precision = "highest" if q.dtype == jnp.float32 else None
    with jax.default_matmul_precision(precision):
        o = jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=causal)
    return jnp.swapaxes(o, 1, 2).astype(dtype)


@functools.partial(jax.jit, static_argnames=("scale", "plan"))
def block_sparse_attention(q, k, v, mask, *, scale, plan):
    """The same with bool [query blocks, key blocks]: every score is computed, and most hidden."""
    sizes = q.shape[2], k.shape[2]
    rows, columns = (jnp.arange(n) // min(plan.block.tokens, n) for n in sizes)
    return _masked(q, k, v, scale, mask[rows][:, columns])
