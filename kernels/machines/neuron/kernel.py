"""What a kernel is, whoever decorated it, and the two generations of NKI that there are."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernels.machines.neuron.errors import NeuronError
from kernels.machines.neuron.vendor import MODULES


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


def simulated(kernel) -> Callable[..., Any]:
    """The kernel's function, with the simulator's modules in place of the vendor's. Where the
    vendor's package is missing, that is the function itself. Elsewhere a copy is made whose globals
    are the simulator's; functions that it calls are copied likewise."""
    return _Rebinding().function(function_of(kernel))


class _Rebinding:
    def __init__(self) -> None:
        self.done: dict[int, types.FunctionType] = {}
        self.standing = standing()

    def function(self, original: types.FunctionType) -> types.FunctionType:
        if id(original) in self.done:
            return self.done[id(original)]
        if not any(map(_is_vendors, original.__globals__.values())):
            return original
        names = dict(original.__globals__)
        copy = types.FunctionType(
            original.__code__, names, original.__name__, original.__defaults__, original.__closure__
        )
        copy.__kwdefaults__ = original.__kwdefaults__
        self.done[id(original)] = copy
        for name in original.__code__.co_names:
            if name in names:
                names[name] = self.value(names[name])
        return copy

    def value(self, value) -> Any:
        if isinstance(value, types.ModuleType):
            return self.standing.get(value.__name__, value)
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if _is_vendors(value) and not isinstance(value, type):
            return self.function(function_of(value))
        return value


def _is_vendors(value) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else type(value).__module__
    return isinstance(name, str) and name.split(".")[0] in MODULES
