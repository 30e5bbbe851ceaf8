"""Estimates beside published times of TPUs, row by row, as results/validation.csv keeps them.

The rows fall into two halves by a hash of their problem: constants may be fitted on one, and the
other says how good the fit is. Bands are made of that half (kernels.machines.tpu.estimate.bands).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from kernels.figures import store
from kernels.figures.schema import HALVES, KEY_COLUMNS, Row
from kernels.machines.checks import fail, one_of
from kernels.machines.tpu.estimate import bands
from kernels.machines.tpu.estimate.bands import VALIDATION

__all__ = ["FIT", "TEST", "Comparison", "Spread", "add", "compilers", "quantile", "read", "spread"]
FIT, TEST = HALVES
CLOCKS = ("device", "wall")
DIGITS = 6  # behind the point, of what the file holds


@dataclass(frozen=True, kw_only=True)
class Comparison(Row):
    """A published time, and what the estimator says of it.

    Args:
        clock: which one the published time was taken with: "device", of the chip alone, or "wall",
            launch included.
        published_ms: what was measured.
        estimated_ms: what that clock would show; None where there is no estimate.
        launch_ms: of it, the launch.
        regime: of the estimate: who wrote what takes most of the time, and what binds there.
        bound, hbm_bytes, method: of the estimate; no bytes where they were not kept.
        reason: why there is none, or why it is off.
        seconds: that it took.
        model: a digest of the estimator's source.
        versions, date: of the estimate.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *(*KEY_COLUMNS, "clock", "half", "published_ms", "estimated_ms", "launch_ms", "error"),
        *("regime", "bound", "hbm_bytes", "method", "reason", "seconds", "model", "versions"),
        "date",
    )
    DIGITS: ClassVar[int | None] = DIGITS

    clock: str
    published_ms: float
    estimated_ms: float | None = None
    launch_ms: float = 0.0
    regime: str = ""
    bound: str = ""
    hbm_bytes: int = 0
    method: str = ""
    reason: str = ""
    seconds: float = 0.0
    model: str = ""
    versions: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("clock", self.clock, CLOCKS)
        if not self.published_ms > 0:
            fail("published_ms", self.published_ms, "more than 0")
        if self.estimated_ms is None and not self.reason:
            fail("reason", "empty", "why there is no estimate")
        for name in ("published_ms", "estimated_ms", "launch_ms"):
            if getattr(self, name) is not None:  # as the file will have it
                object.__setattr__(self, name, round(getattr(self, name), DIGITS))

    @property
    def identity(self) -> Hashable:
        """What tells rows apart: the same key stands once for each compiler."""
        return self.key, bands.compiler(self.versions)

    @property
    def chip_ms(self) -> float | None:
        """The estimate without the launch."""
        return None if self.estimated_ms is None else self.estimated_ms - self.launch_ms

    @property
    def error(self) -> float | None:
        """Relative; positive where the estimate is too slow; None without an estimate."""
        if self.estimated_ms is None:
            return None
        return round(self.estimated_ms / self.published_ms - 1, DIGITS)


def read(file: Path | None = None, compiler: str = "") -> list[Comparison]:
    """The rows of one compiler; none where there is no file.

    Args:
        file: by default that of results/.
        compiler: such as "libtpu 0.0.50"; by default the one of which most rows are.

    Raises:
        ValueError: for other columns, and for a row that contradicts itself.
    """
    wanted = compiler or next(iter(compilers(file)), "")
    return [row for row in _rows(file) if bands.compiler(row.versions) == wanted]


def compilers(file: Path | None = None) -> list[str]:
    """Whose rows a file has, the one with most of them first."""
    count = Counter(bands.compiler(row.versions) for row in _rows(file))
    return [name for name, _ in count.most_common()]


def _rows(file: Path | None) -> Sequence[Comparison]:
    file = file or store.RESULTS / VALIDATION
    return _read(file, file.stat().st_mtime_ns) if file.exists() else ()


@functools.lru_cache(4)
def _read(file: Path, changed: int) -> tuple[Comparison, ...]:
    return tuple(map(Comparison.of_cells, bands.cells(file)))


def add(rows: Iterable[Comparison], file: Path | None = None) -> None:
    """Keep rows, in the place of older ones of the same key."""
    store.add(file or store.RESULTS / VALIDATION, rows)


@dataclass(frozen=True)
class Spread:
    """What is to be said of the errors of some rows.

    Args:
        rows: that have an estimate.
        median, most: of the errors' sizes: the middle one, and what nine in ten stay below.
        bias: the middle one of the errors with their signs.
    """

    rows: int
    median: float
    most: float
    bias: float


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them, 0 to 1, lies, between neighbours in proportion."""
    return float(np.quantile(values, share))


def spread(rows: Iterable[Comparison]) -> Spread | None:
    """The errors of rows together; None where none has an estimate."""
    errors = sorted(row.error for row in rows if row.error is not None)
    if not errors:
        return None
    sizes = sorted(map(abs, errors))
    return Spread(len(errors), quantile(sizes, 0.5), quantile(sizes, 0.9), quantile(errors, 0.5))
