"""Softmax along the last axis."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from kernels import checks

DTYPES = ("float32", "bfloat16")
IMPLEMENTATIONS = ("xla", "nki")

__all__ = ["softmax"]


def softmax(x: Any, *, implementation: str = "xla", interpret: Any = None) -> Any:
    """exp(x) over its sum along the last axis: numbers from 0 to 1 that add up to 1.

    Args:
        x: [..., n], float32 or bfloat16, any rank of at least 1, no dimension of zero.
        implementation: "xla", or "nki" (AWS Neuron).
        interpret: None simulates "nki" where there is no Neuron device; True and False force
            either. "xla" ignores it.

    Returns:
        As x. The sums are taken in float32, of numbers from which the row's largest was subtracted.
        A row with a NaN or an infinity of either sign follows NumPy: +inf and NaN spoil it.

    Raises:
        ValueError: for another rank, size, dtype or implementation, before anything runs.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    rank = len(getattr(x, "shape", ())) or 1
    checks.array("x", x, rank=rank, dtypes=(*DTYPES, "torch.float32", "torch.bfloat16"))
    module = importlib.import_module(f"kernels.softmax.{implementation}")
    if implementation == "xla":
        return module.softmax(x)
    shape = tuple(x.shape)
    rows = x.reshape(-1, shape[-1])
    return np.asarray(module.softmax(rows, interpret=interpret)).reshape(shape)
