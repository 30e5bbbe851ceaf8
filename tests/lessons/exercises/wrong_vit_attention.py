"""Wrong answers to the exercises of this chapter, and what is said of each."""

import jax
import jax.numpy as jnp


def vit_halves(qkv, heads, kinds=("torch", "pallas")):
    import torch

    from kernels.attention.torch import vit_attention

    parts = zip(qkv.chunk(2), kinds, strict=True)
    return torch.cat([vit_attention(part, heads, implementation=kind) for part, kind in parts])


def all_natively(qkv, heads):
    return vit_halves(qkv, heads, kinds=("torch", "torch"))


def nothing(qkv, heads):
    return 0 * vit_halves(qkv, heads)


def upright(qkv_ref, o_ref, tokens=None):
    exact = "highest" if qkv_ref.dtype == jnp.float32 else None
    last, plain = (((1,), (1,)), ((), ())), (((1,), (0,)), ((), ()))

    def dot(x, y, how):
        return jax.lax.dot_general(x, y, how, precision=exact, preferred_element_type=jnp.float32)

    for head in range(2):
        q, k, v = (qkv_ref[:, 128 * part + 64 * head :][:, :64] for part in range(3))
        s = dot(q, k, last) / 8
        if tokens is not None:
            key = jax.lax.broadcasted_iota(jnp.int32, s.shape, 1)
            s = jnp.where(key < tokens, s, -jnp.inf)
        p = jnp.exp(s - s.max(1, keepdims=True))
        o = dot(p.astype(v.dtype), v, plain) / p.sum(1, keepdims=True)
        o_ref[:, 64 * head : 64 * head + 64] = o.astype(o_ref.dtype)


def upright_backward(qkv_ref, do_ref, dqkv_ref, scale=1 / 8):
    exact = "highest" if qkv_ref.dtype == jnp.float32 else None

    def dot(x, y, *over):
        how = ((over[:1], over[1:]), ((), ()))
        x, y = x.astype(qkv_ref.dtype), y.astype(qkv_ref.dtype)
        return jax.lax.dot_general(x, y, how, precision=exact, preferred_element_type=jnp.float32)

    for head in range(2):
        q, k, v = (qkv_ref[:, 128 * part + 64 * head :][:, :64] for part in range(3))
        do = do_ref[:, 64 * head : 64 * head + 64]
        s = dot(q, k, 1, 1) / 8
        p = jnp.exp(s - s.max(1, keepdims=True))
        p = p / p.sum(1, keepdims=True)
        dp = dot(do, v, 1, 1)
        ds = scale * p * (dp - (p * dp).sum(1, keepdims=True))
        for part, each in enumerate((dot(ds, k, 1, 0), dot(ds, q, 0, 0), dot(p, do, 0, 0))):
            lanes = slice(128 * part + 64 * head, 128 * part + 64 * head + 64)
            dqkv_ref[:, lanes] = each.astype(dqkv_ref.dtype)


def unscaled(*refs):
    upright_backward(*refs, scale=1)


def only_v(qkv_ref, do_ref, dqkv_ref):
    for head in range(2):
        lanes = slice(64 * head, 64 * head + 64)
        q, k = (qkv_ref[:, 128 * part + 64 * head :][:, :64] for part in range(2))
        s = jnp.dot(q, k.T, precision="highest") / 8
        p = jnp.exp(s - s.max(1, keepdims=True))
        dv = jnp.dot((p / p.sum(1, keepdims=True)).T, do_ref[:, lanes], precision="highest")
        for part, each in enumerate((0 * q, 0 * k, dv)):
            dqkv_ref[:, 128 * part + 64 * head : 128 * part + 64 * head + 64] = each


WRONG = (
    (
        "vit_halves",
        all_natively,
        "interpret",
        "had none",
    ),
    ("vit_halves", nothing, "interpret", "every element is zero"),
    ("vit_halves", lambda qkv, heads: qkv, "interpret", "and not the second half"),
    ("vit_padded", upright, "interpret", "is nan"),
    ("vit_fast", upright_backward, "speed", "the bar is 1,700"),
    ("vit_fast", unscaled, "interpret", "element ["),
    ("vit_backward", only_v, "interpret", "on two"),
)
