"""Kernels that the tests launch, here and in child processes, which import them from this file."""

import os
import time

import numpy as np

from kernels import taichi

ti = taichi.module()


@ti.kernel
def double(x: ti.types.ndarray(ndim=1), out: ti.types.ndarray(ndim=1)):
    for i in range(x.shape[0]):
        out[i] = x[i] + x[i]


@ti.kernel
def beyond(x: ti.types.ndarray(ndim=1), out: ti.types.ndarray(ndim=1)):
    for i in range(x.shape[0] + 1):
        out[i] = x[i]


def doubled(x):
    """[n] → [n]"""
    out = taichi.empty(x.shape, x)
    taichi.launch(double, x, out, shapes={"out": x.shape})
    return out


def too_far(x):
    out = taichi.empty(x.shape, x)
    taichi.launch(beyond, x, out)
    return out


def unwritten(x):
    return taichi.empty(x.shape, x)


def dies(x):
    print("these are its last words", flush=True)
    os.abort()


def refuses(x):
    """Raises as a public function does."""
    raise ValueError("x is wrong; accepted: what is right")


def sleeps(x):
    time.sleep(1000)


def told(x):
    """How Taichi runs in this process."""
    state = taichi.start()
    return np.array([state.threads, state.debug])
