"""The oracles, in float64, of whole arrays: their first dimension is the devices'."""

from kernels.collectives.attention_reference import (
    ring_attention,
    ring_attention_gradient_magnitude,
    ring_attention_magnitude,
    ring_attention_rounding,
)

__all__ = [
    "all_gather",
    "all_gather_magnitude",
    "reduce_scatter",
    "reduce_scatter_magnitude",
    "ring_attention",
    "ring_attention_gradient_magnitude",
    "ring_attention_magnitude",
    "ring_attention_rounding",
]


def all_gather(x):
    """[devices, rows, columns] → [devices, devices · rows, columns]: all rows, for each device."""
    devices, _, columns = x.shape
    return x.reshape(1, -1, columns).repeat(devices, 0)


def all_gather_magnitude(x):
    """Its gradient is a sum."""
    return all_gather(abs(x))


def reduce_scatter(x):
    """[devices, devices · rows, columns] → [devices, rows, columns]: the sum over the devices."""
    devices, _, columns = x.shape
    return x.sum(0).reshape(devices, -1, columns)


def reduce_scatter_magnitude(x):
    """The sum of the absolute values."""
    return reduce_scatter(abs(x))


def all_gather_matmul(x, w):
    """[devices, rows, k], [devices, k, columns] → [devices, devices · rows, columns]."""
    return x.reshape(1, -1, x.shape[2]) @ w


def all_gather_matmul_magnitude(x, w):
    """The sum of the absolute values."""
    return all_gather_matmul(abs(x), abs(w))


def matmul_reduce_scatter(x, w):
    """[devices, devices · rows, k], [devices, k, columns] → [devices, rows, columns]."""
    return reduce_scatter(x @ w)


def matmul_reduce_scatter_magnitude(x, w):
    """The sum of the absolute values."""
    return matmul_reduce_scatter(abs(x), abs(w))
