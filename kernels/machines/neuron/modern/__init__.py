"""`nki`, the modern API, on the simulated core.

Names and signatures are those of the AWS Neuron documentation of NKI 0.3 to 0.7.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from kernels.machines.neuron import dtypes, typing
from kernels.machines.neuron.errors import absent
from kernels.machines.neuron.kernel import GENERATIONS, Generation
from kernels.machines.neuron.modern import collectives, isa, language
from kernels.machines.neuron.simulator import Kernel
from kernels.machines.neuron.simulator import simulate as _simulate
from kernels.machines.neuron.tensors import Tensor

__all__ = ["collectives", "isa", "jit", "language", "simulate"]


def jit(kernel: Any = None, *, platform_target: str | None = None, **options: Any) -> Any:
    """The decorator of a kernel; options of the vendor's compiler are taken and ignored.

    Args:
        kernel: the function; None where options stand before it.
        platform_target: the chip whose limits hold, such as "trn2".
        **options: of the vendor's compiler.
    """
    if kernel is None:
        return lambda function: jit(function, platform_target=platform_target, **options)
    return Kernel(getattr(kernel, "function", kernel), "nki", target=platform_target)


def simulate(kernel: Any) -> Any:
    """A function that runs `kernel` on NumPy arrays, as the vendor's nki.simulate does."""
    return lambda *arguments, **options: _simulate(kernel, *arguments, **options)


def __getattr__(name: str) -> Any:
    return absent("nki", name, globals(), ["benchmark", "baremetal", "profile"])


_constants = ModuleType("nki.isa.constants")
for _name in (
    "dge_mode",
    "dma_engine",
    "engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
):
    setattr(_constants, _name, getattr(isa, _name))
isa.constants = _constants  # type: ignore[attr-defined]
dtype = dtypes
GENERATIONS["nki"] = Generation(
    "nki",
    Tensor,
    {
        "nki": sys.modules[__name__],
        "nki.language": language,
        "nki.isa": isa,
        "nki.typing": typing,
        "nki.dtype": dtypes,
        "nki.isa.constants": _constants,
        "nki.collectives": collectives,
    },
)
