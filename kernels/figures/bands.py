"""How far the estimates were off, row by row, and the band that follows for the next one.

results/validation.csv sets the estimate of each published row beside what was measured. The rows
fall into two halves by a hash of their problem: constants may be fitted on one, and the other says
how good the fit is. The estimator makes its bands of that half (kernels.tpu.estimate.bands).
"""

from __future__ import annotations

import csv
import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kernels.figures import store
from kernels.figures.schema import FIELDS, Key, Named
from kernels.machines.checks import fail, one_of
from kernels.machines.tpu.estimate.bands import (
    TEST,
    VALIDATION,
    Band,
    band_of,
    counts,
    path,
    quantile,
)

FIT = "fit"
HALVES = FIT, TEST
CLOCKS = ("device", "wall")
DIGITS = 6  # behind the point, of what the file holds


def half(key: Key) -> str:
    """Which half a row falls into: "fit" or "test".

    All rows of one operator and sizes fall into the same one, whoever solves them and on which
    chip: near twins on both sides would make the test an easy one.
    """
    sizes = " ".join(f"{name}={key.sizes[name]}" for name in sorted(key.sizes))
    digest = hashlib.sha256(f"{key.operator} {sizes}".encode()).digest()
    return HALVES[digest[0] % 2]


@dataclass(frozen=True, kw_only=True)
class Checked(Key):
    """A published row, and what the estimator says of it.

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
    def half(self) -> str:
        """ "fit" or "test"."""
        return half(self)

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

    def cells(self) -> tuple[str, ...]:
        """The row as COLUMNS has it."""
        return tuple(_cell(getattr(self, FIELDS.get(name, name))) for name in COLUMNS)

    @classmethod
    def of_cells(cls, row: dict[str, str]) -> Checked:
        """The row of its cells.

        Raises:
            ValueError: for what a constructor refuses, and where the half or the error is not that
                of the row.
        """
        known: dict[str, Any] = {FIELDS.get(name, name): cell for name, cell in row.items()}
        said = {name: known.pop(name) for name in ("half", "error")}
        for name in ("sizes", "options", "tuning"):
            known[name] = Named.parse(known[name])
        known["estimated_ms"] = float(known["estimated_ms"]) if known["estimated_ms"] else None
        for name in ("published_ms", "launch_ms", "seconds"):
            known[name] = float(known[name])
        known["hbm_bytes"] = int(known["hbm_bytes"])
        found = cls(**known)
        if said["half"] != found.half:
            fail(f"the half of {found.operator} {found.text}", said["half"], found.half)
        error = _cell(found.error)
        if said["error"] != error:
            fail(f"the error of {found.operator} {found.text}", said["error"], error)
        return found


COLUMNS = (
    *("operator", "implementation", "sizes", "dtype", "options", "tuning", "pass", "chip"),
    *("clock", "half", "published_ms", "estimated_ms", "launch_ms", "error", "regime", "bound"),
    *("hbm_bytes", "method", "reason", "seconds", "model", "versions", "date"),
)
assert {FIELDS.get(name, name) for name in COLUMNS} == {
    *(each.name for each in fields(Checked)),
    *("half", "error"),
}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.{DIGITS}f}" if isinstance(value, float) else str(value)


def read(file: Path | None = None) -> list[Checked]:
    """The rows that were checked; none where there is no file.

    Args:
        file: by default that of results/, or, of an installed package, the copy that it brings.

    Raises:
        ValueError: for other columns, and for a row that contradicts itself.
    """
    if file is None:
        file = store.RESULTS / VALIDATION if store.RESULTS.exists() else path()
    if not file.exists():
        return []
    return list(_read(file, file.stat().st_mtime_ns))


@functools.lru_cache(4)
def _read(file: Path, changed: int) -> tuple[Checked, ...]:
    with open(file, newline="", encoding="utf-8") as opened:
        rows = csv.DictReader(opened)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            fail(f"the columns of {file.name}", rows.fieldnames, ", ".join(COLUMNS))
        return tuple(Checked.of_cells(row) for row in rows)


def add(rows: Iterable[Checked], file: Path | None = None) -> None:
    """Keep rows, in the place of older ones of the same key."""
    file = file or store.RESULTS / VALIDATION
    with store.locked(file):
        known = {row.key: row for row in read(file)} | {row.key: row for row in rows}
        store.write_rows(file, COLUMNS, sorted(row.cells() for row in known.values()))


def band(chip: str, regime: str, rows: Iterable[Checked]) -> Band | None:
    """The band that follows from rows: see kernels.tpu.estimate.bands.

    Args:
        chip: one of kernels.tpu.CHIPS.
        regime: as an estimate names it.
        rows: those that are of the test half, this chip and this regime count.

    Returns:
        None where fewer than FEWEST of them have an estimate: no measurement of this kind.
    """
    return band_of(chip, regime, errors(chip, regime, rows))


def errors(chip: str, regime: str, rows: Iterable[Checked]) -> list[float]:
    """The errors that a band is made of."""
    of = (row for row in rows if (row.chip, row.regime, row.half) == (chip, regime, TEST))
    return [
        row.error for row in of if row.error is not None and counts(row.published_ms, row.launch_ms)
    ]


@dataclass(frozen=True)
class Spread:
    """What is to be told of the errors of some rows.

    Args:
        rows: that have an estimate.
        median, most: of the errors' sizes: the middle one, and what nine in ten stay below.
        bias: the middle one of the errors with their signs.
    """

    rows: int
    median: float
    most: float
    bias: float


def spread(rows: Iterable[Checked]) -> Spread | None:
    """The errors of rows together; None where none has an estimate."""
    errors = sorted(row.error for row in rows if row.error is not None)
    if not errors:
        return None
    sizes = sorted(map(abs, errors))
    return Spread(len(errors), quantile(sizes, 0.5), quantile(sizes, 0.9), quantile(errors, 0.5))
