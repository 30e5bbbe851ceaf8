"""RMS norm and layer norm on a TPU, forward and backward, on kernels.machines.tpu.row_kernel.

Between the two, no statistic is kept: the backward pass has to read x anyway, and makes each again
where it adds up the products that it needs. A float32 for each row would be cheap to keep on a GPU;
on a TPU it fills a lane of 128.
"""

import jax
import jax.numpy as jnp

from kernels.machines.tpu.row_kernel import RowKernel, along_rows


def _sum(values):
    return values.sum(1, keepdims=True)


def _added(one, other):
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _rms(n, eps):
    """Forward and backward; a row is known by its sum of squares, and by that of x dy w."""

    def start(keep, count, x, weight):
        return (_sum(keep(x) ** 2),)

    def finish(known, x, weight):
        return (x * jax.lax.rsqrt(known[0] / n + eps) * weight,)

    def start_backward(keep, count, x, dy, weight):
        x = keep(x)
        return _sum(x**2), _sum(x * keep(dy * weight))

    def finish_backward(known, x, dy, weight):
        squares, products = known
        scale = jax.lax.rsqrt(squares / n + eps)
        x = x * scale
        return scale * (dy * weight - x * (products * scale / n)), dy * x

    return (
        RowKernel("rms_norm_forward", 1, start, _added, finish),
        RowKernel("rms_norm_backward", 2, start_backward, _added, finish_backward),
    )


def _layer(n, eps):
    """Forward and backward. A row is known by its number of elements, its mean and the sum of its
    squared distances from it; backward also by the sums of g = dy w and of g times the distances.
    Two parts are merged by how far apart their means are, so that nothing large cancels."""

    def start(keep, count, x, weight, bias):
        return moments(keep, count, x)[1]

    def moments(keep, count, x):
        mean = _sum(keep(x)) / count
        distance = keep(x - mean)
        return distance, (jnp.full(mean.shape, count, jnp.float32), mean, _sum(distance**2))

    def merge(one, other):
        (count, mean, squares), (more, mean_more, squares_more) = one[:3], other[:3]
        both = count + more
        apart = mean_more - mean
        shift = apart * (more / both)  # from the first mean to that of both
        squares = squares + squares_more + apart * shift * count
        if len(one) == 3:
            return both, mean + shift, squares
        (g, products), (g_more, products_more) = one[3:], other[3:]
        products = products + products_more + g_more * (apart - shift) - g * shift
        return both, mean + shift, squares, g + g_more, products

    def finish(known, x, weight, bias):
        _, mean, squares = known
        return ((x - mean) * jax.lax.rsqrt(squares / n + eps) * weight + bias,)

    def start_backward(keep, count, x, dy, weight):
        distance, known = moments(keep, count, x)
        g = keep(dy * weight)
        return *known, _sum(g), _sum(g * distance)

    def finish_backward(known, x, dy, weight):
        _, mean, squares, g, products = known
        scale = jax.lax.rsqrt(squares / n + eps)
        x = (x - mean) * scale
        return scale * (dy * weight - g / n - x * (products * scale / n)), dy * x, dy

    return (
        RowKernel("layer_norm_forward", 3, start, merge, finish),
        RowKernel("layer_norm_backward", 5, start_backward, merge, finish_backward),
    )


def rms_norm(x, weight, *, eps, block=None, interpret=None):
    """[..., n], [n] → [..., n]."""
    return along_rows(_rms, x, weight, eps=float(eps), block=block, interpret=interpret)


def layer_norm(x, weight, bias, *, eps, block=None, interpret=None):
    """[..., n], [n], [n] → [..., n]."""
    return along_rows(_layer, x, weight, bias, eps=float(eps), block=block, interpret=interpret)
