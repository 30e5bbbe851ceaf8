"""Causal attention whose first block of keys is hidden from some queries."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

SIZES = {"b": 1, "h": 1, "n": 256, "m": 256, "d": 64}

BUG = Bug(
    title="A mask of −∞ hides the whole first block of keys",
    operator="attention",
    caught_by="interpret",
    says="not finite",
    cause="The maximum of nothing but −∞ is −∞, and −∞ less −∞ is NaN, which stays in the sums.",
    lesson="Hide with a large finite number: the first key that is seen wipes out what it left.",
    workloads=(
        Workload("all_keys", SIZES, why="no mask at all"),
        Workload("causal", SIZES, options={"causal": True}, why="the last keys come first"),
    ),
)

dot = functools.partial(jnp.dot, precision="highest", preferred_element_type=jnp.float32)


def kernel(q, k, v, *, interpret, causal=False, repaired=False):
    """[1, 1, n, d] three times → [1, 1, n, d] for n a multiple of 128; the last keys first."""
    *_, n, d = q.shape
    blocks = n // 128
    hidden = -1e30 if repaired else -jnp.inf

    def body(q_ref, k_ref, v_ref, o_ref, max_ref, sum_ref, acc_ref):
        first_key = (blocks - 1 - pl.program_id(0)) * 128

        @pl.when(pl.program_id(0) == 0)
        def _():
            max_ref[...] = jnp.full_like(max_ref, -jnp.inf)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        s = d**-0.5 * dot(q_ref[...], k_ref[...].T)
        if causal:
            query, key = (lax.broadcasted_iota(jnp.int32, s.shape, axis) for axis in (0, 1))
            s = jnp.where(query >= first_key + key, s, hidden)
        before = max_ref[...]
        max_ref[...] = jnp.maximum(before, s.max(1, keepdims=True))
        p = jnp.exp(s - max_ref[...])
        shrink = jnp.exp(before - max_ref[...])
        sum_ref[...] = shrink * sum_ref[...] + p.sum(1, keepdims=True)
        acc_ref[...] = shrink * acc_ref[...] + dot(p, v_ref[...])
        o_ref[...] = acc_ref[...] / sum_ref[...]

    keys = pl.BlockSpec((128, d), lambda step: (blocks - 1 - step, 0))
    whole = pl.BlockSpec((n, d), lambda step: (0, 0))
    o = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, d), q.dtype),
        grid=(blocks,),
        in_specs=[whole, keys, keys],
        out_specs=whole,
        scratch_shapes=[pltpu.VMEM((n, width), jnp.float32) for width in (1, 1, d)],
        interpret=interpret,
    )(q[0, 0], k[0, 0], v[0, 0])
    return o[None, None]
