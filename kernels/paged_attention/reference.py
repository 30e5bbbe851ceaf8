"""The oracle, in float64: a sequence at a time, its pages laid end to end.

Its magnitude and rounding are those of kernels.attention's oracle: an error in a score is a
relative error of its probability, and the other probabilities share it.
"""

import numpy as np


def _sequences(q, k_pages, v_pages, lengths, page_table):
    """Of each sequence, its place and q [Hkv, group, D], k and v [Hkv, tokens, D] as far as it is
    long."""
    (hkv, _, page, d), group = k_pages.shape, q.shape[1] // k_pages.shape[0]
    for place, length in enumerate(np.asarray(lengths)):
        pages = np.asarray(page_table)[place, : -(-length // page)]
        if length:
            k, v = (x[:, pages].reshape(hkv, -1, d)[:, :length] for x in (k_pages, v_pages))
            yield place, q[place].reshape(hkv, group, d), k, v


def _by_sequence(combine):
    """The operator of combine(p, s, v): p and s [Hkv, group, tokens], the probabilities and the
    sums of the absolute values of a score's terms; v [Hkv, tokens, D]; zeros for no token."""

    def function(q, k_pages, v_pages, lengths, page_table, *, scale=None):
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        o = np.zeros(q.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            for place, *heads, v in _sequences(q, k_pages, v_pages, lengths, page_table):
                queries, k = heads
                scores = scale * (queries @ k.swapaxes(1, 2))
                p = np.exp(scores - scores.max(-1, keepdims=True))
                p /= p.sum(-1, keepdims=True)
                s = abs(scale) * (abs(queries) @ abs(k).swapaxes(1, 2))
                o[place] = combine(p, s, v).reshape(o[place].shape)
        return o

    return function


paged_attention = _by_sequence(lambda p, s, v: p @ v)
paged_attention_magnitude = _by_sequence(
    lambda p, s, v: (p * (1 + s + (p * s).sum(-1, keepdims=True))) @ abs(v)
)
paged_attention_rounding = _by_sequence(lambda p, s, v: (p**2 @ v**2) ** 0.5)
