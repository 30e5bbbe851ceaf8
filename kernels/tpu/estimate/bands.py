"""The band beside an estimate: how far estimates of its kind were off, against measurements.

results/validation.csv holds the estimate of each published row beside what was measured. A band is
made of its half that is kept for testing (see kernels.records.bands).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2]
VALIDATION = "validation.csv"
TEST = "test"  # the half that is kept for testing
SHARE = 0.8  # of the errors that a band holds
FEWEST = 5  # rows that make a band
NONE = "no measurement of this kind"
WRITERS = ("Pallas", "XLA")


def regime(estimate: Any) -> str:
    """The sort of program that an estimate is of: who wrote what takes most of its time, and what
    binds there.

    Args:
        estimate: a kernels.tpu.Estimate.

    Returns:
        "Pallas, compute", "XLA, HBM" and the like.
    """
    ours = sum(op.cycles for op in estimate.ops if op.call is not None)
    writer = WRITERS[0] if 2 * ours > sum(op.cycles for op in estimate.ops) else WRITERS[1]
    return f"{writer}, {estimate.bound}"


@dataclass(frozen=True)
class Band:
    """How far estimates of one regime on one chip were off.

    Args:
        chip, regime: of the rows.
        low, high: relative errors; the middle 80 % of the rows lie between them.
        rows: how many there are, all of the half kept for testing.
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


def path() -> Path:
    """Where the rows are: in results/, or, of an installed package, beside kernels.records."""
    kept = PACKAGE.parent / "results" / VALIDATION
    packaged = PACKAGE / "records" / VALIDATION
    return kept if kept.exists() or not packaged.exists() else packaged


def band(chip: str, kind: str) -> Band | None:
    """The band of a regime on a chip, of the rows that are kept.

    Args:
        chip: one of CHIPS.
        kind: a regime, as `regime` names it.

    Returns:
        None where fewer than FEWEST rows are of that kind: no measurement of this kind.
    """
    file = path()
    rows = _errors(file, file.stat().st_mtime_ns) if file.exists() else {}
    return band_of(chip, kind, rows.get((chip, kind), ()))


def band_of(chip: str, kind: str, errors: Iterable[float]) -> Band | None:
    """The middle 80 % of relative errors; None where they are fewer than FEWEST."""
    found = sorted(errors)
    if len(found) < FEWEST:
        return None
    outside = (1 - SHARE) / 2
    return Band(chip, kind, quantile(found, outside), quantile(found, 1 - outside), len(found))


@functools.lru_cache(4)
def _errors(file: Path, changed: int) -> dict[tuple[str, str], list[float]]:
    """chip and regime → the errors of the test half."""
    found: dict[tuple[str, str], list[float]] = {}
    with open(file, newline="", encoding="utf-8") as opened:
        for row in csv.DictReader(opened):
            if row["half"] == TEST and row["error"]:
                found.setdefault((row["chip"], row["regime"]), []).append(float(row["error"]))
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies, between neighbours in proportion.

    Args:
        values: at least one, in order.
        share: from 0 to 1.
    """
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])
