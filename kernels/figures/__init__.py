"""Figures: records of what was measured, estimated or published, and the tables made of them."""

from typing import TYPE_CHECKING

from kernels.figures.schema import KINDS, PASSES, QUANTITIES, Key, Problem, Record, recorded_with
from kernels.figures.store import TuningStore, add, read, write
from kernels.machines.lazy import lazy

if TYPE_CHECKING:
    from kernels.figures.report import compare

__all__ = [
    "KINDS",
    "PASSES",
    "QUANTITIES",
    "Key",
    "Problem",
    "Record",
    "TuningStore",
    "add",
    "benchmark",
    "compare",
    "read",
    "recorded_with",
    "report",
    "write",
]

# They know the catalog, which only whoever asks has to wait for.
__getattr__ = lazy(__name__, {"compare": f"{__name__}.report"})
