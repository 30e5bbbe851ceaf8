"""The oracle. NumPy or JAX arrays in, in float64; so it can be differentiated too.

An error is judged by the size of what goes into an element. A score is a sum of products, and an
error in it is a relative error of its probability; the other probabilities of its row share it.
"""

import math

from kernels.attention.layout import by_rows, pack, unpack


def _repeated(x, q):
    """[B, Hkv, M, D] as [B, H, M, D]: head h of q reads head h // (H // Hkv)."""
    return x.__array_namespace__().repeat(x, q.shape[1] // x.shape[1], axis=1)


def _per_head_of_keys(x, k):
    """[B, H, M, D], added up over the heads that share one of the keys."""
    return x.reshape(*k.shape[:2], -1, *k.shape[2:]).sum(2)


def _scores(q, k, scale, soft_cap=None):
    """[B, H, N, M], and the derivative of the soft cap there."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = scale * (q @ _repeated(k, q).swapaxes(-1, -2))
    if soft_cap is None:
        return s, 1.0
    share = q.__array_namespace__().tanh(s / soft_cap)
    return soft_cap * share, 1 - share**2


def _in_reach(q, k, causal, window, ids=None):
    """bool [queries, keys], or [B, 1, queries, keys] with ids of segments: those that a query
    sees."""
    xp = q.__array_namespace__()
    query, key = xp.arange(q.shape[-2])[:, None], xp.arange(k.shape[-2])[None, :]
    seen = key <= query if causal else key < k.shape[-2]
    if ids is not None:
        mine, theirs = ids if isinstance(ids, tuple) else (ids, ids)
        seen = seen & (mine[:, None, :, None] == theirs[:, None, None, :])
    if window is None:
        return seen
    left, right = (window, window) if isinstance(window, int) else window
    return seen & (query - left <= key) & (key <= query + right)


def _in_blocks(q, k, mask, block):
    """The same of blocks of keys that the mask keeps."""
    lengths, xp = (q.shape[-2], k.shape[-2]), q.__array_namespace__()
    rows, columns = (xp.arange(length) // min(block.tokens, length) for length in lengths)
    return xp.asarray(mask)[rows][:, columns]


def _probabilities(q, k, scale, seen, soft_cap=None):
    """softmax(scale q kᵀ) over the keys that are seen, [..., queries, keys]; 0 where none is."""
    xp = q.__array_namespace__()
    blind = ~seen.any(-1, keepdims=True)
    s = xp.where(seen | blind, _scores(q, k, scale, soft_cap)[0], -math.inf)
    p = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return xp.where(blind, 0, p / xp.sum(p, axis=-1, keepdims=True))


def _probability_magnitude(q, k, scale, seen, soft_cap=None):
    """Each probability, and how much it changes at most for each relative change of a product."""
    p = _probabilities(q, k, scale, seen, soft_cap)
    s = q.__array_namespace__().where(seen, abs(_scores(abs(q), abs(k), scale)[0]), 0)
    if soft_cap is not None:  # the cap shrinks the change, and rounds its own result
        capped, slope = _scores(q, k, scale, soft_cap)
        s = s * slope + abs(capped)
    return p * (1 + s + (p * s).sum(-1, keepdims=True))


def _attention(q, k, v, scale, seen, soft_cap=None):
    """softmax(scale q kᵀ) v, in the precision of the arguments."""
    return _probabilities(q, k, scale, seen, soft_cap) @ _repeated(v, q)


def _magnitude(q, k, v, scale, seen, soft_cap=None):
    """The sum of the absolute values of the terms p v that each element adds up."""
    return _probability_magnitude(q, k, scale, seen, soft_cap) @ abs(_repeated(v, q))


def _rounding(q, k, v, scale, seen, soft_cap=None):
    """The root of the sum of the squares of the terms, each of which is a rounded p times v."""
    return (_probabilities(q, k, scale, seen, soft_cap) ** 2 @ _repeated(v, q) ** 2) ** 0.5


def _gradient_magnitude(q, k, v, do, scale, seen, soft_cap=None):
    """The same sums for dq = scale ds k, dk = scale dsᵀ q and dv = pᵀ do.

    ds = p (dp - delta) with dp = do vᵀ and delta = Σ p dp, which cancel: each counts by itself. So
    do 1 and t² of a soft cap's derivative 1 - t², t = tanh(s / soft_cap), and what a change of a
    product does to it.
    """
    p, slope = _probability_magnitude(q, k, scale, seen, soft_cap), 1.0
    if soft_cap is not None:
        capped, slope = _scores(q, k, scale, soft_cap)
        t, product = capped / soft_cap, abs(_scores(abs(q), abs(k), scale)[0])
        slope = 1 + t**2 + 2 * abs(t) * slope * product / soft_cap
    scale = abs(q.shape[-1] ** -0.5 if scale is None else scale)
    dp = abs(do) @ abs(_repeated(v, q)).swapaxes(-1, -2)
    ds = scale * slope * p * (dp + (p * dp).sum(-1, keepdims=True))
    dk, dv = ds.swapaxes(-1, -2) @ abs(q), p.swapaxes(-1, -2) @ abs(do)
    return ds @ abs(_repeated(k, q)), _per_head_of_keys(dk, k), _per_head_of_keys(dv, v)


def _in_reach_alone(function, cotangents=0):
    """`function` of the keys in reach; behind the segments' ids, if there are any, it takes so many
    cotangents."""

    def attention(q, k, v, *more, causal=False, scale=None, window=None, soft_cap=None):
        ids, do = more[: len(more) - cotangents], more[len(more) - cotangents :]
        return function(q, k, v, *do, scale, _in_reach(q, k, causal, window, *ids), soft_cap)

    return attention


def _in_blocks_alone(function):
    """`function` of the keys in blocks that a mask keeps."""

    def block_sparse_attention(q, k, v, mask, *do, block, scale=None):
        return function(q, k, v, *do, scale, _in_blocks(q, k, mask, block))

    return block_sparse_attention


attention = _in_reach_alone(_attention)
attention_magnitude = _in_reach_alone(_magnitude)
attention_rounding = _in_reach_alone(_rounding)
attention_gradient_magnitude = _in_reach_alone(_gradient_magnitude, cotangents=1)
block_sparse_attention = _in_blocks_alone(_attention)
block_sparse_attention_magnitude = _in_blocks_alone(_magnitude)
block_sparse_attention_rounding = _in_blocks_alone(_rounding)
block_sparse_attention_gradient_magnitude = _in_blocks_alone(_gradient_magnitude)

# Of the heads in a packed qkv, packed again.
vit_attention = by_rows(attention)
vit_attention_magnitude = by_rows(attention_magnitude)
vit_attention_rounding = by_rows(attention_rounding)


def vit_attention_gradient_magnitude(qkv, num_heads, do, *, scale=None):
    """See attention_gradient_magnitude; those of dq, dk and dv, packed."""
    batch, tokens, _ = do.shape
    do = do.reshape(batch, tokens, num_heads, -1).swapaxes(1, 2)
    return (pack(*attention_gradient_magnitude(*unpack(qkv, num_heads), do, scale=scale)),)
