"""Rings over one or several axes of a mesh, and their gradients: each is the other's."""

import functools

import jax

from kernels.collectives import ring


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


def _saving_nothing(function):
    return lambda *arguments: (function(*arguments), None)


_all_gather.defvjp(
    _saving_nothing(_all_gather),
    lambda *arguments: (_reduce_scatter(arguments[-1], *arguments[:3]),),
)
_reduce_scatter.defvjp(
    _saving_nothing(_reduce_scatter),
    lambda *arguments: (_all_gather(arguments[-1], *arguments[:3]),),
)


def _names(axis_name):
    return axis_name if isinstance(axis_name, tuple) else (axis_name,)


def all_gather(x, axis_name, *, interpret=None):
    """[rows, columns] → [devices · rows, columns], in both directions of the ring."""
    return _all_gather(x, _names(axis_name), True, interpret)


def all_gather_one_way(x, axis_name, *, interpret=None):
    """[rows, columns] → [devices · rows, columns], in one direction."""
    return _all_gather(x, _names(axis_name), False, interpret)


def reduce_scatter(x, axis_name, *, interpret=None):
    """[devices · rows, columns] → [rows, columns], in both directions of the ring."""
    return _reduce_scatter(x, _names(axis_name), True, interpret)


def reduce_scatter_one_way(x, axis_name, *, interpret=None):
    """[devices · rows, columns] → [rows, columns], in one direction."""
    return _reduce_scatter(x, _names(axis_name), False, interpret)
