"""Figures: records of what was measured, estimated or published, and the tables made of them."""

from typing import TYPE_CHECKING

from kernels.figures.schema import (
    KINDS,
    PASSES,
    QUANTITIES,
    Key,
    Problem,
    Record,
    estimated,
    recorded_with,
)
from kernels.figures.store import TuningStore, add, read, write
from kernels.machines.lazy import lazy

if TYPE_CHECKING:
    from kernels.figures.report import compare

__all__ = [
    "BARS",
    "KINDS",
    "PASSES",
    "QUANTITIES",
    "Key",
    "Problem",
    "Record",
    "TuningStore",
    "add",
    "bands",
    "calibration",
    "compare",
    "estimated",
    "gpu",
    "lines",
    "predicted",
    "read",
    "recorded_with",
    "report",
    "searched",
    "validation",
    "wallclock",
    "write",
]

# They know the catalog, which only whoever asks has to wait for.
_MODULES = {"BARS": "programs", "compare": "report", "predicted": "plots"}
__getattr__ = lazy(__name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()})
