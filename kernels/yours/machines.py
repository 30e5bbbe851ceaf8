"""Which machine a chip belongs to: what explains a function there.

Each machine is a module, kernels.yours.on_tpu and on_gpu, with

- `ready()`, which raises where its compiler is not installed, and gives the compiler's version,
- `explain(asked)`, which gives an Explanation of what is Asked. It raises ValueError for trips of
  what does not depend on data, and for a function that returns no array.

Importing one imports nothing heavy: a child does the work.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.machines.checks import fail, one_of
from kernels.machines.compat import jaxprs

MACHINES = ("tpu", "gpu")


@dataclass(frozen=True)
class Asked:
    """What is to be explained, and how."""

    function: Callable[..., Any]  # of arrays alone
    arrays: Sequence[Any]  # these, NumPy's or JAX's, or their shapes
    chip: str  # that it is compiled for
    # The function's, and the explanation's.
    name: str
    title: str
    timeout: float  # seconds for a compilation
    pictures: bool  # whether to draw what a page shows
    # The name of a loop, or "" for every one → how often it runs, where data decides.
    trips: Mapping[str, int]
    cut: Mapping[str, Any] = field(default_factory=dict)  # over a mesh, as kernels.tpu.compile does
    flops: float | None = None  # of its kernels' products, where they cannot be counted


def returning(program: Any) -> Any:
    """A program that was exported, as it is; ValueError for one that returns nothing: all that it
    computes is left out."""
    if not jaxprs.outputs(program.jaxpr):
        fail("function", f"{program.name}, which returns no array", "one that returns its results")
    return program


def chips() -> dict[str, Any]:
    """The name of each chip → the module of its machine."""
    load = importlib.import_module
    return {
        name: load(f"kernels.yours.on_{own}")
        for own in MACHINES
        for name in load(f"kernels.machines.{own}.chips").CHIPS
    }


def machine(chip: str, option: str = "--chip") -> Any:
    """The module of the machine that has a chip; ValueError for a chip of none, with all names."""
    one_of(option, chip, chips())
    return chips()[chip]
