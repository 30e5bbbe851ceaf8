"""Attention as a formula: two einsums around a softmax, with the probabilities in HBM."""

import functools

import jax
import jax.numpy as jnp


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


@functools.partial(jax.jit, static_argnames=("scale", "plan"))
def block_sparse_attention(q, k, v, mask, *, scale, plan):
    """The same with bool [query blocks, key blocks]: every score is computed, and most hidden."""
    return _masked(q, k, v, scale, by_token(mask, q.shape[2], k.shape[2], plan.block.tokens))


def by_token(mask, n, m, tokens):
    """bool [query blocks, key blocks] → [n, m]."""
    return mask[jnp.arange(n) // min(tokens, n)][:, jnp.arange(m) // min(tokens, m)]
