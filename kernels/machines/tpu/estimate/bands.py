"""The band beside an estimate: how far estimates of its kind were off, against measurements.

results/validation.csv holds the estimate of each published row beside what was measured, and says
in which half it is; a band is made of the half that is kept for testing. A comparison of two
estimates has a band of its own, made of the problems that both sides were timed on (`ratio_band`).
"""

import contextlib
import csv
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

VALIDATION = "validation.csv"
TEST = "test"  # the half that is kept for testing
SHARE = 0.8  # of the errors that a band holds
FEWEST = 5  # rows that make a band
NONE = "no measurement of this kind"
WRITERS = ("Pallas", "XLA")
RATIO, ALL = "XLA over Pallas", "all chips"  # regime and chip of a comparison's band
PROBLEM = ("operator", "sizes", "dtype", "options", "pass", "clock", "chip")  # of a pair
LAUNCHED = 0.5  # of a published time: with more launch than that, a row says little of the chip


def regime(estimate: Any) -> str:
    """The sort of program that an estimate is of: who wrote what takes most of its time, and what
    binds there; of XLA's programs, whether that is in a loop, or a product, too. "Pallas, compute",
    "XLA, HBM", "XLA loops, HBM", "XLA products, compute" and the like."""
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
    """How far estimates of one regime on one chip were off."""

    chip: str
    regime: str
    low: float  # relative errors; of another program's four in five lie between this
    high: float  # and this
    rows: int  # how many there are, all of the half kept for testing
    other: str = ""  # the compiler that they were found with, where it is not the one in use

    def around(self, estimate: float) -> tuple[float, float]:
        """Where the time, or the ratio, would lie that is estimated so, the least first."""
        return estimate / (1 + self.high), estimate / (1 + self.low)

    @property
    def text(self) -> str:
        """Of the time against the estimate, such as "−8 … +15 %"."""
        low, high = (100 * (end - 1) for end in self.around(1.0))
        ends = f"{low:+.0f} … {high:+.0f} %".replace("-", "−")
        return f"{ends} (with {self.other}, not the compiler in use)" if self.other else ends


def ahead(times: Sequence[float], band: Band | None) -> int | None:
    """Which of two programs of one problem surely takes less: this book's one rule for a tie.

    Args:
        times: estimates of XLA's program and of the kernel, in one unit.
        band: of such ratios, as `ratio_band` has it; None where too few were timed.

    Returns:
        0 or 1, the place of the one that takes less wherever in its band the ratio lies; None for a
        tie: the lead is within the error of ratios, or nobody knows that error.
    """
    if band is None:
        return None
    low, high = band.around(times[0] / times[1])
    return 1 if low > 1 else 0 if high < 1 else None


def path() -> Path:
    """Where the rows are: in results/, or, of an installed package, beside this module."""
    kept = Path(__file__).parents[4] / "results" / VALIDATION
    packaged = Path(__file__).with_name(VALIDATION)
    return kept if kept.exists() or not packaged.exists() else packaged


