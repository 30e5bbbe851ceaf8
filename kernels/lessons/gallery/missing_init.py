"""An accumulator that nobody sets to zero."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The accumulator is never set to zero",
    operator="matmul",
    caught_by="interpret",
    says="not finite",
    cause="Scratch memory holds whatever the kernel before it left there.",
    lesson="Memory is garbage until you write it. Both interpreters fill it with NaN to show that.",
    workloads=(Workload("two_steps", {"m": 128, "k": 256, "n": 128}),),
)


def kernel(x, y, *, interpret, repaired=False):
    """[m, k], [k, n] → [m, n], all multiples of 128."""
    (m, k), n = x.shape, y.shape[1]

    def body(x_ref, y_ref, z_ref, acc_ref):
        if repaired:

            @pl.when(pl.program_id(2) == 0)
            def _():
                acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(x_ref[...], y_ref[...], precision="highest")
        z_ref[...] = acc_ref[...]

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // 128, n // 128, k // 128),
        in_specs=[
            pl.BlockSpec((128, 128), lambda i, j, step: (i, step)),
            pl.BlockSpec((128, 128), lambda i, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda i, j, step: (i, j)),
        scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32)],
        interpret=interpret,
    )(x, y)
