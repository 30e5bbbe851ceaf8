"""Rung 3: lint the kernels that a call starts, and hand them to the vendor's tools."""

from collections.abc import Callable
from typing import Any

from kernels.machines.neuron import vendor
from kernels.machines.neuron.errors import NeuronError
from kernels.machines.neuron.kernel import generation_of
from kernels.machines.neuron.launch import NkiLaunch, watched
from kernels.machines.neuron.linter import lint


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
    notes = [_vendors(launch) for launch in launches]
    return next((note for note in notes if note), "")


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
