"""The subset of `nki`, the modern API, that the book uses, on the simulated core.

Names and signatures are those of the AWS Neuron documentation of NKI 0.3 to 0.7.
"""

from __future__ import annotations

import sys
from typing import Any

from kernels.neuron.kernel import GENERATIONS, Generation
from kernels.neuron.modern import isa, language
from kernels.neuron.simulator import Kernel
from kernels.neuron.simulator import simulate as _simulate
from kernels.neuron.tensors import Tensor

__all__ = ["isa", "jit", "language", "simulate"]


def jit(kernel: Any = None, **options: Any) -> Any:
    """The decorator of a kernel; options of the vendor's compiler are taken and ignored."""
    if kernel is None:
        return lambda function: jit(function, **options)
    return Kernel(kernel, "nki")


def simulate(kernel: Any) -> Any:
    """A function that runs `kernel` on NumPy arrays, as the vendor's nki.simulate does."""
    return lambda *arguments, **options: _simulate(kernel, *arguments, **options)


GENERATIONS["nki"] = Generation(
    "nki",
    Tensor,
    {"nki": sys.modules[__name__], "nki.language": language, "nki.isa": isa},
)
