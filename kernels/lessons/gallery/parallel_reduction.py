"""A reduction along a dimension that is promised to be parallel."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title='The sum over k is declared "parallel"',
    operator="matmul",
    caught_by="simulate",
    says="race",
    cause="Each step adds to the one before it, and the promise lets them run in any order, "
    "on any core.",
    lesson="interpret=True runs the grid in order and ignores the promise. Shuffle it.",
    workloads=(Workload("four_steps", {"m": 128, "k": 512, "n": 128}),),
)


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n]; k a multiple of 128."""
    (m, k), n = x.shape, y.shape[1]

    def body(x_ref, y_ref, z_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            z_ref[...] = jnp.zeros_like(z_ref)

        z_ref[...] += jnp.dot(x_ref[...], y_ref[...], precision="highest")

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(k // 128,),
        in_specs=[
            pl.BlockSpec((m, 128), lambda step: (0, step)),
            pl.BlockSpec((128, n), lambda step: (step, 0)),
        ],
        out_specs=pl.BlockSpec((m, n), lambda step: (0, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary" if repaired else "parallel",)
        ),
        interpret=interpret,
    )(x, y)
