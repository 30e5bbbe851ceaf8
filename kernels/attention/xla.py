"""Attention as a formula: two einsums around a softmax, with the probabilities in HBM."""

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.jit, static_argnames=("causal", "scale"))
def attention(q, k, v, *, causal, scale):
    """[B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D]."""
    dot = functools.partial(
        jnp.einsum,
        precision=jax.lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    s = scale * dot("bhnd,bhmd->bhnm", q, k)
    if causal:
        s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    return dot("bhnm,bhmd->bhnd", p, v).astype(q.dtype)
