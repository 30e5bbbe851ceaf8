"""The oracle. NumPy or JAX arrays in, in float64; so it can be differentiated too.

An error is judged by what an element adds up, and by what is rounded on the way. attention adds
p v, after an implementation has rounded each probability p to the dtype of v; the gradients add
products of ds = p (dp - delta), where dp = do vᵀ and delta, its mean, cancel.
"""

import math

from kernels.attention.layout import pack, unpack


def _probabilities(q, k, causal, scale):
    """softmax(scale q kᵀ), [..., queries, keys]; a causal query sees the keys up to its own."""
    xp = q.__array_namespace__()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = scale * (q @ k.swapaxes(-1, -2))
    if causal:
        s = xp.where(xp.tril(xp.ones(s.shape[-2:], dtype=bool)), s, -math.inf)
    p = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return p / xp.sum(p, axis=-1, keepdims=True)


def attention(q, k, v, *, causal=False, scale=None):
    """softmax(scale q kᵀ) v, in the precision of the arguments."""
    return _probabilities(q, k, causal, scale) @ v


def attention_magnitude(q, k, v, *, causal=False, scale=None):
    """The sum of the absolute values of the terms p v that each element adds up."""
    return _probabilities(q, k, causal, scale) @ abs(v)


def attention_rounding(q, k, v, *, causal=False, scale=None):
    """The root of the sum of the squares of those terms."""
    return (_probabilities(q, k, causal, scale) ** 2 @ v**2) ** 0.5


def attention_gradient_magnitude(q, k, v, do, *, causal=False, scale=None):
    """The same sums of absolute values for dq = scale ds k, dk = scale dsᵀ q and dv = pᵀ do.

    ds is a difference of dp and delta, which count with their own terms' absolute values.
    """
    p = _probabilities(q, k, causal, scale)
    scale = abs(q.shape[-1] ** -0.5 if scale is None else scale)
    dp = abs(do) @ abs(v).swapaxes(-1, -2)
    ds = scale * p * (dp + (p * dp).sum(-1, keepdims=True))
    return ds @ abs(k), ds.swapaxes(-1, -2) @ abs(q), p.swapaxes(-1, -2) @ abs(do)


def vit_attention(qkv, num_heads, *, scale=None):
    """attention of the heads in a packed qkv, packed again."""
    return pack(attention(*unpack(qkv, num_heads), scale=scale))


def vit_attention_magnitude(qkv, num_heads, *, scale=None):
    """See attention_magnitude."""
    return pack(attention_magnitude(*unpack(qkv, num_heads), scale=scale))


def vit_attention_rounding(qkv, num_heads, *, scale=None):
    """See attention_rounding."""
    return pack(attention_rounding(*unpack(qkv, num_heads), scale=scale))


def vit_attention_gradient_magnitude(qkv, num_heads, do, *, scale=None):
    """See attention_gradient_magnitude; those of dq, dk and dv, packed."""
    batch, tokens, _ = do.shape
    do = do.reshape(batch, tokens, num_heads, -1).swapaxes(1, 2)
    return (pack(*attention_gradient_magnitude(*unpack(qkv, num_heads), do, scale=scale)),)
