"""Attention's gradient, in which one of two products forgets the scale."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

SIZES = {"b": 1, "h": 1, "n": 128, "m": 128, "d": 64}

BUG = Bug(
    title="The gradient of q lacks the scale",
    operator="attention",
    caught_by="interpret",
    says="gradient of q",
    cause="The scale is a factor of the scores, and so of both their gradients, dq and dk.",
    lesson="With a scale of 1 nothing is missing. Prove a gradient with every option there is.",
    workloads=(
        Workload("scale_of_one", SIZES, options={"scale": 1.0}),
        Workload("usual_scale", SIZES),
    ),
    differentiable=True,
)

dot = functools.partial(jnp.dot, precision="highest", preferred_element_type=jnp.float32)


def kernel(q, k, v, *, interpret, scale=None, repaired=False):
    """[1, 1, n, d] three times → [1, 1, n, d], all keys at once."""
    scale = q.shape[3] ** -0.5 if scale is None else scale

    def probabilities(q_ref, k_ref):
        s = scale * dot(q_ref[...], k_ref[...].T)
        p = jnp.exp(s - s.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)

    def forward(q_ref, k_ref, v_ref, o_ref):
        o_ref[...] = dot(probabilities(q_ref, k_ref), v_ref[...])

    def backward(q_ref, k_ref, v_ref, do_ref, dq_ref, dk_ref, dv_ref):
        p = probabilities(q_ref, k_ref)
        dp = dot(do_ref[...], v_ref[...].T)
        ds = p * (dp - (p * dp).sum(1, keepdims=True))
        dq_ref[...] = (scale if repaired else 1.0) * dot(ds, k_ref[...])
        dk_ref[...] = scale * dot(ds.T, q_ref[...])
        dv_ref[...] = dot(p.T, do_ref[...])

    def call(body, *arrays, results):
        head = jax.ShapeDtypeStruct(q.shape[2:], q.dtype)
        arrays = [x[0, 0] for x in arrays]
        found = pl.pallas_call(body, out_shape=[head] * results, interpret=interpret)(*arrays)
        return tuple(x[None, None] for x in found)

    @jax.custom_vjp
    def attention(q, k, v):
        return call(forward, q, k, v, results=1)[0]

    attention.defvjp(
        lambda *qkv: (attention(*qkv), qkv),
        lambda qkv, do: call(backward, *qkv, do, results=3),
    )
    return attention(q, k, v)
