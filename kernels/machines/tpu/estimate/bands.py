"""The band beside an estimate: how far estimates of its kind were off, against measurements.

results/validation.csv holds the estimate of each published row beside what was measured, and says
in which half it is; a band is made of the half that is kept for testing.
"""

from __future__ import annotations

import csv
import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VALIDATION = "validation.csv"
TEST = "test"  # the half that is kept for testing
SHARE = 0.8  # of the errors that a band holds
FEWEST = 5  # rows that make a band
NONE = "no measurement of this kind"
WRITERS = ("Pallas", "XLA")
LAUNCHED = 0.5  # of a published time: with more launch than that, a row says little of the chip


def regime(estimate: Any) -> str:
    """The sort of program that an estimate is of: who wrote what takes most of its time, and what
    binds there; of XLA's programs, whether that is in a loop, or a product, too.

    Args:
        estimate: a kernels.tpu.Estimate.

    Returns:
        "Pallas, compute", "XLA, HBM", "XLA loops, HBM", "XLA products, compute" and the like.
    """
    whole = sum(op.cycles for op in estimate.ops)
    most = lambda holds: 2 * sum(op.cycles for op in estimate.ops if holds(op)) > whole
    if most(lambda op: op.call is not None):
        writer = WRITERS[0]
    elif most(lambda op: op.call is None and op.times > 1):
        writer = f"{WRITERS[1]} loops"
    elif most(lambda op: op.call is None and op.kind in ("matmul", "kernel")):
        writer = f"{WRITERS[1]} products"
    else:
        writer = WRITERS[1]
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
        low, high = (100 * (end - 1) for end in self.around(1.0))
        return f"{low:+.0f} … {high:+.0f} %".replace("-", "−")


def ahead(times: Sequence[float], bands: Sequence[Band | None]) -> int | None:
    """Which of two estimates is surely the smaller: this book's one rule for a tie.

    Args:
        times: the two, in one unit.
        bands: of each; None where there is none.

    Returns:
        0 or 1, the place of the one whose whole range lies below the other's; None for a tie: the
        ranges overlap, or one of them is not known.
    """
    if None in bands:
        return None
    ranges = [band.around(time) for time, band in zip(times, bands, strict=True) if band]
    (low, high), (other_low, other_high) = ranges
    return 0 if high < other_low else 1 if other_high < low else None


def path() -> Path:
    """Where the rows are: in results/, or, of an installed package, beside this module."""
    kept = Path(__file__).parents[4] / "results" / VALIDATION
    packaged = Path(__file__).with_name(VALIDATION)
    return kept if kept.exists() or not packaged.exists() else packaged


def cells(file: Path) -> list[Mapping[str, str]]:
    """The rows of such a file, as they stand there: column → cell."""
    with open(file, newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def band(chip: str, kind: str, file: Path | None = None) -> Band | None:
    """The band of a regime on a chip, of the rows that are kept.

    Args:
        chip: one of CHIPS.
        kind: a regime, as `regime` names it.
        file: of the rows; by default, that of `path`.

    Returns:
        None where fewer than FEWEST rows are of that kind: no measurement of this kind.
    """
    return band_of(chip, kind, errors(chip, kind, file))


def errors(chip: str, kind: str, file: Path | None = None) -> list[float]:
    """The errors of the test half of a regime on a chip, of the rows that are kept."""
    file = file or path()
    rows = _errors(file, file.stat().st_mtime_ns) if file.exists() else {}
    return rows.get((chip, kind), [])


def none(rows: int) -> str:
    """Why there is no band, where so many rows are of the kind."""
    if not rows:
        return NONE
    return f"{rows} measurement{'s' * (rows > 1)} of this kind, too few for a band"


def counts(published_ms: float, launch_ms: float) -> bool:
    """Whether a row counts in a band: where the launch is most of what was timed, and was itself
    chosen by such a row, it says little of the chip."""
    return launch_ms <= LAUNCHED * published_ms


def band_of(chip: str, kind: str, errors: Iterable[float]) -> Band | None:
    """The middle 80 % of relative errors; None where they are fewer than FEWEST.

    Args:
        chip, kind: what they are of, for the band's text.
        errors: estimated over measured, less 1.
    """
    ranked = sorted(errors)
    if len(ranked) < FEWEST:
        return None
    outside = (1 - SHARE) / 2
    return Band(chip, kind, quantile(ranked, outside), quantile(ranked, 1 - outside), len(ranked))


@functools.lru_cache(4)
def _errors(file: Path, changed: int) -> Mapping[tuple[str, str], list[float]]:
    """chip and regime → the errors of the test half."""
    by_kind: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in cells(file):
        timed = float(row.get("published_ms") or 1), float(row.get("launch_ms") or 0)
        if row["half"] == TEST and row["error"] and counts(*timed):
            by_kind[row["chip"], row["regime"]].append(float(row["error"]))
    return by_kind


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies, between neighbours in proportion.

    Args:
        values: at least one, in order.
        share: from 0 to 1.
    """
    return float(np.quantile(values, share))
