"""The oracles, in float64, of whole arrays: their first dimension is the devices'."""

import functools

from kernels.attention import reference as attention
from kernels.collectives.sequence import zigzag


def _of_parts(function):
    """The oracle of attention, of a sequence that lies in parts [devices, B, H, N, D]."""

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


def _of_sizes(function):
    """The sums of absolute values: of products, and, where nothing is added up, of gradients."""
    return lambda *arrays: function(*map(abs, arrays))


ring_attention = _of_parts(attention.attention)
ring_attention_magnitude = _of_parts(attention.attention_magnitude)
ring_attention_rounding = _of_parts(attention.attention_rounding)
ring_attention_gradient_magnitude = _of_parts(attention.attention_gradient_magnitude)


def all_gather(x):
    """[devices, rows, columns] → [devices, devices · rows, columns]: all rows, for each device."""
    devices, _, columns = x.shape
    return x.reshape(1, -1, columns).repeat(devices, 0)


def all_to_all(x, sizes):
    """[devices, devices, rows, columns], int32 [devices, devices] → what each device gets of each:
    the first sizes[from, to] rows, and then zeros."""
    xp = x.__array_namespace__()
    sent = xp.arange(x.shape[2]) < sizes[..., None]
    return xp.where(sent[..., None], x, 0).swapaxes(0, 1)


def reduce_scatter(x):
    """[devices, devices · rows, columns] → [devices, rows, columns]: the sum over the devices."""
    devices, _, columns = x.shape
    return x.sum(0).reshape(devices, -1, columns)


def all_gather_matmul(x, w):
    """[devices, rows, k], [devices, k, columns] → [devices, devices · rows, columns]."""
    return x.reshape(1, -1, x.shape[2]) @ w


def matmul_reduce_scatter(x, w):
    """[devices, devices · rows, k], [devices, k, columns] → [devices, rows, columns]."""
    return reduce_scatter(x @ w)


all_gather_magnitude = _of_sizes(all_gather)
all_to_all_magnitude = _of_sizes(all_to_all)
reduce_scatter_magnitude = _of_sizes(reduce_scatter)
all_gather_matmul_magnitude = _of_sizes(all_gather_matmul)
matmul_reduce_scatter_magnitude = _of_sizes(matmul_reduce_scatter)
