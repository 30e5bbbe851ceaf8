"""Start a kernel: on the device, in the simulator, or for those who only want to look at it; or, as
the third rung, lint what a call starts and hand it to the vendor's tools."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kernels.machines.checks import fail
from kernels.machines.neuron import vendor
from kernels.machines.neuron.chips import target
from kernels.machines.neuron.errors import NeuronError
from kernels.machines.neuron.kernel import generation_of
from kernels.machines.neuron.linter import lint
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


def lower(function: Callable[..., Any], *arguments, **options) -> str:
    """Take the kernels that a call starts as far to the device as this machine can.

    Each kernel is linted. Where the vendor's package is installed, the modern ones then run in
    nki.simulate, which knows the vendor's own checks, and on a machine with a Neuron device both
    generations are compiled and run.

    Args:
        function: an operator's.
        *arguments: of the call, beside `interpret`.
        **options: of the call.

    Returns:
        A note on how far it went; empty where all the way.

    Raises:
        NeuronError: for the first finding, or with the first line of what the vendor's
            tools said.
        Exception: what the call raised, where there is no finding.
    """
    failure = None
    with watched() as launches:
        try:
            function(*arguments, interpret=True, **options)
        except Exception as error:  # the kernel's, of any type
            failure = error
    for launch in launches:
        if findings := lint(launch.kernel):  # says more than what it made of the run
            raise NeuronError(str(findings[0])) from failure
    if failure is not None:
        raise failure
    if not launches:
        raise NeuronError("no kernel was started")
    return next(filter(None, [_vendors(launch) for launch in launches]), "")


def _vendors(launch: NkiLaunch) -> str:
    """Hand one kernel to the vendor's tools; a note on what is missing."""
    generation = generation_of(launch.kernel)
    module = vendor.find(generation)
    name = vendor.MODULES[generation]
    if module is None:
        return f"linted only: the vendor's compiler ({name}) is not installed"
    try:
        if vendor.device():
            launch.kernel(*launch.arguments, **launch.options)
            return ""
        if not hasattr(module, "simulate"):
            return f"linted only: {name} compiles on a machine with a Neuron device"
        module.simulate(launch.kernel)(*launch.arguments, **launch.options)
    except Exception as error:  # theirs, of any type
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise NeuronError(f"{name}: {type(error).__name__}: {first}"[:400]) from error
    return f"linted, and run in {name}.simulate: there is no Neuron device to compile for"
