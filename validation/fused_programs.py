"""Whole programs of XLA that others timed: a product, a convolution or experts, and what follows.

Each is written here after the words in which its publisher describes it; sizes go by the letters of
its row, arguments are bfloat16 unless a line says otherwise, and weights stand as they were handed
in, transposed or not. Biases and gains are vectors of the last dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from kernels.figures.schema import Key
from validation.tpu_programs import (
    CONVOLUTIONS,
    FUSED,
    NORMS,
    PublishedProgram,
    array,
    registered,
)


def _fused(operator: str, sort: str, *shapes: str) -> Callable[[Callable[..., Any]], Any]:
    """Register a program of XLA: its function, and a shape for each argument, in letters of its row
    or numbers, and then its dtype where it is not the row's."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        def build(key: Key) -> PublishedProgram:
            arguments = []
            for text in shapes:
                shape, _, dtype = text.partition(" ")
                sizes = (key.sizes[s] if s.isalpha() else int(s) for s in shape.split(","))
                arguments.append(array(tuple(sizes), dtype or key.dtype))
            return PublishedProgram(function, tuple(arguments))

        registered(operator, "xla", sort)(build)
        return function

    return add


def _group_norm(y: Any, groups: int, gain: Any, offset: Any) -> Any:
    parts = y.reshape(len(y), groups, -1)
    mean, var = parts.mean(-1, keepdims=True), parts.var(-1, keepdims=True)
    return ((parts - mean) / jnp.sqrt(var + 1e-5)).reshape(y.shape) * gain + offset


@_fused("matmul_sum", FUSED, "m,k", "n,k")
def matmul_sum(x: Any, w: Any) -> Any:
    """The rows' sums of half of x wᵀ, and half of them more."""
    product = jnp.matmul(x, w.T, precision=jax.lax.Precision.HIGHEST)
    return (product / 2).sum(1, keepdims=True) * 1.5


@_fused("matmul_logsumexp", FUSED, "m,k", "n,k", "n")
def matmul_logsumexp(x: Any, w: Any, b: Any) -> Any:
    """z² mish(z) of the rows' logsumexp z of 4 (x wᵀ + b), clipped to ±10."""
    y = jnp.clip(4 * (x @ w.T + b), -10, 10)
    z = jax.nn.logsumexp(y, axis=1, keepdims=True)
    return z * z * jnp.tanh(jnp.logaddexp(z, 0))


@_fused("matmul_norm_of_one", FUSED, "m,k", "m,n", "n,k", "n", "n", "n")
def matmul_norm_of_one(x: Any, y: Any, w: Any, b: Any, gain: Any, offset: Any) -> Any:
    """Instance norm of images of one pixel, which is 0 before its gain, and what y makes of it."""
    a = (x @ w.T + b)[:, :, None]
    a = (a - a.mean(-1, keepdims=True)) / jnp.sqrt(a.var(-1, keepdims=True) + 1e-5)
    return (a[:, :, 0] * gain + offset + y) * y


@_fused("matmul_groupnorm_64", NORMS, "m,k", "k,n", "n", "n", "n")
def matmul_groupnorm_64(x: Any, w: Any, b: Any, gain: Any, offset: Any) -> Any:
    """Group norm of 64 groups of swish(x w) + b."""
    return _group_norm(jax.nn.silu(x @ w) + b, 64, gain, offset)


@_fused("matmul_groupnorm_256", NORMS, "m,k", "n,k", "n", "n", "n", "n")
def matmul_groupnorm_256(x: Any, w: Any, b: Any, gain: Any, offset: Any, scale: Any) -> Any:
    """swish(swish(group norm of 256 groups of x wᵀ + b) scale)."""
    y = _group_norm(x @ w.T + b, 256, gain, offset)
    return jax.nn.silu(jax.nn.silu(y) * scale)


@_fused("matmul_residual", FUSED, "m,k", "k,n", "n")
def matmul_residual(x: Any, w: Any, b: Any) -> Any:
    """x w + b, and half of it."""
    y = x @ w + b
    return y + y / 2


@_fused("matmul_gelu_tanh", FUSED, "m,k", "k,n", "n")
def matmul_gelu_tanh(x: Any, w: Any, b: Any) -> Any:
    """GELU by tanh, written out, of half of x w + b, clipped to ±2."""
    y = jnp.clip((x @ w + b) / 2, -2, 2)
    return 0.5 * y * (1 + jnp.tanh(0.7978845608 * (y + 0.044715 * y**3)))


@_fused("matmul_softmax", NORMS, "m,k", "n,k", "n")
def matmul_softmax(x: Any, w: Any, b: Any) -> Any:
    """Softmax of the rows of x wᵀ + b."""
    return jax.nn.softmax(x @ w.T + b, axis=1)


@_fused("matmul_max_gelu", FUSED, "m,k", "k,n", "n")
def matmul_max_gelu(x: Any, w: Any, b: Any) -> Any:
    """GELU of the rows' maxima less their mean, which is of one number each."""
    y = (x @ w + b).max(1, keepdims=True)
    return jax.nn.gelu(y - y.mean(1, keepdims=True))


