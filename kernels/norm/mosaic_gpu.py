"""RMS norm and layer norm for a Hopper GPU, through Mosaic GPU; backward they are XLA's.

Between the two, no statistic is kept: XLA reads x anyway, and makes each again.
"""

import functools

import jax
import jax.numpy as jnp

from kernels.machines.gpu import row_kernel
from kernels.machines.gpu.interpreted import interprets
from kernels.norm import xla


def _rms(n, eps):
    def compute(keep, x, weight):  # behind the row's end stand zeros
        return x * jax.lax.rsqrt((x * x).sum() / n + eps) * weight

    return compute


def _layer(n, eps):
    def compute(keep, x, weight, bias):
        mean = x.sum() / n
        mean += keep(x - mean).sum() / n  # what that sum rounded off is large where x hardly varies
        x = keep(x - mean)
        return x * jax.lax.rsqrt((x * x).sum() / n + eps) * weight + bias

    return compute


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _norm(plain, eps, interpret, x, *vectors):
    form = _rms if plain is xla.rms_norm else _layer
    compute = form(x.shape[1], eps)
    return row_kernel.call(plain.__name__, compute, x, vectors, interpret=interpret)


def _backward(plain, eps, interpret, saved, dy):
    return jax.vjp(functools.partial(plain, eps=eps), *saved)[1](dy)


_norm.defvjp(lambda *arguments: (_norm(*arguments), arguments[3:]), _backward)


def _run(plain, x, vectors, eps, interpret):
    x, *vectors = map(jnp.asarray, (x, *vectors))
    flat = x.reshape(-1, x.shape[-1])
    return _norm(plain, float(eps), interprets(interpret), flat, *vectors).reshape(x.shape)


def rms_norm(x, weight, *, eps, interpret=None):
    """[..., n], [n] → [..., n]; rows of at most row_kernel.LONGEST bytes."""
    return _run(xla.rms_norm, x, [weight], eps, interpret)


def layer_norm(x, weight, bias, *, eps, interpret=None):
    """[..., n], [n], [n] → [..., n]; rows of at most row_kernel.LONGEST bytes."""
    return _run(xla.layer_norm, x, [weight, bias], eps, interpret)
