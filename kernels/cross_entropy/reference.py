"""The oracle. NumPy or JAX arrays in, in float64; so it can be differentiated too.

A loss is a difference, log Σ exp(logits) − logits[label], which vanishes where the label is nearly
sure. So its error is judged by what goes into both: an error of a logit counts by its probability.
"""


def _logits(x, w, labels):
    """[T, V], and bool [T, V]: which one is the label's."""
    xp = x.__array_namespace__()
    return x @ w, xp.arange(w.shape[1]) == xp.asarray(labels)[:, None]


def _probabilities(s):
    """softmax(s) and log Σ exp(s), over the last axis."""
    xp = s.__array_namespace__()
    largest = xp.max(s, axis=-1, keepdims=True)
    p = xp.exp(s - largest)
    total = xp.sum(p, axis=-1, keepdims=True)
    return p / total, (largest + xp.log(total))[:, 0]


def linear_cross_entropy(x, w, labels):
    """−log softmax(x w)[label], in the precision of the arguments."""
    s, own = _logits(x, w, labels)
    xp = x.__array_namespace__()
    return _probabilities(s)[1] - xp.sum(xp.where(own, s, 0), axis=-1)


def linear_cross_entropy_magnitude(x, w, labels):
    """Sums of the absolute values behind the logits, by how much the loss changes with each.

    The sum of exponentials has a relative error, which is an absolute one of its logarithm: 1.
    """
    s, own = _logits(x, w, labels)
    return 1 + ((_probabilities(s)[0] + own) * (abs(x) @ abs(w))).sum(-1)


def linear_cross_entropy_gradient_magnitude(x, w, labels, do):
    """The same sums for dx = ds wᵀ and dw = xᵀ ds, where ds = do (p − 1 at the label).

    p and 1 nearly cancel where the label is nearly sure: each counts by itself.
    """
    s, own = _logits(x, w, labels)
    p, sizes = _probabilities(s)[0], abs(x) @ abs(w)
    ds = abs(do)[:, None] * (p * (1 + sizes + (p * sizes).sum(-1, keepdims=True)) + own)
    return ds @ abs(w).T, abs(x).T @ ds
