"""Kernels that the vendor's package decorated, with the simulator in its place."""

import types
from collections.abc import Callable
from typing import Any

from kernels.machines.neuron.kernel import function_of, standing
from kernels.machines.neuron.vendor import MODULES


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
