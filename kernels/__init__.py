"""Machine-learning kernels, each proven rung by rung. Importing this package imports nothing heavy.

>>> from kernels.matmul import matmul
>>> from kernels.vector import add_vectors, iota
>>> from kernels import tpu, gpu, neuron, taichi

`python -m kernels list` shows every operator, `python -m kernels verify` proves them; and
`kernels.prove`, `kernels.judge` and `kernels.explain` take a kernel of your own. Folders with an
operator.py are operators; behind them are six rooms: proof, machines, figures, lessons, yours, cli.
"""

import os
from typing import TYPE_CHECKING

from kernels.machines.lazy import lazy

if TYPE_CHECKING:
    from kernels import figures, vector
    from kernels.lessons import exercises, gallery, pictures
    from kernels.machines import checks, gpu, neuron, optional, pallas, stopwatch, taichi, tpu
    from kernels.proof import budget, catalog, contract, ladder
    from kernels.yours import explain, judge, prove, proves

# XLA reads it when it starts: it runs as many threads as there are processors. Warpgroups that are
# simulated wait for each other, a thread each, and with fewer threads than warpgroups for ever.
if (os.cpu_count() or 1) < 4:
    os.environ.setdefault("NPROC", "4")

__all__ = [
    "budget",
    "catalog",
    "checks",
    "contract",
    "exercises",
    "explain",
    "figures",
    "gallery",
    "gpu",
    "judge",
    "ladder",
    "neuron",
    "optional",
    "pallas",
    "pictures",
    "prove",
    "proves",
    "stopwatch",
    "taichi",
    "tpu",
    "vector",
]

_PLACES = {
    "kernels.lessons": ("exercises", "gallery", "pictures"),
    "kernels.machines": (
        *("checks", "gpu", "neuron", "optional", "pallas", "stopwatch", "taichi", "tpu"),
    ),
    "kernels.proof": ("budget", "catalog", "contract", "ladder"),
}
_MODULES = {name: f"{room}.{name}" for room, names in _PLACES.items() for name in names}
_MODULES |= dict.fromkeys(("explain", "judge", "prove", "proves"), "kernels.yours")
__getattr__ = lazy(__name__, _MODULES)

__version__ = "0.2.0"
