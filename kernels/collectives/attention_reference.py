"""The oracle of ring attention, in float64: that of attention, of one device's whole sequence.

Arrays are whole: [devices, B, H, N, D].
"""

import functools

from kernels.attention import reference
from kernels.collectives.sequence import zigzag


def _of_parts(function):
    @functools.wraps(function)
    def whole(*parts, causal=False, scale=None):
        devices, batch, heads, tokens, head_dim = parts[0].shape
        xp = parts[0].__array_namespace__()

        def together(x):
            x = xp.moveaxis(x, 0, 2).reshape(batch, heads, devices * tokens, head_dim)
            return zigzag(x, devices, back=True) if causal else x

        def apart(x):
            x = zigzag(x, devices) if causal else x
            return xp.moveaxis(x.reshape(batch, heads, devices, tokens, head_dim), 2, 0)

        result = function(*map(together, parts), causal=causal, scale=scale)
        return tuple(map(apart, result)) if isinstance(result, tuple) else apart(result)

    return whole


ring_attention = _of_parts(reference.attention)
ring_attention_magnitude = _of_parts(reference.attention_magnitude)
ring_attention_rounding = _of_parts(reference.attention_rounding)
ring_attention_gradient_magnitude = _of_parts(reference.attention_gradient_magnitude)
