"""The subset of `nki`, the modern API, that the book uses, on the simulated core.

Names and signatures are those of the AWS Neuron documentation of NKI 0.3 to 0.7.
"""

from __future__ import annotations

from typing import Any

from kernels.neuron.kernel import Kernel
from kernels.neuron.modern import isa, language

__all__ = ["isa", "jit", "language", "simulate"]


def jit(kernel: Any = None, **options: Any) -> Any:
    """The decorator of a kernel; options of the vendor's compiler are taken and ignored."""
    if kernel is None:
        return lambda function: jit(function, **options)
    return Kernel(kernel, "nki")


def simulate(kernel: Any) -> Any:
    """A function that runs `kernel` on NumPy arrays, as the vendor's nki.simulate does."""
    from kernels.neuron.simulator import simulate as run

    return lambda *arguments, **options: run(kernel, *arguments, **options)
