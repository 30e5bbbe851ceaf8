"""Programs that were timed on an H100 for this book: XLA's fusions and products, and our kernels.

No figure had been made of any when it was timed (2026-11-26, NVIDIA H100 80GB HBM3, JAX 0.11.2 with
CUDA 13: device time in JAX's profiler, the median of 12 calls or more over two to four sets of
inputs). `program` is what a row of results/gpu_validation.csv ran.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from kernels.attention import attention
from kernels.figures.schema import Key
from kernels.matmul import matmul
from kernels.norm import layer_norm, rms_norm
from kernels.softmax import softmax
from validation.gpu_times import OURS
from validation.tpu_programs import PublishedProgram, array

SOURCE = "timed for this book, device time, median"


def _softmax(x):
    return jax.nn.softmax(x.astype(jnp.float32), axis=-1).astype(x.dtype)


def _layer_norm(x, scale, offset):
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + 1e-6) * scale + offset).astype(x.dtype)


def _rms_norm(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def _cross_entropy(x, w, labels):
    scores = (x @ w).astype(jnp.float32)
    right = jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(scores, axis=-1) - right).mean()


def _stored_attention(q, k, v):
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores * q.shape[-1] ** -0.5, -1).astype(q.dtype)
    return jnp.einsum("bhnm,bhmd->bhnd", weights, v)


def _causal_attention(q, k, v):
    scores = jnp.einsum("bhnd,bhmd->bhnm", q, k, preferred_element_type=jnp.float32)
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(seen, scores * q.shape[-1] ** -0.5, -jnp.inf), -1)
    return jnp.einsum("bhnm,bhmd->bhnd", weights.astype(q.dtype), v)


def _batch_norm(x, scale, offset):
    wide = x.astype(jnp.float32)
    normed = (wide - wide.mean(0)) * jax.lax.rsqrt(wide.var(0) + 1e-5)
    return (normed * scale + offset).astype(x.dtype)


def _depthwise(x, w):
    padded = jnp.pad(x, ((3, 0), (0, 0)))
    return sum(padded[tap : tap + len(x)] * w[tap] for tap in range(4))


# Operator → its program, and the shapes of its arguments by the names of sizes.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "softmax": (_softmax, ("mn",)),
    "layer_norm": (_layer_norm, ("mn", "n", "n")),
    "rms_norm": (_rms_norm, ("mn", "n")),
    "row_sum": (lambda x: x.astype(jnp.float32).sum(-1), ("mn",)),
    "column_sum": (lambda x: x.astype(jnp.float32).sum(0), ("mn",)),
    "transpose": (lambda x: x.T + 1, ("mn",)),
    "saxpy": (lambda x, y: 2 * x + y, ("n", "n")),
    "product": (lambda x, y: x @ y, ("mk", "kn")),
    "linear_gelu": (lambda x, w, b: jax.nn.gelu(x @ w + b), ("mk", "kn", "n")),
    "swiglu": (lambda x, w, v: jax.nn.silu(x @ w) * (x @ v), ("mk", "kn", "kn")),
    "cross_entropy": (_cross_entropy, ("mk", "kn", "m")),
    "stored_attention": (_stored_attention, ("bhnd", "bhnd", "bhnd")),
    "gelu": (jax.nn.gelu, ("mn",)),
    "add_norm": (lambda x, y, scale: _rms_norm(x + y, scale), ("mn", "mn", "n")),
    "gather": (lambda table, rows: table[rows], ("nd", "m")),
    "batched": (lambda x, y: x @ y, ("bmk", "bkn")),
    "cumulative_sum": (lambda x: jnp.cumsum(x, axis=-1), ("mn",)),
    "column_cumulative_sum": (lambda x: jnp.cumsum(x, axis=0), ("mn",)),
    "log_softmax": (lambda x: jax.nn.log_softmax(x.astype(jnp.float32)).astype(x.dtype), ("mn",)),
    "batch_norm": (_batch_norm, ("mn", "n", "n")),
    "gated": (lambda x, y: jax.nn.silu(x) * y, ("mn", "mn")),
    "chain": (lambda x, y: jnp.tanh(x) * jnp.exp(-y * y) + jnp.maximum(x, y), ("mn", "mn")),
    "residual_product": (lambda x, w, z: x @ w + z, ("mk", "kn", "mn")),
    "product_norm": (lambda x, w, scale: _rms_norm(x @ w, scale), ("mk", "kn", "n")),
    "causal_attention": (_causal_attention, ("bhnd", "bhnd", "bhnd")),
    "depthwise": (_depthwise, ("mn", "kn")),
}
# Of OURS along rows: the operator, and how many vectors it takes.
ROWS: dict[str, tuple[Callable[..., Any], int]] = {
    "softmax": (softmax, 0),
    "rms_norm": (rms_norm, 1),
    "layer_norm": (layer_norm, 2),
}
WIDE = ("layer_norm", "rms_norm", "add_norm", "batch_norm", "product_norm")


def program(key: Key) -> PublishedProgram:
    """The program of a row.

    Args:
        key: of the row, which is JIT's or OURS.
    """
    size = key.sizes
    if key.implementation == OURS and key.operator == "attention":
        causal = bool(key.options.typed().get("causal", False))
        ours = functools.partial(attention, causal=causal, implementation="mosaic_gpu")
        b, h, n, d = (size[name] for name in "bhnd")
        flops = 4 * b * h * n * n * d / (2 if causal else 1)
        return PublishedProgram(ours, (array((b, h, n, d), key.dtype),) * 3, flops=flops)
    if key.implementation == OURS and key.operator in ROWS:
        operator, vectors = ROWS[key.operator]
        ours = functools.partial(operator, implementation="mosaic_gpu")
        x, vector = (array(tuple(size[a] for a in axes), key.dtype) for axes in ("mn", "n"))
        return PublishedProgram(ours, (x, *[vector] * vectors), flops=0.0)
    if key.implementation == OURS:
        ours = functools.partial(matmul, implementation="mosaic_gpu")
        x, y = (array((size[a], size[b]), key.dtype) for a, b in ("mk", "kn"))
        return PublishedProgram(ours, (x, y), flops=2 * math.prod(size[name] for name in "mkn"))
    function, shapes = PROGRAMS[key.operator]
    narrow = dict.fromkeys(WIDE, "float32") | {"cross_entropy": "int32", "gather": "int32"}
    # What a norm scales by is wide, and labels are whole numbers: their arguments of one dimension.
    arguments = tuple(
        array(
            tuple(size[name] for name in shape),
            narrow.get(key.operator, key.dtype) if len(shape) == 1 else key.dtype,
        )
        for shape in shapes
    )
    return PublishedProgram(function, arguments)
