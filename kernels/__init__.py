"""Machine-learning kernels, each proven rung by rung. Importing this package imports nothing heavy.

>>> from kernels.matmul import matmul
>>> from kernels.vector import add_vectors, iota
>>> from kernels import tpu, gpu, neuron, taichi

`python -m kernels list` shows every operator, `python -m kernels verify` proves them; and
`kernels.prove` and `kernels.explain` take a kernel of your own. Folders with an operator.py are
operators; behind them are six rooms: proof, machines, figures, lessons, yours, cli.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.lessons import exercises, gallery, pictures
    from kernels.machines import checks, gpu, neuron, optional, pallas, taichi, timing, tpu
    from kernels.proof import budget, catalog, contract, ladder
    from kernels.yours import explain, prove, proves

__all__ = [
    "budget",
    "catalog",
    "checks",
    "contract",
    "exercises",
    "explain",
    "gallery",
    "gpu",
    "ladder",
    "neuron",
    "optional",
    "pallas",
    "pictures",
    "prove",
    "proves",
    "taichi",
    "timing",
    "tpu",
]

# Modules that are imported from here, and the room in which each lies.
ROOMS = {
    "lessons": ("exercises", "gallery", "pictures"),
    "machines": ("checks", "gpu", "neuron", "optional", "pallas", "taichi", "timing", "tpu"),
    "proof": ("budget", "catalog", "contract", "ladder"),
}


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when it is first asked for."""
    for room, modules in ROOMS.items():
        if name in modules:
            return importlib.import_module(f"kernels.{room}.{name}")
    if name in __all__:
        return getattr(importlib.import_module("kernels.yours"), name)
    raise AttributeError(f"module 'kernels' has no attribute {name!r}")


__version__ = "0.1.0"
