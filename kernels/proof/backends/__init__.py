"""The ways in which kernels are written: one file and one object each.

Whoever asks "is this NKI?" asks the backend instead: it interprets, simulates, compiles, measures
and differentiates what is written in it, and says why it cannot where it cannot. A new language is
a new file here, and nothing else.
"""

from typing import TYPE_CHECKING

from kernels.machines.lazy import lazy

if TYPE_CHECKING:
    from kernels.proof.backends.gpsimd import GPSIMD
    from kernels.proof.backends.nki import NKI
    from kernels.proof.backends.numpy import NUMPY
    from kernels.proof.backends.pallas_tpu import PALLAS_TPU
    from kernels.proof.backends.taichi import TAICHI
    from kernels.proof.backends.torch import TORCH
    from kernels.proof.backends.xla import XLA

__all__ = ["GPSIMD", "NKI", "NUMPY", "PALLAS_TPU", "TAICHI", "TORCH", "XLA"]

__getattr__ = lazy(__name__, {name: f"{__name__}.{name.lower()}" for name in __all__})