@_fused("matmul_batchnorm_softmax", NORMS, "m,k", "k,n", "n", "n", "n", "n", "n", "1")
def matmul_batchnorm_softmax(
    x: Any, w: Any, b: Any, mean: Any, var: Any, gain: Any, offset: Any, scale: Any
) -> Any:
    """Softmax of the rows of a batch norm by given statistics, times a number."""
    y = (x @ w + b - mean) / jnp.sqrt(var + 1e-5) * gain + offset
    return jax.nn.softmax(y * scale, axis=1)


@_fused("matmul_batchnorm_swish", FUSED, "m,k", "k,n", "n", "n", "n", "n", "n", "1")
def matmul_batchnorm_swish(
    x: Any, w: Any, b: Any, mean: Any, var: Any, gain: Any, offset: Any, bias: Any
) -> Any:
    """swish of a batch norm by given statistics, and a number added."""
    y = (x @ w + b - mean) / jnp.sqrt(var + 1e-5) * gain + offset
    return jax.nn.silu((y + bias) / 1)


@_fused("matmul_div_gelu", FUSED, "m,k", "k,n", "n")
def matmul_div_gelu(x: Any, w: Any, b: Any) -> Any:
    """GELU of a tenth of x w + b."""
    return jax.nn.gelu((x @ w + b) / 10)


@_fused("matmul_five_activations", FUSED, "m,k", "k,n", "n", "n")
def matmul_five_activations(x: Any, w: Any, b: Any, a: Any) -> Any:
    """swish, tanh, GELU and a clip to ±1, one after another, of x w + b + a."""
    y = jnp.tanh(jax.nn.silu(x @ w + b + a))
    return jnp.clip(jax.nn.gelu(y), -1, 1)


@_fused("matmul_avgpool_max", NORMS, "m,k", "k,n", "n")
def matmul_avgpool_max(x: Any, w: Any, b: Any) -> Any:
    """The rows' maxima of twice the GELU of means of 16 neighbours of x w + b."""
    y = x @ w + b
    sums = jax.lax.reduce_window(y, jnp.zeros((), y.dtype), jax.lax.add, (1, 16), (1, 16), "VALID")
    return (jax.nn.gelu(sums / 16) * 2).max(1)


@_fused("conv2d_gelu_mean", CONVOLUTIONS, "b,c,h,h", "o,c,3,3", "o")
def conv2d_gelu_mean(x: Any, kernel: Any, b: Any) -> Any:
    """The images' means of the GELU of a convolution of 3 × 3, NCHW in, in NHWC."""
    y = jax.lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1),
        kernel.transpose(2, 3, 1, 0),
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return jax.nn.gelu(y + b).mean((1, 2))


@_fused("transposed_conv3d", CONVOLUTIONS, "b,c,e,h,h", "c,o,4,4,4", "o", "o", "o")
def transposed_conv3d(x: Any, kernel: Any, b: Any, gain: Any, offset: Any) -> Any:
    """A transposed convolution of 4 × 4 × 4, stride 2, of x scattered into zeros; a layer norm over
    its channels, and GELU; NCDHW in and out."""
    x = x.transpose(0, 2, 3, 4, 1)
    shape = [2 * size - 1 for size in x.shape[1:4]]
    wide = jnp.zeros((len(x), *shape, x.shape[-1]), x.dtype).at[:, ::2, ::2, ::2].set(x)
    flipped = jnp.flip(kernel, (2, 3, 4)).transpose(2, 3, 4, 0, 1)
    y = jax.lax.conv_general_dilated(
        wide, flipped, (1, 1, 1), [(2, 2)] * 3, dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
    )
    y += b
    y = (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return jax.nn.gelu(y * gain + offset).transpose(0, 4, 1, 2, 3)


@_fused("swiglu", FUSED, "b,t,d", "d,f", "d,f", "f,d")
def swiglu(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """(silu(x gate) (x up)) down."""
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


@_fused("experts_all", FUSED, "b,t,d", "d,e", "e,d,f", "e,d,f", "e,f,d")
def experts_all(x: Any, router: Any, gate: Any, up: Any, down: Any) -> Any:
    """Every expert on every token, weighted by the softmax of the router's two largest scores."""
    scores, chosen = jax.lax.top_k(x @ router, 2)
    weights = jax.nn.softmax(scores, axis=-1)
    hidden = jax.nn.silu(jnp.einsum("bse,nem->bsnm", x, gate)) * jnp.einsum("bse,nem->bsnm", x, up)
    outputs = jnp.einsum("bsnm,nme->bsne", hidden, down)
    shares = (jax.nn.one_hot(chosen, len(gate), dtype=x.dtype) * weights[..., None]).sum(2)
    return jnp.einsum("bsne,bsn->bse", outputs, shares)
