"""Start a kernel: on the device, in the simulator, or for those who only want to look at it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kernels.machines.checks import fail
from kernels.machines.neuron import vendor
from kernels.machines.neuron.chips import target
from kernels.machines.neuron.kernel import generation_of
from kernels.machines.neuron.simulator import InterpretParams, simulate
from kernels.machines.optional import MissingPackage

_launches: ContextVar[list[NkiLaunch] | None] = ContextVar("launches", default=None)


@dataclass(frozen=True)
class NkiLaunch:
    """A kernel, and what it was started with.

    Args:
        kernel: of either generation.
        arguments, options: those of the call.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def run(kernel, *arguments, interpret=None, **options) -> Any:
    """Start a kernel, as an operator does.

    Args:
        kernel: of either generation.
        *arguments: of the kernel.
        interpret: None runs on the Neuron device of this machine, and simulates where there
            is none; True only computes; InterpretParams simulates as it says; False runs on
            the device, with the vendor's package, and raises MissingPackage where that is
            missing.
        **options: the kernel's keyword arguments.
    """
    launches = _launches.get()
    if launches is not None:
        launches.append(NkiLaunch(kernel, arguments, options))
    generation = generation_of(kernel)
    if interpret is None:
        on_device = vendor.device() and vendor.find(generation)
        chip = target(getattr(kernel, "chip", None))
        interpret = False if on_device else InterpretParams(chip=chip)
    if interpret is True:
        interpret = InterpretParams(limits=False)
    if isinstance(interpret, InterpretParams):
        return simulate(kernel, *arguments, params=interpret, **options)
    if interpret is not False:
        fail("interpret", repr(interpret), "None, True, False or neuron.InterpretParams")
    if vendor.find(generation) is None:
        name = vendor.MODULES[generation]
        raise MissingPackage(
            f"{name} is needed for running this kernel on a Neuron device, and is not installed. "
            "It comes from AWS's own package repository, on Linux; a package of that name "
            f"elsewhere is a placeholder. See {vendor.SETUP}. interpret=None simulates the kernel.",
            name=generation,
        )
    return kernel(*arguments, **options)


@contextlib.contextmanager
def watched() -> Iterator[list[NkiLaunch]]:
    """The kernels that start inside a `with` block, in order."""
    launches: list[NkiLaunch] = []
    token = _launches.set(launches)
    try:
        yield launches
    finally:
        _launches.reset(token)
