"""Online softmax with the maximum of the first block of keys for all blocks."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

SIZES = {"b": 1, "h": 1, "n": 128, "m": 256, "d": 64}

BUG = Bug(
    title="The maximum is that of the first block of keys",
    operator="attention",
    caught_by="interpret",
    says="not finite",
    cause="In exact arithmetic any number may be subtracted. In float32, exp overflows above 88.",
    lesson="Normal random numbers never show it. Test with logits of hundreds.",
    workloads=(
        Workload("small_logits", SIZES),
        Workload("large_logits", SIZES, values="wide", options={"scale": 1.0}),
    ),
)

dot = functools.partial(jnp.dot, precision="highest", preferred_element_type=jnp.float32)


def kernel(q, k, v, *, interpret, scale=None, repaired=False):
    """[1, 1, n, d], [1, 1, m, d] twice → [1, 1, n, d] for m a multiple of 128."""
    (*_, n, d), m = q.shape, k.shape[2]
    scale = d**-0.5 if scale is None else scale

    def body(q_ref, k_ref, v_ref, o_ref, max_ref, sum_ref, acc_ref):
        s = scale * dot(q_ref[...], k_ref[...].T)
        here = s.max(1, keepdims=True)

        @pl.when(pl.program_id(0) == 0)
        def _():
            max_ref[...] = here
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        before = max_ref[...]
        now = jnp.maximum(before, here) if repaired else before
        p, shrink = jnp.exp(s - now), jnp.exp(before - now)
        max_ref[...] = now
        sum_ref[...] = shrink * sum_ref[...] + p.sum(1, keepdims=True)
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
