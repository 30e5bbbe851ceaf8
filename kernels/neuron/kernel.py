"""What @nki.jit makes of a function where the vendor's package is missing; and its inside."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from kernels.neuron.errors import NeuronError
from kernels.neuron.machine import _machine

VENDOR = ("nki", "neuronxcc")  # top-level names of the vendor's packages


class Kernel:
    """A kernel. Called inside another kernel it is part of it; called with arrays it simulates."""

    def __init__(self, function: Callable[..., Any], generation: str) -> None:
        self.function = function
        self.generation = generation
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if _machine.get() is not None:
            return self.function(*arguments, **options)
        from kernels.neuron.simulator import simulate

        return simulate(self, *arguments, **options)


def function_of(kernel: Any) -> types.FunctionType:
    """The Python function behind a kernel, whoever decorated it; NeuronError without one."""
    seen = kernel
    for _ in range(8):
        if isinstance(seen, types.FunctionType):
            return seen
        names = ("function", "__wrapped__", "func", "fn", "_func", "kernel")
        seen = next((found for name in names if (found := getattr(seen, name, None))), None)
    raise NeuronError(
        f"the kernel is a {type(kernel).__name__}; accepted: a function with @nki.jit"
    )


def generation_of(kernel: Any) -> str:
    """ "nki" or "neuronxcc": the API that a kernel is written in."""
    if isinstance(kernel, Kernel):
        return kernel.generation
    names = {
        module.__name__
        for module in function_of(kernel).__globals__.values()
        if isinstance(module, types.ModuleType)
    }
    old = any(name.startswith(("neuronxcc", "kernels.neuron.beta1")) for name in names)
    return "neuronxcc" if old else "nki"


def simulated(kernel: Any) -> Callable[..., Any]:
    """The kernel's function, with the simulator's modules in place of the vendor's.

    Where the vendor's package is missing, that is the function itself. Elsewhere a copy is made
    whose globals are the simulator's; functions that it calls are copied likewise.
    """
    return _Rebinding().function(function_of(kernel))


class _Rebinding:
    def __init__(self) -> None:
        self.done: dict[int, types.FunctionType] = {}

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

    def value(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            from kernels.neuron.install import modules

            return modules().get(value.__name__, value)
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if _is_vendors(value) and not isinstance(value, type):
            return self.function(function_of(value))
        return value


def _is_vendors(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else type(value).__module__
    return isinstance(name, str) and name.split(".")[0] in VENDOR
