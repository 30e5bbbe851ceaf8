"""`neuronxcc.nki`, beta 1 of the API, on the simulated core.

Names and signatures are those of the AWS Neuron documentation of SDK 2.20 to 2.26. A front on the
machine of modern NKI: it has tiles with operators and index grids, masks, and functions that make
the tile of their result.
"""

import sys
from types import ModuleType

from kernels.machines.neuron import typing
from kernels.machines.neuron.beta1 import compiler, isa, language
from kernels.machines.neuron.beta1.tiles import Beta1Tile
from kernels.machines.neuron.errors import nothing_but
from kernels.machines.neuron.kernel import GENERATIONS, Generation
from kernels.machines.neuron.simulator import jit_of
from kernels.machines.neuron.simulator import simulate as simulate_kernel

__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "tensor",
    "trace",
    "typing",
]

tensor = typing.tensor
jit = jit_of("neuronxcc")
# On the device, some with a clock; here they simulate, and neuron.estimate estimates the time.
trace = baremetal = benchmark = profile = jit

__getattr__ = nothing_but("neuronxcc.nki", __all__)


_package = ModuleType("neuronxcc", "The simulator of kernels.neuron, under the vendor's name.")
_package.nki = sys.modules[__name__]  # type: ignore[attr-defined]
_package.__path__ = []
GENERATIONS["neuronxcc"] = Generation(
    Beta1Tile,
    {
        "neuronxcc": _package,
        "neuronxcc.nki": sys.modules[__name__],
        "neuronxcc.nki.language": language,
        "neuronxcc.nki.language.constants": language.constants,
        "neuronxcc.nki.isa": isa,
        "neuronxcc.nki.isa.constants": isa.constants,
        "neuronxcc.nki.typing": typing,
        "neuronxcc.nki.compiler": compiler,
    },
)
