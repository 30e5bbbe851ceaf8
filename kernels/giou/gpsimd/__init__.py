"""GIOU as a custom C++ operator for the eight cores of GpSimd: giou.cpp, shape.cpp, build.py.

What runs is float32, on AWS's machine and emulated alike.
"""

import functools
from pathlib import Path

import numpy as np

from kernels.machines.neuron import gpsimd

__all__ = ["PRELUDE", "SHAPE", "SOURCES"]

HERE = Path(__file__).parent
SOURCES = (HERE / "giou.cpp", HERE / "shape.cpp")  # as AWS's build takes them
KERNEL, SHAPE = (source.read_text(encoding="utf-8") for source in SOURCES)
# giou.cpp up to its kernel: headers, score() and Tcm, for other kernels on boxes. Where the kernel
# is called otherwise, importing this fails, and nothing is cut off in silence.
PRELUDE = KERNEL[: KERNEL.index("torch::Tensor giou(")]


@functools.cache
def _library():
    """The operator as AWS's tools build it, loaded into PyTorch."""
    import tempfile

    import torch

    from kernels.giou.gpsimd.build import build

    build(tempfile.mkdtemp(prefix="giou-"))
    return torch.ops.boxes.giou


def _on_device(preds, targets):
    import torch
    import torch_xla.core.xla_model as xm

    device = xm.xla_device()
    return _library()(*(torch.as_tensor(boxes).to(device) for boxes in (preds, targets)))


def giou(preds, targets, *, interpret=None):
    """[B, N, 4], [B, N, 4] → [B, N]; B and N up to 65535, as the machine's tensors are."""
    if interpret is not False:
        preds, targets = (np.asarray(boxes) for boxes in (preds, targets))
    return gpsimd.call(SOURCES, "giou", preds, targets, interpret=interpret, on_device=_on_device)
