"""The oracle. NumPy or JAX arrays in, in float64; so it can be differentiated too.

An error is judged by the size of what goes into an element. A score is a sum of products, and an
error in it is a relative error of its probability; the other probabilities of its row share it.
"""

import math

from kernels.attention.layout import by_rows, pack, unpack


def _scores(q, k, scale):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return scale * (q @ k.swapaxes(-1, -2))


def _up_to_own(q, k, causal):
    """bool [queries, keys]: those that a query sees, up to its own; None for all."""
    xp = q.__array_namespace__()
    return xp.tril(xp.ones((q.shape[-2], k.shape[-2]), dtype=bool)) if causal else None


def _in_blocks(q, k, mask, block):
    """The same of blocks of keys that the mask keeps."""
    lengths, xp = (q.shape[-2], k.shape[-2]), q.__array_namespace__()
    rows, columns = (xp.arange(length) // min(block.tokens, length) for length in lengths)
    return xp.asarray(mask)[rows][:, columns]


def _probabilities(q, k, scale, seen):
    """softmax(scale q kᵀ) over the keys that are seen, [..., queries, keys]."""
    xp = q.__array_namespace__()
    s = _scores(q, k, scale)
    if seen is not None:
        s = xp.where(seen, s, -math.inf)
    p = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return p / xp.sum(p, axis=-1, keepdims=True)


def _probability_magnitude(q, k, scale, seen):
    """Each probability, and how much it changes at most for each relative change of a product."""
    p = _probabilities(q, k, scale, seen)
    s = abs(_scores(abs(q), abs(k), scale))
    return p * (1 + s + (p * s).sum(-1, keepdims=True))


def attention(q, k, v, *, causal=False, scale=None):
    """softmax(scale q kᵀ) v, in the precision of the arguments."""
    return _probabilities(q, k, scale, _up_to_own(q, k, causal)) @ v


def attention_magnitude(q, k, v, *, causal=False, scale=None):
    """The sum of the absolute values of the terms p v that each element adds up."""
    return _probability_magnitude(q, k, scale, _up_to_own(q, k, causal)) @ abs(v)


def attention_rounding(q, k, v, *, causal=False, scale=None):
    """The root of the sum of the squares of the terms, each of which is a rounded p times v."""
    return (_probabilities(q, k, scale, _up_to_own(q, k, causal)) ** 2 @ v**2) ** 0.5


def attention_gradient_magnitude(q, k, v, do, *, causal=False, scale=None):
    """The same sums for dq = scale ds k, dk = scale dsᵀ q and dv = pᵀ do.

    ds = p (dp - delta) with dp = do vᵀ and delta = Σ p dp, which cancel: each counts by itself.
    """
    p = _probability_magnitude(q, k, scale, _up_to_own(q, k, causal))
    scale = abs(q.shape[-1] ** -0.5 if scale is None else scale)
    dp = abs(do) @ abs(v).swapaxes(-1, -2)
    ds = scale * p * (dp + (p * dp).sum(-1, keepdims=True))
    return ds @ abs(k), ds.swapaxes(-1, -2) @ abs(q), p.swapaxes(-1, -2) @ abs(do)


# Of the heads in a packed qkv, packed again.
vit_attention = by_rows(attention)
vit_attention_magnitude = by_rows(attention_magnitude)
vit_attention_rounding = by_rows(attention_rounding)


def vit_attention_gradient_magnitude(qkv, num_heads, do, *, scale=None):
    """See attention_gradient_magnitude; those of dq, dk and dv, packed."""
    batch, tokens, _ = do.shape
    do = do.reshape(batch, tokens, num_heads, -1).swapaxes(1, 2)
    return (pack(*attention_gradient_magnitude(*unpack(qkv, num_heads), do, scale=scale)),)


def block_sparse_attention(q, k, v, mask, *, block, scale=None):
    """Attention to the keys in blocks that `mask` keeps, in the precision of the arguments."""
    return _probabilities(q, k, scale, _in_blocks(q, k, mask, block)) @ v


def block_sparse_attention_magnitude(q, k, v, mask, *, block, scale=None):
    """See attention_magnitude."""
    return _probability_magnitude(q, k, scale, _in_blocks(q, k, mask, block)) @ abs(v)


def block_sparse_attention_rounding(q, k, v, mask, *, block, scale=None):
    """See attention_rounding."""
    return (_probabilities(q, k, scale, _in_blocks(q, k, mask, block)) ** 2 @ v**2) ** 0.5
