"""Kernels of public repositories, as they were published and with a fault planted in each: what the
rungs of `prove` say of them, and what a tolerance says. Facts are kept, and no code."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from kernels.figures import store

FILE = "foreign.csv"
RUNGS = ("interpret", "simulate", "compile")
PASSED, PARTIAL, FAILED = "passed", "partial", "failed"  # of a rung; empty where it was not climbed


@dataclass(frozen=True)
class Foreign:
    """A kernel, as it was published or with a fault: what is said of it on a v6e."""

    kernel: str
    repository: str  # on GitHub
    commit: str
    fault: str  # that was planted, in words; empty as it was published
    interpret: str
    simulate: str
    compile: str
    seconds: str  # of processor time, for all rungs
    # Whether torch.testing.assert_close, at its own tolerance, takes what JAX's interpreter gives
    # on one draw: PASSED, FAILED, or empty where that does not run it.
    tolerance: str
    why: str  # of the first rung that failed, its first words
    right: str  # of a kernel as published that a rung fails: "yes" where that is a false alarm
    versions: str

    @property
    def rung(self) -> str:
        """The first that fails it; empty where none does."""
        return next((rung for rung in RUNGS if getattr(self, rung) == FAILED), "")


def write(rows: Sequence[Foreign]) -> None:
    """Write the rows into results/."""
    store.RESULTS.mkdir(parents=True, exist_ok=True)
    with open(store.RESULTS / FILE, "w", newline="", encoding="utf-8") as file:
        names = [field.name for field in fields(Foreign)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))


def read() -> list[Foreign]:
    """The rows that results/ has; none where it has no such file."""
    path = store.RESULTS / FILE
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [Foreign(**row) for row in csv.DictReader(file)]
