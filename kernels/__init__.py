"""Machine-learning kernels, each proven rung by rung. Importing this package imports nothing heavy.

>>> from kernels.matmul import matmul
>>> from kernels.vector import add_vectors, iota

`python -m kernels list` shows every operator, `python -m kernels verify` proves them; and
`kernels.prove` and `kernels.explain` take a kernel of your own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.own import explain, prove, proves

__all__ = ["explain", "prove", "proves"]


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when it is first asked for."""
    if name in __all__:
        return getattr(importlib.import_module("kernels.own"), name)
    raise AttributeError(f"module 'kernels' has no attribute {name!r}")


__version__ = "0.1.0"
