"""Custom C++ operators for GpSimd, the engine of eight small processors in a NeuronCore-v2.

`run` runs an operator on a CPU, on emulated cores; `call` runs it wherever it can; `lower` compiles
it. The API is that of AWS's "Custom Operators API Reference Guide".
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines.neuron.gpsimd import compiler, emulator
from kernels.machines.neuron.gpsimd.emulator import CORES, TCM_BYTES, Run, Traffic, run
from kernels.machines.neuron.gpsimd.errors import GpSimdCompileError, GpSimdError, GpSimdFault

__all__ = ["CORES", "TCM_BYTES", "GpSimdCompileError", "GpSimdError", "GpSimdFault", "GpSimdParams"]
__all__ += ["Run", "Traffic", "call", "compiler", "custom_op", "lower", "run"]


@dataclass(frozen=True)
class GpSimdParams:
    """How `call` simulates the engine, with checks on.

    Args:
        order: seed of the order in which the cores run.
        cores: how many there are.
        tcm_bytes: the pool of each.
    """

    order: int = 0
    cores: int = CORES
    tcm_bytes: int = TCM_BYTES

    def turns(self) -> list[int]:
        """The numbers of the cores, in the order in which they run."""
        return np.random.default_rng(self.order).permutation(self.cores).tolist()


def call(
    sources: Sequence[Path | str],
    function: str,
    *arrays,
    interpret=None,
    on_device: Callable[..., Any] | None = None,
) -> Any:
    """Run a custom operator.

    Args:
        sources, function: as `run` takes them.
        *arrays: as `run` takes them.
        interpret: True runs it on one emulated core, with as much TCM as it asks for and
            unchecked: its arithmetic. GpSimdParams runs it on a simulated engine with
            all checks. False runs `on_device(*arrays)`, which is built with AWS's tools.
            None takes the device where these are installed and GpSimdParams() elsewhere. A
            list gets the sources, and nothing runs.
        on_device: a function of the arrays.
    """
    if isinstance(interpret, list):
        interpret.append(sources)
        return None
    if interpret is None:
        interpret = GpSimdParams() if on_device is None or custom_op() is None else False
    if interpret is False:
        if on_device is None or custom_op() is None:
            raise ValueError(
                "interpret is False; accepted: None or True here, since torch_neuronx, AWS's build "
                "of custom operators, is not installed"
            )
        return on_device(*arrays)
    if interpret is True:
        most = emulator.MOST_TCM_BYTES
        return run(sources, function, *arrays, cores=1, tcm_bytes=most, checks=False).result
    if not isinstance(interpret, GpSimdParams):
        raise ValueError(f"interpret is {interpret!r}; accepted: None, a bool, GpSimdParams")
    cores, tcm, order = interpret.cores, interpret.tcm_bytes, interpret.turns()
    return run(sources, function, *arrays, cores=cores, tcm_bytes=tcm, order=order).result


def lower(function: Callable[..., Any], *arguments, **options) -> str:
    """Compile what a call would run, every warning an error.

    Args:
        function: an operator's.
        *arguments: of the call, beside `interpret`.
        **options: of the call.

    Returns:
        A note on how far that went.

    Raises:
        GpSimdCompileError: where it does not compile.
    """
    programs: list[Sequence[Path | str]] = []
    function(*arguments, interpret=programs, **options)
    if not programs:
        raise GpSimdCompileError("no custom operator reached the compiler")
    for sources in programs:
        compiler.check(sources)
    if custom_op() is None:
        return "by g++ against stub headers only: AWS's build is not installed"
    return "by g++ against stub headers; AWS's build is a command of the operator's own"


def custom_op() -> Any:
    """torch_neuronx's module that builds custom operators; None where it is not installed.

    A package of that name on the public index is a placeholder that fails when it is imported.
    """
    try:
        return importlib.import_module("torch_neuronx.xla_impl.custom_op")
    except Exception:  # whatever the placeholder raises
        return None
