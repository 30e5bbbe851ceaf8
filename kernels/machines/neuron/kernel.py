"""What a kernel is, whoever decorated it, and the two generations of NKI that there are."""

import types
from collections.abc import Mapping
from dataclasses import dataclass

from kernels.machines.neuron.errors import NeuronError


@dataclass(frozen=True)
class Generation:
    """One generation of the API, as the simulator provides it."""

    tile: type  # the class of its tiles
    # The vendor's module names, and the simulator's modules that stand for them.
    modules: Mapping[str, types.ModuleType]


GENERATIONS: dict[str, Generation] = {}  # "nki", "neuronxcc": their packages enter themselves


def function_of(kernel) -> types.FunctionType:
    """The Python function behind a kernel, whoever decorated it; NeuronError without one."""
    seen = kernel
    for _ in range(8):
        if isinstance(seen, types.FunctionType):
            return seen
        names = ("function", "__wrapped__", "func", "fn", "_func", "kernel")
        seen = next((inner for name in names if (inner := getattr(seen, name, None))), None)
    raise NeuronError(
        f"the kernel is a {type(kernel).__name__}; accepted: a function with @nki.jit"
    )


def generation_of(kernel) -> str:
    """ "nki" or "neuronxcc": the API that a kernel is written in."""
    known = getattr(kernel, "generation", None)
    if known in GENERATIONS:
        return known
    names = {
        module.__name__
        for module in function_of(kernel).__globals__.values()
        if isinstance(module, types.ModuleType)
    }
    old = any(name.startswith(("neuronxcc", "kernels.machines.neuron.beta1")) for name in names)
    return "neuronxcc" if old else "nki"


def standing() -> dict[str, types.ModuleType]:
    """The vendor's module names of all generations, and what stands for them here."""
    return {
        name: module
        for generation in GENERATIONS.values()
        for name, module in generation.modules.items()
    }
