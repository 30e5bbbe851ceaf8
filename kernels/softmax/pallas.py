"""Softmax on a TPU, forward and backward: x is read once where a few rows of it fit into VMEM.

Between the two, x alone is kept: the backward pass reads it instead of the result, and makes the
row's maximum and sum again while it looks for the sum that it needs anyway.
"""

import jax.numpy as jnp

from kernels.machines.tpu.row_kernel import RowKernel, along_rows

LOWEST = float(jnp.finfo(jnp.float32).min)  # a maximum that may be subtracted from −∞


def _start(keep, count, x):
    x = keep(x, -jnp.inf)
    top = jnp.maximum(x.max(1, keepdims=True), LOWEST)
    return top, jnp.exp(x - top).sum(1, keepdims=True)


def _merge(one, other):
    """Sums of exp(x − top) under the larger of two maxima; the smaller one's shrink."""
    top = jnp.maximum(one[0], other[0])
    shrink = [jnp.exp(known[0] - top) for known in (one, other)]
    return top, *(shrink[0] * a + shrink[1] * b for a, b in zip(one[1:], other[1:]))


def _finish(known, x):
    top, total = known
    return (jnp.exp(x - top) * (1 / total),)


def _start_backward(keep, count, x, dy):
    x = keep(x, -jnp.inf)
    top = jnp.maximum(x.max(1, keepdims=True), LOWEST)
    powers = jnp.exp(x - top)
    return top, powers.sum(1, keepdims=True), (powers * keep(dy)).sum(1, keepdims=True)


def _finish_backward(known, x, dy):
    top, total, product = known
    inverse = 1 / total
    return (jnp.exp(x - top) * inverse * (dy - product * inverse),)


FORMS = (
    RowKernel("softmax_forward", 2, _start, _merge, _finish),
    RowKernel("softmax_backward", 3, _start_backward, _merge, _finish_backward),
)


def softmax(x, *, block=None, interpret=None):
    """[..., n] → [..., n], along the last axis."""
    return along_rows(lambda n: FORMS, x, block=block, interpret=interpret)
