"""Marked kernels for the command: a right one, one that never ends, one that eats the memory."""

import jax
import numpy as np
from jax.experimental import pallas as pl

import kernels


def arguments(rng):
    return (rng.standard_normal((32, 128)).astype(np.float32),)


def double(x):
    return x * 2


def by_rows(body, x):
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        body, out_shape=out, grid=(x.shape[0] // 8,), in_specs=[spec], out_specs=spec
    )(x)


def twice(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


@kernels.proves(double, arguments=arguments)
def right(x):
    return by_rows(twice, x)


@kernels.proves(double, arguments=arguments)
def endless(x):
    while True:
        pass


@kernels.proves(double, arguments=arguments)
def hungry(x):
    return by_rows(twice, x) + np.ones(1 << 33, np.uint8)[:1].astype(np.float32)
