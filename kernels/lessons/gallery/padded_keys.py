"""Attention whose last block of keys is filled up with zeros, which take part."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="Keys of zeros fill up the last block, and are not masked",
    operator="attention",
    caught_by="interpret",
    says="allowed",
    cause="A product with zeros adds nothing to a matmul. A score of 0 adds exp(0 - m) to a sum.",
    lesson="Padding that is neutral to one operation is not to the next: mask it where it counts.",
    workloads=(
        Workload("whole", {"b": 1, "h": 1, "n": 128, "m": 256, "d": 64}),
        Workload("ragged", {"b": 1, "h": 1, "n": 128, "m": 200, "d": 64}),
    ),
)

dot = functools.partial(jnp.dot, precision="highest", preferred_element_type=jnp.float32)


def kernel(q, k, v, *, interpret, repaired=False):
    """[1, 1, n, d], [1, 1, m, d] twice → [1, 1, n, d], any m."""
    (*_, n, d), m = q.shape, k.shape[2]
    k, v = (jnp.pad(x[0, 0], ((0, -m % 128), (0, 0))) for x in (k, v))

    def body(q_ref, k_ref, v_ref, o_ref, max_ref, sum_ref, acc_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            max_ref[...] = jnp.full_like(max_ref, -jnp.inf)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        s = d**-0.5 * dot(q_ref[...], k_ref[...].T)
        if repaired:
            key = pl.program_id(0) * 128 + lax.broadcasted_iota(jnp.int32, s.shape, 1)
            s = jnp.where(key < m, s, -1e30)
        before = max_ref[...]
        max_ref[...] = jnp.maximum(before, s.max(1, keepdims=True))
        p = jnp.exp(s - max_ref[...])
        shrink = jnp.exp(before - max_ref[...])
        sum_ref[...] = shrink * sum_ref[...] + p.sum(1, keepdims=True)
        acc_ref[...] = shrink * acc_ref[...] + dot(p, v_ref[...])
        o_ref[...] = acc_ref[...] / sum_ref[...]

    keys = pl.BlockSpec((128, d), lambda step: (step, 0))
    whole = pl.BlockSpec((n, d), lambda step: (0, 0))
    o = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, d), q.dtype),
        grid=(pl.cdiv(m, 128),),
        in_specs=[whole, keys, keys],
        out_specs=whole,
        scratch_shapes=[pltpu.VMEM((n, width), jnp.float32) for width in (1, 1, d)],
        interpret=interpret,
    )(q[0, 0], k, v)
    return o[None, None]
