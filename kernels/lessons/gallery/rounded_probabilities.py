"""Attention that rounds its probabilities for the matrix unit, and then adds them up."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

SIZES = {"b": 1, "h": 1, "n": 128, "m": 256, "d": 64}

BUG = Bug(
    title="The probabilities are rounded to bfloat16 before they are added up",
    operator="attention",
    caught_by="interpret",
    says="allowed",
    cause="The cast that one product wants stands a line too early, so the sum gets it as well.",
    lesson="In bfloat16 it hides below the rounding of the result: prove each dtype by itself.",
    workloads=(
        Workload("bf16", SIZES, "bfloat16"),
        Workload("f32", SIZES),
    ),
)

dot = functools.partial(jnp.dot, precision="highest", preferred_element_type=jnp.float32)


def kernel(q, k, v, *, interpret, repaired=False):
    """[1, 1, n, d], [1, 1, m, d] twice → [1, 1, n, d] for m a multiple of 128."""
    (*_, n, d), m = q.shape, k.shape[2]

    def body(q_ref, k_ref, v_ref, o_ref, max_ref, sum_ref, acc_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            max_ref[...] = jnp.full_like(max_ref, -jnp.inf)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        q, k, v = (ref[...].astype(jnp.float32) for ref in (q_ref, k_ref, v_ref))
        s = d**-0.5 * dot(q, k.T)
        before = max_ref[...]
        max_ref[...] = jnp.maximum(before, s.max(1, keepdims=True))
        p = jnp.exp(s - max_ref[...])
        # To bfloat16 and back; XLA on a CPU takes away a pair of casts that says so.
        added = p if repaired else lax.reduce_precision(p, exponent_bits=8, mantissa_bits=7)
        shrink = jnp.exp(before - max_ref[...])
        sum_ref[...] = shrink * sum_ref[...] + added.sum(1, keepdims=True)
        acc_ref[...] = shrink * acc_ref[...] + dot(p, v)
        o_ref[...] = (acc_ref[...] / sum_ref[...]).astype(o_ref.dtype)

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
