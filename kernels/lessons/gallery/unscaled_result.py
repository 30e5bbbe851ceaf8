"""A matmul a million times too large, which a test by cosine lets pass."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

LARGER = 1e6

BUG = Bug(
    title="The result is a million times too large, and its cosine is perfect",
    operator="matmul",
    caught_by="interpret",
    says="allowed",
    cause="The factor that lifts small numbers out of rounding's reach is never taken back.",
    lesson="A cosine compares directions: it is 1 for any factor. Judge each element by its size.",
    workloads=(Workload("square", {"m": 128, "k": 128, "n": 128}),),
)


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n], in one block."""

    def body(x_ref, y_ref, z_ref):
        z = jnp.dot(LARGER * x_ref[...], y_ref[...], precision="highest")
        z_ref[...] = z / LARGER if repaired else z

    out = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    return pl.pallas_call(body, out_shape=out, interpret=interpret)(x, y)


def cosine(found, expected):
    """Of the angle between two arrays: the test that is fooled."""
    a, b = (np.ravel(np.asarray(x, np.float64)) for x in (found, expected))
    return a @ b / np.sqrt((a @ a) * (b @ b))
