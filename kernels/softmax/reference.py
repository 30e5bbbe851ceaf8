"""The oracle. NumPy or JAX arrays, in the precision of the argument; so JAX differentiates it."""

import numpy as np


def softmax(x):
    """[..., n] → [..., n], along the last axis."""
    with np.errstate(invalid="ignore"):
        powers = x.__array_namespace__().exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)


def softmax_gradient_magnitude(x, dy):
    """What dx = y (dy − Σ y dy) adds up. An error of x − max, which exp makes a relative error of
    y, counts by itself."""
    y = softmax(x)
    distance = np.where(y > 0, x.max(-1, keepdims=True) - x, 0)
    y = y * (1 + distance + (y * distance).sum(-1, keepdims=True))
    return (y * (abs(dy) + (y * abs(dy)).sum(-1, keepdims=True)),)
