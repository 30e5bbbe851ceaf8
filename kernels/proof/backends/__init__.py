"""The ways in which kernels are written: one file and one object each.

Whoever asks "is this NKI?" asks the backend instead: it interprets, simulates, compiles, measures
and differentiates what is written in it, and says why it cannot where it cannot. A new language is
a new file here, and nothing else.
"""

import pkgutil

from kernels.machines.lazy import lazy

_SHARED = {"base", "jax_arrays", "job", "processor"}  # files of what several backends need
__all__ = sorted(m.name.upper() for m in pkgutil.iter_modules(__path__) if m.name not in _SHARED)
__getattr__ = lazy(__name__, {name: f"{__name__}.{name.lower()}" for name in __all__})
