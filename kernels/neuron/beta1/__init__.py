"""The subset of `neuronxcc.nki`, beta 1 of the API, that the book uses, on the simulated core.

Names and signatures are those of the AWS Neuron documentation of SDK 2.20 to 2.26.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from kernels.neuron.beta1 import language
from kernels.neuron.beta1.tiles import Tile
from kernels.neuron.kernel import GENERATIONS, Generation
from kernels.neuron.simulator import Kernel
from kernels.neuron.simulator import simulate as _simulate

__all__ = ["jit", "language", "simulate_kernel", "trace"]


def jit(kernel: Any = None, **options: Any) -> Any:
    """The decorator of a kernel; options such as mode="trace" are taken and ignored."""
    if kernel is None:
        return lambda function: jit(function, **options)
    return Kernel(kernel, "neuronxcc")


trace = jit


def simulate_kernel(kernel: Any, *arguments: Any, **options: Any) -> Any:
    """Run `kernel` on NumPy arrays; those that it stores to are updated."""
    return _simulate(kernel, *arguments, **options)


_package = ModuleType("neuronxcc", "The simulator of kernels.neuron, under the vendor's name.")
_package.nki = sys.modules[__name__]  # type: ignore[attr-defined]
GENERATIONS["neuronxcc"] = Generation(
    "neuronxcc",
    Tile,
    {
        "neuronxcc": _package,
        "neuronxcc.nki": sys.modules[__name__],
        "neuronxcc.nki.language": language,
    },
)
