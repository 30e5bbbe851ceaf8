"""How every implementation last fared at every rung, by the tests.

    python -m kernels.figures.status

keeps a whole run of this checkout's tests in results/status.csv, for readers who have not run them.
"""

import datetime
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar

import typer

from kernels.figures.schema import CsvRow
from kernels.figures.store import read, write
from kernels.proof import ladder
from kernels.proof.catalog import Implementation, find

ROOT = Path(__file__).parents[2]  # of a checkout
PARTS = Path("_build") / "status"  # a file for each process of the tests
KEPT = "status.csv"


@dataclass(frozen=True)
class RungResult(CsvRow):
    """How one implementation fared at one rung."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("operator", "implementation", "rung", *ladder.STATUSES),
        *("message", "seconds", "date", "machine"),
    )

    operator: str
    implementation: str
    rung: str
    # How many workloads did which.
    passed: int
    partial: int
    skipped: int
    failed: int
    message: str  # the first reason or note
    seconds: float  # of all of them
    date: str  # when, in local time
    machine: str  # on what

    @property
    def identity(self) -> tuple[str, str, str]:
        """What was tried."""
        return self.operator, self.implementation, self.rung

    @property
    def outcome(self) -> str:
        """The worst status that there was."""
        return ladder.worst(status for status, count in self.counts.items() if count)

    @property
    def counts(self) -> dict[str, int]:
        """Status → how many workloads ended so."""
        return {status: getattr(self, status) for status in ladder.STATUSES}


def machine() -> str:
    """The class of this machine: no name, nothing that tells two of a kind apart."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {cores} cores"


def summary(checks: Sequence[ladder.Check]) -> RungResult:
    """The checks of one implementation at one rung, as one result of today."""
    first = checks[0]
    worst = ladder.worst(c.status for c in checks)
    messages = [c.message for c in checks if c.status == worst and c.message]
    return RungResult(
        operator=first.operator,
        implementation=first.implementation,
        rung=first.rung,
        **{s: sum(c.status == s for c in checks) for s in ladder.STATUSES},
        message=messages[0] if messages else "",
        seconds=round(sum(c.seconds for c in checks), 1),
        date=datetime.datetime.now().isoformat(" ", "minutes"),
        machine=machine(),
    )


def note(checks: Sequence[ladder.Check], part: str = "main", root: Path | None = None) -> None:
    """Remember how one implementation fared at one rung, in a file for each `part`, the process
    that notes it; `root` is of the repository, None this one's."""
    path = (root or ROOT) / PARTS / f"{part}.csv"
    write(path, [*_read(path), summary(checks)])


def here(root: Path | None = None) -> dict[tuple[str, str, str], RungResult]:
    """The newest result of each rung that the tests of this checkout climbed."""
    parts = sorted(((root or ROOT) / PARTS).glob("*.csv"))
    return _newest(result for path in parts for result in _read(path))


def results(root: Path | None = None) -> dict[tuple[str, str, str], RungResult]:
    """The newest result of each rung: of this checkout's tests, or else the one that it came
    with."""
    return _newest([*_read((root or ROOT) / "results" / KEPT), *here(root).values()])


def claims() -> list[tuple[str, str, str]]:
    """Every rung that an implementation claims."""
    return [(o.name, i.name, rung) for o, i in find() for rung in i.rungs]


def why_empty(implementation: Implementation, rung: str) -> str:
    """Why there is no result of a rung: a word or two, and after a colon the reason."""
    if rung != "measure" and (reason := implementation.backend.why_not(rung)):
        return f"no such rung: {reason}"
    if rung in implementation.rungs:
        return "not run: the tests have not climbed it yet"
    return f"on request: python -m kernels verify OPERATOR/IMPLEMENTATION --rung {rung}"


def packages(constraints: Path | None = None) -> list[tuple[str, str, str]]:
    """(name, pinned version, installed version or "") of every line of constraints.txt that is for
    this Python and this machine."""
    from packaging.requirements import Requirement

    pins = []
    for line in (constraints or ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not (line := line.partition("#")[0].strip()):
            continue
        pin = Requirement(line)
        if pin.marker and not pin.marker.evaluate():
            continue
        try:
            installed = version(pin.name)
        except PackageNotFoundError:
            installed = ""
        pins.append((pin.name, str(pin.specifier).removeprefix("=="), installed))
    return pins


def _read(path: Path) -> list[RungResult]:
    try:
        return read(path, RungResult, missing_ok=True)
    except ValueError:
        return []  # of an older format: the tests will write it anew


def _newest(results: Iterable[RungResult]) -> dict[tuple[str, str, str], RungResult]:
    return {result.identity: result for result in sorted(results, key=lambda result: result.date)}


def main() -> None:
    """Keep a whole run of the tests in results/status.csv."""
    climbed = here()
    if missing := [claim for claim in claims() if claim not in climbed]:
        some = ", ".join(f"{o}/{i} {rung}" for o, i, rung in missing[:5])
        print(f"Not a whole run: {len(missing)} rungs are missing, such as {some}.")
        print("Run tests/proof/test_ladder.py first.")
        raise typer.Exit(1)
    write(ROOT / "results" / KEPT, (climbed[claim] for claim in claims()))
    print(f"{len(claims())} rungs are in results/{KEPT}")


if __name__ == "__main__":
    typer.run(main)
