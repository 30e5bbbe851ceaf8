"""`nki`, the modern API, on the simulated core.

Names and signatures are those of the AWS Neuron documentation of NKI 0.3 to 0.7.
"""

import sys
from typing import Any

from kernels.machines.neuron import dtypes, typing
from kernels.machines.neuron.errors import nothing_but
from kernels.machines.neuron.kernel import GENERATIONS, Generation, generation_of
from kernels.machines.neuron.modern import collectives, isa, language
from kernels.machines.neuron.simulator import NkiKernel, jit_of
from kernels.machines.neuron.tensors import Tensor

__all__ = ["collectives", "isa", "jit", "language", "simulate"]

jit = jit_of("nki")
dtype = dtypes


def simulate(kernel) -> Any:
    """What runs `kernel` on arrays or tensors, as the vendor's nki.simulate does."""
    return kernel if isinstance(kernel, NkiKernel) else NkiKernel(kernel, generation_of(kernel))


__getattr__ = nothing_but("nki", __all__)


GENERATIONS["nki"] = Generation(
    Tensor,
    {
        "nki": sys.modules[__name__],
        "nki.language": language,
        "nki.isa": isa,
        "nki.typing": typing,
        "nki.dtype": dtypes,
        "nki.isa.constants": isa.constants,
        "nki.collectives": collectives,
    },
)
