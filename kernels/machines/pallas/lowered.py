"""A program lowered for a machine that is not here."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernels.machines.checks import fail
from kernels.machines.compat import jax_mlir
from kernels.machines.pallas.calls import interpreted


@dataclass(frozen=True)
class Lowered:
    """A program lowered for a machine that is not here.

    Args:
        machine: what it was lowered for ("v5e", "cuda", …).
        seconds: that it took to trace and to lower it.
        kernels: each kernel in it, in the compiler's own language: Mosaic for a TPU, Triton for a
            GPU.
        text: the program, in StableHLO.
    """

    machine: str
    seconds: float
    kernels: tuple[str, ...] = field(repr=False)
    text: str = field(repr=False)

    def body(self, index: int = 0) -> str:
        """The operations of one kernel, without its attributes and its index maps."""
        signature, _, rest = self.kernels[index].partition("func")[2].partition("\n")
        name = signature.split("(")[0].split("@")[-1]
        operations = re.split(r"\n\s*(?:tt\.)?return", rest)[0].splitlines()
        operations = [line.rstrip(", ") for line in operations]
        return textwrap.dedent("\n".join([f"    {name}:", *operations]))


def lower(
    function: Callable[..., Any], args: tuple[Any, ...], platform: str, machine: str, target: str
) -> Lowered:
    """Lower `function(*args)` for a JAX platform.

    Args:
        function: of arrays.
        args: arrays or jax.ShapeDtypeStruct.
        platform: as JAX calls it, such as "cuda".
        machine: what to call it in the result and in messages.
        target: the name of its kernels' custom call.

    Returns:
        The program, with each of its kernels.

    Raises:
        ValueError: when no kernel reached the program, and for a kernel that is interpreted;
            besides what JAX raises.
    """
    import jax

    start = time.perf_counter()
    traced = jax.jit(function).trace(*args)
    if names := interpreted(traced.jaxpr):
        fail(
            "function",
            f"one that interprets its kernel {names[0]}, and hands no kernel to a {machine}",
            "one that leaves interpret=None to its kernels, or passes interpret=False",
        )
    lowered = traced.lower(lowering_platforms=(platform,))
    seconds = time.perf_counter() - start
    kernels = tuple(jax_mlir.kernels(lowered, target))
    if not kernels:
        raise ValueError(
            f"function is one that hands no kernel to a {machine}; accepted: one that makes a "
            "pallas_call for it, with interpret=False"
        )
    return Lowered(machine, seconds, kernels, lowered.as_text())
