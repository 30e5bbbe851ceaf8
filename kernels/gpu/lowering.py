"""Lower a Pallas kernel for a GPU, through the Triton backend, on a machine without a GPU."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Lowered:
    """A program lowered for CUDA: StableHLO text that carries each kernel's Triton IR."""

    kernels: int
    seconds: float
    text: str = field(repr=False)


def lower(function: Callable[..., Any], *args: Any) -> Lowered:
    """Lower `function(*args)` for CUDA; nothing runs. args: arrays or jax.ShapeDtypeStruct.

    The kernel must be written for Triton (its compiler_params say so) and not be interpreted.
    Raises what JAX raises, and ValueError when no kernel reached the program.
    """
    import jax

    start = time.perf_counter()
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",))
    text = lowered.as_text()
    kernels = len(re.findall(r"custom_call @__gpu\$xla\.gpu\.triton\b", text))
    if not kernels:
        raise ValueError("function is one without a Triton kernel; accepted: one that makes one")
    return Lowered(kernels, time.perf_counter() - start, text)
