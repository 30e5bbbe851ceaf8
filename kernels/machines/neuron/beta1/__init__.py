"""`neuronxcc.nki`, beta 1 of the API, on the simulated core.

Names and signatures are those of the AWS Neuron documentation of SDK 2.20 to 2.26.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from kernels.machines.neuron import typing
from kernels.machines.neuron.beta1 import compiler, isa, language
from kernels.machines.neuron.beta1.tiles import Tile
from kernels.machines.neuron.errors import MissingName, absent
from kernels.machines.neuron.kernel import GENERATIONS, Generation
from kernels.machines.neuron.simulator import Kernel
from kernels.machines.neuron.simulator import simulate as _simulate

__all__ = ["compiler", "isa", "jit", "language", "simulate_kernel", "trace", "typing"]

tensor = typing.tensor


def jit(kernel: Any = None, *, platform_target: str | None = None, **options: Any) -> Any:
    """The decorator of a kernel; options such as mode="trace" are taken and ignored.

    Args:
        kernel: the function; None where options stand before it.
        platform_target: the chip whose limits hold, such as "trn2".
        **options: of the vendor's compiler.
    """
    if kernel is None:
        return lambda function: jit(function, platform_target=platform_target, **options)
    return Kernel(getattr(kernel, "function", kernel), "neuronxcc", target=platform_target)


trace = baremetal = jit  # on the device where there is one; here they simulate


class _Timed(Kernel):
    """A kernel that the vendor's decorator would time: here it only runs."""

    @property
    def benchmark_result(self) -> Any:
        """The latency, which nothing here can measure."""
        raise MissingName("not simulated: benchmark_result; neuron.estimate estimates the time")


def benchmark(kernel: Any = None, **options: Any) -> Any:
    """The decorator of a kernel that is to be timed."""
    if kernel is None:
        return lambda function: benchmark(function, **options)
    return _Timed(getattr(kernel, "function", kernel), "neuronxcc")


profile = benchmark


def simulate_kernel(kernel: Any, *arguments: Any, **options: Any) -> Any:
    """Run `kernel` on NumPy arrays; those that it stores to are updated.

    Args:
        kernel: a function with @nki.jit.
        *arguments: as `neuron.simulate` takes them.
        **options: the same.
    """
    return _simulate(kernel, *arguments, **options)


def __getattr__(name: str) -> Any:
    return absent("neuronxcc.nki", name, globals(), ["nccl", "kernels"])


_package = ModuleType("neuronxcc", "The simulator of kernels.neuron, under the vendor's name.")
_package.nki = sys.modules[__name__]  # type: ignore[attr-defined]
_package.__path__ = []
_constants = ModuleType("neuronxcc.nki.isa.constants")
_constants.__dict__.update(vars(isa.constants))
GENERATIONS["neuronxcc"] = Generation(
    "neuronxcc",
    Tile,
    {
        "neuronxcc": _package,
        "neuronxcc.nki": sys.modules[__name__],
        "neuronxcc.nki.language": language,
        "neuronxcc.nki.isa": isa,
        "neuronxcc.nki.isa.constants": _constants,
        "neuronxcc.nki.typing": typing,
        "neuronxcc.nki.compiler": compiler,
    },
)
