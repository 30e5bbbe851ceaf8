"""The convolution in CUDA C++, forward and backward: compiled without a GPU, run on CPU threads.

Four forward kernels, one change each, after the ladder that the author of RWKV published
(BlinkDL/RWKV-CUDA): a thread for each step; weights and inputs in shared memory; four steps a
thread; several rows a block. T and ROWS are constants of the source; 4 divides T, ROWS the rows, so
what is called is filled up with zeros.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines.checks import fail, one_of
from kernels.machines.gpu.kernel import GpuKernel
from kernels.machines.gpu.launched import Launched

__all__ = ["HEAD", "SOURCES", "compiled"]
ROWS = 8  # of a block of the last kernel
MOST_STEPS = 1024  # of T: threads of a block
HEAD, *_kernels = Path(__file__).with_name("cuda.cu").read_text(encoding="utf-8").split("\n\n")
# Name → its source; [C, T] weights, [B, C, T] inputs and results, a row being a b and a c.
SOURCES = {text.split("(")[0].removeprefix("KERNEL "): text.rstrip() for text in _kernels}


def launched(name: str, b: int, c: int, t: int) -> Launched:
    """One kernel, with the constants that it is compiled for, as it is launched.

    Args:
        name: one of SOURCES.
        b: rows of each channel; for "rows" a multiple of ROWS.
        c, t: channels and steps, T, a multiple of 4.

    Raises:
        ValueError: for anything else.
    """
    one_of("name", name, SOURCES)
    if t % 4:
        fail("t", t, "a multiple of 4")
    if name == "rows" and b % ROWS:
        fail("b", b, f"a multiple of {ROWS}")
    blocks = {"gradient": c, "rows": b // ROWS * c}.get(name, b * c)
    source = f"#define T {t}\n#define ROWS {ROWS}\n{HEAD}\n\n{SOURCES[name]}\n"
    return Launched(source, name, blocks, t if name in ("plain", "shared") else t // 4)


def compiled(name: str, b: int, c: int, t: int, *, chip: str = "rtx3090") -> GpuKernel:
    """One kernel compiled by NVRTC and ptxas, as it would be launched.

    Raises:
        ValueError: for another name, size or chip.
        MissingPackage: without NVIDIA's tools.
    """
    return launched(name, b, c, t).compiled(chip)


def _filled(x: Any, rows: int = 1, front: bool = False) -> np.ndarray:
    """Zeros for steps up to a multiple of 4, behind or before the others, and for rows."""
    more = -x.shape[-1] % 4
    fill = [(0, 0)] * x.ndim
    fill[-1] = (more, 0) if front else (0, more)
    fill[0] = (0, -len(x) % rows)
    return np.pad(x, fill)


def _forward(name: str, w: Any, k: Any, eps: float, interpret: Any) -> np.ndarray:
    (b, _, t), rows = k.shape, ROWS if name == "rows" else 1
    w, k = _filled(w, front=True), _filled(k, rows)
    run = launched(name, *k.shape).run
    return run([k.shape], w, k, eps, k.shape[1], interpret=interpret)[0][:b, :, :t]


def gradients(w: Any, k: Any, g: Any, *, interpret: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Arrays [C, T], [B, C, T] and what comes back, [B, C, T] → the gradients of w and of k."""
    t, w, k, g = k.shape[2], _filled(w, front=True), _filled(k), _filled(g)
    run = launched("gradient", *k.shape).run
    gw, gk = run([w.shape, k.shape], w, k, g, len(k), interpret=interpret)
    return gw[:, w.shape[1] - t :], gk[..., :t]


def _arrays(w: Any, k: Any) -> tuple[np.ndarray, np.ndarray]:
    one_of("k.dtype", str(k.dtype).removeprefix("torch."), ("float32",))
    if k.shape[2] > MOST_STEPS:
        fail("k.shape[2] (steps)", k.shape[2], f"at most {MOST_STEPS}, for CUDA C++")
    if not isinstance(k, np.ndarray):
        one_of("k.device", str(k.device), ("cpu",))
        w, k = w.detach().numpy(), k.detach().numpy()
    return w, k


def _step(name: str) -> Any:
    def depthwise_conv(w: Any, k: Any, eps: float, *, interpret: Any = None) -> Any:
        """Arrays or tensors on the CPU, [C, T], [B, C, T] → [B, C, T], by one of the steps."""
        out = _forward(name, *_arrays(w, k), eps, interpret)
        if isinstance(k, np.ndarray):
            return out
        if w.requires_grad or k.requires_grad:
            fail("requires_grad", True, 'False; "cuda" has gradients')
        import torch

        return torch.from_numpy(out)

    return depthwise_conv


plain, shared, four = map(_step, ("plain", "shared", "four"))


@functools.cache
def _autograd() -> Any:
    import torch

    class DepthwiseConv(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, w: Any, k: Any, eps: float, interpret: Any) -> Any:
            ctx.save_for_backward(w, k)
            ctx.interpret = interpret
            return torch.from_numpy(_forward("rows", *_arrays(w, k), eps, interpret))

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
            w, k = _arrays(*ctx.saved_tensors)
            both = gradients(w, k, g.numpy(), interpret=ctx.interpret)
            return *map(torch.from_numpy, both), None, None

    return DepthwiseConv


def depthwise_conv(w: Any, k: Any, eps: float, *, interpret: Any = None) -> Any:
    """Arrays or tensors on the CPU, [C, T], [B, C, T] → [B, C, T], by the last step."""
    if isinstance(k, np.ndarray):
        return _forward("rows", *_arrays(w, k), eps, interpret)
    return _autograd().apply(w, k, eps, interpret)
