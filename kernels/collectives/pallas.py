"""Rings over one or several axes of a mesh, and their gradients: each is the other's.

What is multiplied goes round the first axis alone; along the others, x is gathered before it or
the sums are scattered after it.
"""

import functools

import jax
import jax.numpy as jnp

from kernels.attention import attention
from kernels.collectives import matmul_ring, ring
from kernels.matmul import matmul


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _all_gather(x, names, both, interpret):
    for name in reversed(names):
        size = jax.lax.axis_size(name)
        x = ring.gather(x, name, size, both=both, interpret=interpret)
    return x


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _reduce_scatter(x, names, both, interpret):
    for name in names:
        size = jax.lax.axis_size(name)
        x = ring.scatter(x, name, size, both=both, interpret=interpret)
    return x


_all_gather.defvjp(
    lambda *arguments: (_all_gather(*arguments), None),
    lambda names, both, interpret, _, dy: (_reduce_scatter(dy, names, both, interpret),),
)
_reduce_scatter.defvjp(
    lambda *arguments: (_reduce_scatter(*arguments), None),
    lambda names, both, interpret, _, dy: (_all_gather(dy, names, both, interpret),),
)


def _names(axis_name):
    return axis_name if isinstance(axis_name, tuple) else (axis_name,)


def all_gather(x, axis_name, *, both=True, interpret=None):
    """[rows, columns] → [devices · rows, columns], in both directions of the ring or in one."""
    return _all_gather(x, _names(axis_name), both, interpret)


def reduce_scatter(x, axis_name, *, both=True, interpret=None):
    """[devices · rows, columns] → [rows, columns], in both directions of the ring or in one."""
    return _reduce_scatter(x, _names(axis_name), both, interpret)


all_gather_one_way = functools.partial(all_gather, both=False)
reduce_scatter_one_way = functools.partial(reduce_scatter, both=False)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _all_gather_matmul(x, w, names, interpret):
    x, size = _all_gather(x, names[1:], True, interpret), jax.lax.axis_size(names[0])
    if size == 1:
        return matmul(x, w, interpret=interpret)
    return matmul_ring.gather_matmul(x, w, names[0], size, interpret=interpret)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _matmul_reduce_scatter(x, w, names, interpret):
    size = jax.lax.axis_size(names[0])
    if size == 1:
        total = matmul(x, w, interpret=interpret)
    else:
        total = matmul_ring.matmul_scatter(x, w, names[0], size, interpret=interpret)
    return _reduce_scatter(total, names[1:], True, interpret)


def _gather_backward(names, interpret, saved, dy):
    """dx is the rows of the sum of dy wᵀ; dw is xᵀ dy, of all rows of x."""
    x, w = saved
    dx = _matmul_reduce_scatter(dy, w.T, names, interpret)
    return dx, matmul(_all_gather(x, names, True, interpret).T, dy, implementation="xla")


def _scatter_backward(names, interpret, saved, dy):
    """dx is the rows of all dy, times wᵀ; dw is xᵀ dy, of all rows of dy."""
    x, w = saved
    dx = _all_gather_matmul(dy, w.T, names, interpret)
    return dx, matmul(x.T, _all_gather(dy, names, True, interpret), implementation="xla")


_all_gather_matmul.defvjp(lambda *a: (_all_gather_matmul(*a), a[:2]), _gather_backward)
_matmul_reduce_scatter.defvjp(lambda *a: (_matmul_reduce_scatter(*a), a[:2]), _scatter_backward)


def all_gather_matmul(x, w, axis_name, *, interpret=None):
    """[rows, k], [k, columns] → [devices · rows, columns]."""
    return _all_gather_matmul(x, w, _names(axis_name), interpret)


def matmul_reduce_scatter(x, w, axis_name, *, interpret=None):
    """[devices · rows, k], [k, columns] → [rows, columns]."""
    return _matmul_reduce_scatter(x, w, _names(axis_name), interpret)


def gathered_attention(q, k, v, axis_name, *, scale, interpret=None):
    """[B, H, N, D] each → [B, H, N, D]: first the keys and values of all, then flash attention."""
    parts = jnp.stack([k, v])
    rows = all_gather(parts.reshape(-1, k.shape[3]), axis_name, interpret=interpret)
    parts = jnp.moveaxis(rows.reshape(-1, *parts.shape), 0, 3)
    k, v = parts.reshape(2, *k.shape[:2], -1, k.shape[3])
    return attention(q, k, v, scale=scale, interpret=interpret)
