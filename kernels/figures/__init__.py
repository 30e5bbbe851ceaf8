"""Figures: records of what was measured, estimated or published, and the tables made of them."""

from typing import TYPE_CHECKING, Any

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
    "compare",
    "estimated",
    "read",
    "recorded_with",
    "write",
]


def __getattr__(name: str) -> Any:
    if name == "compare":  # which knows the catalog: operators import this package, and cannot
        from kernels.figures.report import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
