"""The oracle, in float64: a sequence at a time, its pages laid end to end.

Its magnitude and rounding are those of kernels.attention's oracle: an error in a score is a
relative error of its probability, and the other probabilities share it.
"""

import numpy as np


def _sequences(q, k_pages, v_pages, lengths, page_table, starts):
    """Of each sequence, its rows, q [Hkv, group, rows, D], and k and v [Hkv, 1, tokens, D] as far
    as it is long."""
    hkv, _, page, d = k_pages.shape
    for s, length in enumerate(np.asarray(lengths)):
        rows = slice(starts[s], starts[s + 1])
        pages = np.asarray(page_table)[s, : -(-length // page)]
        if length and rows.start < rows.stop:
            k, v = (x[:, pages].reshape(hkv, 1, -1, d)[:, :, :length] for x in (k_pages, v_pages))
            yield rows, q[rows].reshape(-1, hkv, q.shape[1] // hkv, d).transpose(1, 2, 0, 3), k, v


def _by_sequence(combine):
    """The operator of combine(p, s, v): p and s [Hkv, group, rows, tokens], the probabilities and
    the sums of the absolute values of a score's terms; v [Hkv, 1, tokens, D]; zeros for no token.
    A sequence's rows are its last tokens, and see no later one."""

    def function(q, k_pages, v_pages, lengths, page_table, query_starts=None, *, scale=None):
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        starts = np.arange(len(q) + 1) if query_starts is None else np.asarray(query_starts)
        o = np.zeros(q.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            for rows, *heads, v in _sequences(q, k_pages, v_pages, lengths, page_table, starts):
                queries, k = heads
                seen = np.tri(queries.shape[2], k.shape[2], k.shape[2] - queries.shape[2], bool)
                scores = np.where(seen, scale * (queries @ k.swapaxes(2, 3)), -np.inf)
                p = np.exp(scores - scores.max(-1, keepdims=True))
                p /= p.sum(-1, keepdims=True)
                s = abs(scale) * (abs(queries) @ abs(k).swapaxes(2, 3))
                o[rows] = combine(p, s, v).transpose(2, 0, 1, 3).reshape(o[rows].shape)
        return o

    return function


paged_attention = ragged_paged_attention = _by_sequence(lambda p, s, v: p @ v)
paged_attention_magnitude = ragged_paged_attention_magnitude = _by_sequence(
    lambda p, s, v: (p * (1 + s + (p * s).sum(-1, keepdims=True))) @ abs(v)
)
paged_attention_rounding = ragged_paged_attention_rounding = _by_sequence(
    lambda p, s, v: (p**2 @ v**2) ** 0.5
)
