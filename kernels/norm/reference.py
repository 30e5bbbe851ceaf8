"""The oracles. NumPy or JAX arrays, in the precision of the arguments; so JAX differentiates them.

The gradients of a norm are differences of terms that nearly cancel: each counts by itself.
"""


def _centred(x):
    return x - x.mean(-1, keepdims=True)


def _scale(x, eps):
    return ((x * x).mean(-1, keepdims=True) + eps) ** -0.5


def rms_norm(x, weight, *, eps=1e-6):
    """x over the root of the mean of its squares, times the weight; [..., n], [n] → [..., n]."""
    return x * _scale(x, eps) * weight


def layer_norm(x, weight, bias, *, eps=1e-5):
    """x less its mean over its standard deviation, scaled and shifted; [..., n] → [..., n]."""
    x = _centred(x)
    return x * _scale(x, eps) * weight + bias


def layer_norm_magnitude(x, weight, bias, *, eps=1e-5):
    """What it adds up: x and its mean, and the bias."""
    size = abs(x) + abs(x.mean(-1, keepdims=True))
    return size * _scale(_centred(x), eps) * abs(weight) + abs(bias)


def rms_norm_gradient_magnitude(x, weight, dy, *, eps=1e-6):
    """Those of dx and dweight; see _sizes."""
    return _sizes(abs(x), _scale(x, eps), weight, dy)


def layer_norm_gradient_magnitude(x, weight, bias, dy, *, eps=1e-5):
    """Those of dx, dweight and dbias; see _sizes."""
    size = abs(x) + abs(x.mean(-1, keepdims=True))
    dx, dweight = _sizes(size, _scale(_centred(x), eps), weight, dy, centred=True)
    return dx, dweight, _over_rows(abs(dy))


def _sizes(size, scale, weight, dy, centred=False):
    """Of dx = s (g − x̂ mean(g x̂)) with g = dy w and x̂ = s x, or less the mean of g too; and of
    dw = Σ dy x̂ over the rows. size: of x, or of what is left where its mean is subtracted."""
    normal, g = size * scale, abs(dy * weight)
    dx = g + normal * (g * normal).mean(-1, keepdims=True)
    if centred:
        dx = dx + g.mean(-1, keepdims=True)
    return scale * dx, _over_rows(abs(dy) * normal)


def _over_rows(terms):
    return terms.sum(tuple(range(terms.ndim - 1)))
