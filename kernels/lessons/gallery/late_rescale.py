"""Online softmax that adds to its sum first, and rescales it afterwards."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The sum of probabilities is rescaled after the new ones are in it",
    operator="attention",
    caught_by="interpret",
    says="allowed",
    cause="Only what was added under the old maximum has to shrink; new terms know the new one.",
    lesson="With one block nothing is rescaled. A test needs two, and a maximum that grows.",
    workloads=(
        Workload("one_block", {"b": 1, "h": 1, "n": 128, "m": 128, "d": 64}),
        Workload("two_blocks", {"b": 1, "h": 1, "n": 128, "m": 256, "d": 64}),
    ),
)

dot = functools.partial(jnp.dot, precision="highest", preferred_element_type=jnp.float32)


def kernel(q, k, v, *, interpret, repaired=False):
    """[1, 1, n, d], [1, 1, m, d] twice → [1, 1, n, d] for m a multiple of 128."""
    (*_, n, d), m = q.shape, k.shape[2]

    def body(q_ref, k_ref, v_ref, o_ref, max_ref, sum_ref, acc_ref):
        s = d**-0.5 * dot(q_ref[...], k_ref[...].T)
        here = s.max(1, keepdims=True)

        @pl.when(pl.program_id(0) == 0)
        def _():
            max_ref[...] = here
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        before = max_ref[...]
        max_ref[...] = jnp.maximum(before, here)
        p = jnp.exp(s - max_ref[...])
        shrink, new = jnp.exp(before - max_ref[...]), p.sum(1, keepdims=True)
        sum_ref[...] = shrink * sum_ref[...] + new if repaired else shrink * (sum_ref[...] + new)
        acc_ref[...] = shrink * acc_ref[...] + dot(p, v_ref[...])
        o_ref[...] = acc_ref[...] / sum_ref[...]

    keys = pl.BlockSpec((128, d), lambda step: (step, 0))
    whole = pl.BlockSpec((n, d), lambda step: (0, 0))
    o = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, d), q.dtype),
        grid=(m // 128,),
        in_specs=[whole, keys, keys],
        out_specs=whole,
        scratch_shapes=[pltpu.VMEM((n, width), jnp.float32) for width in (1, 1, d)],
        interpret=interpret,
    )(q[0, 0], k[0, 0], v[0, 0])
    return o[None, None]
