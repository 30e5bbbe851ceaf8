"""Attention as JAX's own function has it; which kernel runs is JAX's choice."""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.compat.xla import stored


@functools.partial(jax.jit, static_argnames=("causal", "scale"))
def attention(q, k, v, *, causal, scale):
    """[B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D]; it wants heads after tokens."""
    dtype = q.dtype
    if 1 in q.shape[2:] + k.shape[2:]:
        # XLA's CPU backend refuses bfloat16 products of vectors, or dies of them.
        q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    q, k, v = stored(*(jnp.swapaxes(x, 1, 2) for x in (q, k, v)))
    precision = "highest" if q.dtype == jnp.float32 else None
    with jax.default_matmul_precision(precision):
        o = jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=causal)
    return jnp.swapaxes(o, 1, 2).astype(dtype)
