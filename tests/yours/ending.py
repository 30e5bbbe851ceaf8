"""Kernels that somebody could bring, and that end the process that runs them, or never end."""

import os
import time

import jax.numpy as jnp
import numpy as np
from brought import by_rows, normalise, rows, softmax_reference

import kernels


@kernels.proves(softmax_reference, arguments=rows)
def endless(x):
    while True:
        time.sleep(1)


@kernels.proves(softmax_reference, arguments=rows, values=("given",))
def aborting(x):
    os.abort()


@kernels.proves(softmax_reference, arguments=rows, values=("given",))
def devouring(x):
    kept = []
    while True:
        kept.append(np.empty(1 << 24))


@kernels.proves(softmax_reference, arguments=rows, values=("given",))
def vast(x):
    """Asks XLA for 4 TiB."""
    return by_rows(normalise, x) + jnp.ones((1 << 40,)).sum() * 0
