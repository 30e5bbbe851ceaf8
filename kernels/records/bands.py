"""How far the estimates were off, row by row, and the band that follows for the next one.

results/validation.csv sets the estimate of each published row beside what was measured. The rows
fall into two halves by a hash of their problem: constants may be fitted on one, and the other says
how good the fit is. Imports nothing of the estimator, which reads its bands here.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kernels.checks import fail, one_of
from kernels.records import store
from kernels.records.schema import FIELDS, Key, Named

VALIDATION = "validation.csv"
PACKAGED = Path(__file__).with_name(VALIDATION)  # the copy that an installed package brings
FIT, TEST = HALVES = ("fit", "test")
CLOCKS = ("device", "wall")
SHARE = 0.8  # of the errors that a band holds
FEWEST = 5  # rows that make a band
DIGITS = 6  # behind the point, of what the file holds
NONE = "no measurement of this kind"
WRITERS = ("Pallas", "XLA")


def half(key: Key) -> str:
    """Which half a row falls into: "fit" or "test".

    All rows of one operator and sizes fall into the same one, whoever solves them and on which
    chip: near twins on both sides would make the test an easy one.
    """
    sizes = " ".join(f"{name}={key.sizes[name]}" for name in sorted(key.sizes))
    digest = hashlib.sha256(f"{key.operator} {sizes}".encode()).digest()
    return HALVES[digest[0] % 2]


def regime(estimate: Any) -> str:
    """The sort of program that an estimate is of: who wrote what takes most of its time, and what
    binds there.

    Args:
        estimate: a kernels.tpu.Estimate.

    Returns:
        "Pallas, compute", "XLA, HBM" and the like.
    """
    kernels = sum(op.cycles for op in estimate.ops if op.kind == "kernel")
    writer = WRITERS[0] if 2 * kernels > sum(op.cycles for op in estimate.ops) else WRITERS[1]
    return f"{writer}, {estimate.bound}"


@dataclass(frozen=True, kw_only=True)
class Checked(Key):
    """A published row, and what the estimator says of it.

    Args:
        clock: which one the published time was taken with: "device", of the chip alone, or "wall",
            launch included.
        published_ms: what was measured.
        estimated_ms: what that clock would show; None where there is no estimate.
        launch_ms: of it, the launch.
        regime: see `regime`.
        bound, method: of the estimate.
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
        for name in ("estimated_ms", "launch_ms"):
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
        return None if self.estimated_ms is None else self.estimated_ms / self.published_ms - 1

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
    *("method", "reason", "seconds", "model", "versions", "date"),
)
assert {FIELDS.get(name, name) for name in COLUMNS} == {
    *(each.name for each in fields(Checked)),
    *("half", "error"),
}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.{DIGITS}f}" if isinstance(value, float) else str(value)


def path() -> Path:
    """Where the rows are: in results/, or, of an installed package, beside this module."""
    kept = store.RESULTS / VALIDATION
    return kept if kept.exists() or not PACKAGED.exists() else PACKAGED


def read(file: Path | None = None) -> list[Checked]:
    """The rows that were checked; none where there is no file.

    Args:
        file: by default, `path`.

    Raises:
        ValueError: for other columns, and for a row that contradicts itself.
    """
    file = file or path()
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


@dataclass(frozen=True)
class Band:
    """How far estimates of one regime on one chip were off.

    Args:
        chip, regime: of the rows.
        low, high: relative errors; the middle 80 % of the rows lie between them.
        rows: how many there are, none of them fitted to.
    """

    chip: str
    regime: str
    low: float
    high: float
    rows: int

    def around(self, seconds: float) -> tuple[float, float]:
        """Where the time would lie that is estimated at so many seconds, the least first."""
        return seconds / (1 + self.high), seconds / (1 + self.low)

    @property
    def text(self) -> str:
        """Of the time against the estimate, such as "−8 … +15 %"."""
        low, high = (100 * (each - 1) for each in self.around(1.0))
        return f"{low:+.0f} … {high:+.0f} %".replace("-", "−")


def band(chip: str, regime: str, rows: Sequence[Checked] | None = None) -> Band | None:
    """The middle 80 % of the errors of a regime on a chip, of the half that nothing is fitted to.

    Args:
        chip: one of kernels.tpu.CHIPS.
        regime: as `regime` names it.
        rows: by default, all that were checked.

    Returns:
        None where fewer than FEWEST rows are of that kind: no measurement of this kind.
    """
    errors = sorted(
        row.error
        for row in (read() if rows is None else rows)
        if (row.chip, row.regime, row.half) == (chip, regime, TEST) and row.error is not None
    )
    if len(errors) < FEWEST:
        return None
    outside = (1 - SHARE) / 2
    low, high = quantile(errors, outside), quantile(errors, 1 - outside)
    return Band(chip, regime, low, high, len(errors))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies, between neighbours in proportion.

    Args:
        values: at least one, in order.
        share: from 0 to 1.
    """
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])
