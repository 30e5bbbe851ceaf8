"""Causal depthwise convolution with a weight for every lag, as RWKV's first layers had it.

depthwise_conv(w, k, eps): [C, T], [B, C, T] → [B, C, T]
"""

import importlib
from typing import Any

import numpy as np

from kernels import checks

LEVELS = ("v0", "v1", "v2", "v3")  # chapter 16; v3 is the forward kernel of "taichi"
IMPLEMENTATIONS = ("numpy", "torch", "fft", "taichi", *LEVELS)
DTYPES = ("float32", "float64")

__all__ = ["depthwise_conv", "flops"]


def depthwise_conv(w: Any, k: Any, eps: float = 0.0, *, implementation: str = "taichi") -> Any:
    """Mix each channel over time: out[b, c, t] = eps + Σ_{u ≤ t} w[c, (T-1) - (t-u)] · k[b, c, u].

    w: [C, T], the weight of lag 0 last; k: [B, C, T]; B, C, T ≥ 1. Both float32 or float64, and
    both NumPy arrays, or torch tensors on one device. eps: a finite number. Returns [B, C, T] in
    kind and dtype; no element depends on a later step.
    implementation: "numpy" (in float64), "torch" (conv1d with a group for each channel), "fft"
    (T log T steps a row; its error goes by a row's largest element, and NaN fills the row), or
    "taichi", which takes contiguous arrays only, on the CPU or the first GPU. "v0" to "v3" are the
    levels of chapter 16 on the way to "taichi", forward only.
    "torch", "fft" and "taichi" are differentiable in w and k by torch.autograd; second derivatives
    of "taichi" are those of "torch".
    Raises ValueError for another rank, size, dtype, device, kind, eps or implementation;
    MissingPackage where torch or taichi is needed and not installed.
    Source: B. Peng, RWKV-CUDA, 2022 (depthwise_conv1d), and Taichi's documentation.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    _check(w, k)
    number = isinstance(eps, (int, float, np.integer, np.floating)) and not isinstance(eps, bool)
    if not (number and np.isfinite(eps)):
        checks.fail("eps", repr(eps), "a finite number")
    eps = float(eps)
    if implementation == "numpy":
        return _in_numpy(w, k, eps)
    if implementation in ("torch", "fft"):
        return _in_torch(importlib.import_module(f"{__name__}.{implementation}"), w, k, eps)
    for name, value in (("w", w), ("k", k)):
        if not _is_contiguous(value):
            checks.fail(name, "not contiguous", "a contiguous array, as its copy would be")
    if implementation in LEVELS:
        from kernels.depthwise_conv import levels

        return levels.depthwise_conv(w, k, eps, LEVELS.index(implementation))
    from kernels.depthwise_conv import taichi

    return taichi.depthwise_conv(w, k, eps)


def flops(b: int, c: int, t: int) -> int:
    """Operations of the sums as they are written, a product and an addition each: B·C·T·(T+1)."""
    for name, value in (("b", b), ("c", c), ("t", t)):
        checks.positive_int(name, value)
    return b * c * t * (t + 1)


def _is_contiguous(value: Any) -> bool:
    return value.flags.c_contiguous if isinstance(value, np.ndarray) else value.is_contiguous()


def _check(w: Any, k: Any) -> None:
    kinds = []
    for name, value, rank in (("w", w, 2), ("k", k, 3)):
        kinds.append(type(value).__module__.partition(".")[0])
        if kinds[-1] not in ("numpy", "torch"):
            checks.fail(name, f"a {type(value).__name__}", "a NumPy array or a torch tensor")
        accepted = (*DTYPES, *(f"torch.{dtype}" for dtype in DTYPES))
        checks.array(name, value, rank=rank, dtypes=accepted)
    checks.same("k", kinds[1], "w", kinds[0])
    checks.same("k.dtype", str(k.dtype), "w", str(w.dtype))
    checks.same("k.shape[1:] (channels, steps)", tuple(k.shape[1:]), "w", tuple(w.shape))
    if kinds[0] == "torch":
        checks.same("k.device", str(k.device), "w", str(w.device))


def _in_numpy(w: Any, k: Any, eps: float) -> Any:
    from kernels.depthwise_conv import numpy

    if isinstance(k, np.ndarray):
        return numpy.depthwise_conv(w, k, eps)
    for name, value in (("w", w), ("k", k)):
        if value.device.type != "cpu" or value.requires_grad:
            accepted = 'a tensor on the CPU without gradients; "torch" takes others'
            checks.fail(name, f"on {value.device}, requires_grad={value.requires_grad}", accepted)
    import torch

    return torch.from_numpy(numpy.depthwise_conv(w, k, eps))


def _in_torch(module: Any, w: Any, k: Any, eps: float) -> Any:
    if not isinstance(k, np.ndarray):
        return module.depthwise_conv(w, k, eps)
    from kernels.optional import require

    torch = require("torch", "depthwise convolution in PyTorch")
    # PyTorch has no tensors that are only read, nor any with negative strides.
    tensors = (torch.from_numpy(np.require(x, requirements=("C", "W"))) for x in (w, k))
    return module.depthwise_conv(*tensors, eps).numpy()
