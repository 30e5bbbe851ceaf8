"""Causal depthwise convolution with a weight for every lag, as RWKV's first layers had it.

depthwise_conv(w, k, eps): [C, T], [B, C, T] → [B, C, T]
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines import checks
from kernels.proof.backends.cuda import CUDA
from kernels.proof.backends.numpy import NUMPY
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.backends.torch import TORCH
from kernels.proof.contract import Implementation, Operator
from kernels.proof.workload import Workload

DTYPES = ("float32", "float64")


def depthwise_conv(
    w: Any, k: Any, eps: float = 0.0, *, implementation: str = "taichi", interpret: Any = None
) -> Any:
    """Mix each channel over time: out[b, c, t] = eps + Σ_{u ≤ t} w[c, (T-1) - (t-u)] · k[b, c, u].

    Args:
        w: [C, T], the weight of lag 0 last.
        k: [B, C, T]; B, C, T ≥ 1. Both float32 or float64, and both NumPy arrays, or torch tensors
            on one device.
        eps: a finite number.
        implementation: "numpy" (in float64), "torch" (conv1d with a group for each channel), "fft"
            (T log T steps a row; its error goes by a row's largest element, and NaN fills the row),
            "taichi", which takes contiguous arrays only, on the CPU or the first GPU, or "cuda"
            (CUDA C++: float32, T at most 1024, and an infinity reaches up to three steps before
            it). "v0" to "v3" are the chapter's levels on the way to "taichi", "cuda_plain",
            "cuda_shared" and "cuda_four" those on the way to "cuda"; all of them forward only.
        interpret: None runs what is in CUDA C++ on the CPU's threads; the others ignore it.

    Returns:
        [B, C, T] in kind and dtype; no element depends on a later step. "torch", "fft", "taichi"
        and "cuda" are differentiable in w and k by torch.autograd; second derivatives of "taichi"
        are those of "torch".

    Raises:
        ValueError: for another rank, size, dtype, device, kind, eps or implementation.
        MissingPackage: where torch or taichi is needed and not installed.

    Source:
        B. Peng, RWKV-CUDA, 2022 (depthwise_conv1d), and Taichi's documentation.
    """
    chosen = DEPTHWISE_CONV[implementation]
    _check(w, k)
    eps = checks.finite("eps", eps)
    if chosen.backend is NUMPY:
        return _in_numpy(chosen.function, w, k, eps)
    if chosen.backend is TORCH:
        return _in_torch(chosen, w, k, eps)
    for name, value in (("w", w), ("k", k)):
        numpy = isinstance(value, np.ndarray)
        if not (value.flags.c_contiguous if numpy else value.is_contiguous()):
            checks.fail(name, "not contiguous", "a contiguous array, as its copy would be")
    return chosen(w, k, eps, interpret=interpret)


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


def _in_numpy(function: Callable[..., Any], w: Any, k: Any, eps: float) -> Any:
    if isinstance(k, np.ndarray):
        return function(w, k, eps)
    for name, value in (("w", w), ("k", k)):
        if value.device.type != "cpu" or value.requires_grad:
            accepted = 'a tensor on the CPU without gradients; "torch" takes others'
            checks.fail(name, f"on {value.device}, requires_grad={value.requires_grad}", accepted)
    import torch

    return torch.from_numpy(function(w, k, eps))


def _in_torch(chosen: Implementation, w: Any, k: Any, eps: float) -> Any:
    if not isinstance(k, np.ndarray):
        return chosen(w, k, eps)
    from kernels.machines.optional import require

    torch = require("torch", "depthwise convolution in PyTorch")
    # PyTorch has no tensors that are only read, nor any with negative strides.
    tensors = (torch.from_numpy(np.require(x, requirements=("C", "W"))) for x in (w, k))
    return chosen(*tensors, eps).numpy()


def _finite(workload: Workload) -> bool:
    return workload.values != "nonfinite"


def _seconds_in_numpy(workload: Workload) -> bool:
    sizes = workload.sizes
    return sizes["b"] * sizes["c"] * sizes["t"] ** 2 < 2**28


def _for_threads(workload: Workload) -> bool:
    return _finite(workload) and workload.sizes["t"] <= 1024


DEPTHWISE_CONV = Operator(
    depthwise_conv,
    summary="causal depthwise convolution with a weight for every lag",
    chapter="depthwise_conv",
    differentiable=("w", "k"),
    plain="torch",
    implementations=(
        Implementation(
            "numpy", NUMPY, "numpy:depthwise_conv", accepts=_seconds_in_numpy, differentiable=False
        ),
        Implementation("torch", TORCH, "torch:depthwise_conv", accepts=_finite),
        Implementation(
            "fft",
            TORCH,
            "fft:depthwise_conv",
            accepts=lambda workload: workload.values not in ("nonfinite", "wide"),
        ),
        Implementation("taichi", TAICHI, "taichi:depthwise_conv"),
        *(
            Implementation(level, TAICHI, f"levels:{level}", differentiable=False)
            for level in ("v0", "v1", "v2", "v3")
        ),
        Implementation("cuda", CUDA, "cuda:depthwise_conv", accepts=_for_threads),
        *(
            Implementation(
                f"cuda_{step}", CUDA, f"cuda:{step}", accepts=_for_threads, differentiable=False
            )
            for step in ("plain", "shared", "four")
        ),
    ),
)