def cells(file: Path) -> list[Mapping[str, str]]:
    """The rows of such a file, as they stand there: column → cell."""
    with open(file, newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def band(chip: str, kind: str, file: Path | None = None, compiler: str = "") -> Band | None:
    """The band of a regime on a chip, of the rows that are kept.

    Args:
        chip: one of CHIPS.
        kind: a regime, as `regime` names it.
        file: of the rows; by default, that of `path`.
        compiler: whose rows count where FEWEST or more are of that kind, such as "libtpu 0.0.50",
            or versions that name it; else those of the one that has most. By default the installed.

    Returns:
        None where fewer than FEWEST rows are of that kind: no measurement of this kind.
    """
    known, other = _chosen(chip, kind, file, compiler)
    if len(known) < FEWEST:
        return None
    # The next error falls into each of the n + 1 gaps between n of them equally often (split
    # conformal prediction; Lei and others, 2018): fewer than nine have the outermost for ends.
    method: Any = "linear" if kind == RATIO else "weibull"
    low, high = np.quantile(known, [(1 - SHARE) / 2, (1 + SHARE) / 2], method=method).tolist()
    return Band(chip, kind, low, high, len(known), other)


def errors(chip: str, kind: str, file: Path | None = None, compiler: str = "") -> list[float]:
    """The errors that `band` is made of, however few."""
    return _chosen(chip, kind, file, compiler)[0]


def ratio_band(chip: str, file: Path | None = None, compiler: str = "") -> Band | None:
    """The band of an estimated ratio: the time of XLA's program over that of a kernel.

    A pair is a row of a kernel, and of the same problem, chip and clock the row of XLA's program
    that was measured to be the fastest. Its error is that of the estimated ratio against the
    measured one: above 0, estimates flatter the kernel.

    Args:
        chip: where FEWEST or more problems have pairs, its own make the band; else those of all
            chips do, and `Band.chip` says so. Pairs of one problem share XLA's row.
        file, compiler: as of `band`.
    """
    return band(chip, RATIO, file, compiler) or band(ALL, RATIO, file, compiler)


def none(rows: int) -> str:
    """Why there is no band, where so many rows are of the kind."""
    few = f"{rows} measurement{'s' * (rows > 1)} of this kind, too few for a band"
    return few if rows else NONE


def compiler(versions: str) -> str:
    """The TPU's compiler among versions as a row has them, such as "libtpu 0.0.50"."""
    return next((part for part in versions.split(", ") if part.startswith("libtpu")), "")


def counts(published_ms: float, launch_ms: float) -> bool:
    """Whether a row counts in a band: where the launch is most of what was timed, and was itself
    chosen by such a row, it says little of the chip."""
    return launch_ms <= LAUNCHED * published_ms


def _chosen(chip: str, kind: str, file: Path | None, versions: str) -> tuple[list[float], str]:
    """The errors of the compiler in use, where they are enough, and else of the one that has most;
    and who that is, where it is another."""
    file, wanted = file or path(), compiler(versions)
    known = _found(file, file.stat().st_mtime_ns).get((chip, kind), {}) if file.exists() else {}
    with contextlib.suppress(metadata.PackageNotFoundError):
        wanted = wanted or f"libtpu {metadata.version('libtpu')}"
    most = max(known, key=lambda name: len(known[name]), default="")
    used = wanted if len(known.get(wanted, ())) >= FEWEST else most
    return known.get(used, []), used if wanted not in ("", used) else ""


@functools.lru_cache(4)
def _found(file: Path, changed: int) -> Mapping[tuple[str, str], Mapping[str, list[float]]]:
    """chip and regime, or RATIO → compiler → the errors of the test half."""
    errors: Any = defaultdict(lambda: defaultdict(list))
    problems: Any = defaultdict(list)
    for row in cells(file):
        published, launch = float(row["published_ms"]), float(row["launch_ms"])
        if row["half"] == TEST and row["error"] and counts(published, launch):
            used, error = compiler(row["versions"]), float(row["error"])
            errors[row["chip"], row["regime"]][used].append(error)
            problem = *(row[column] for column in PROBLEM), used
            problems[problem].append((row["implementation"], published, error))
    pairs: Any = defaultdict(list)  # chip and compiler → errors of ratios, problem by problem
    for (*_, chip, used), rows in problems.items():
        by_xla = [row[1:] for row in rows if row[0].startswith("xla")]
        kernels = [error for name, _, error in rows if not name.startswith("xla")]
        if by_xla and kernels:
            ratios = [(1 + min(by_xla)[1]) / (1 + error) - 1 for error in kernels]
            pairs[chip, used].append(ratios)
            pairs[ALL, used].append(ratios)
    for (chip, used), known in pairs.items():
        if len(known) >= FEWEST:
            errors[chip, RATIO][used] = [error for ratios in known for error in ratios]
    return errors
