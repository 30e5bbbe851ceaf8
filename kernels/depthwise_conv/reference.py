"""The oracle. NumPy or JAX arrays in, in float64; so it can be differentiated too.

It holds all B · C · T² products at once, so it is for small problems. A product that does not
belong to a sum is dropped and not multiplied by zero: NaN and infinity stay where they belong.
"""


def depthwise_conv(w, k, eps=0.0):
    """[C, T], [B, C, T] → [B, C, T]: eps + Σ_{u ≤ t} w[c, (T-1) - (t-u)] · k[b, c, u]."""
    xp = k.__array_namespace__()
    t, u = xp.arange(k.shape[-1])[:, None], xp.arange(k.shape[-1])
    causal = u <= t
    weights = w[:, xp.where(causal, k.shape[-1] - 1 - (t - u), 0)]  # [C, T, T], a Toeplitz matrix
    return eps + xp.sum(xp.where(causal, weights * k[:, :, None, :], 0), axis=-1)


def depthwise_conv_magnitude(w, k, eps=0.0):
    """The sum of the absolute values of all that each element adds up."""
    return depthwise_conv(abs(w), abs(k), abs(eps))
