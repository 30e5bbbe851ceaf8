"""The judge's verdicts on a public set of kernels that a language model wrote, beside a chip's.

    python -m validation judged VERDICTS.jsonl THEIRS.json PROBLEMS/

VERDICTS.jsonl is what `python -m kernels judge --json` printed of the set's kernels, THEIRS.json
the set's own record of what a v6e said, PROBLEMS/ has the originals. What is kept are facts of the
three, a row a kernel, no code.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels.figures import store
from kernels.yours import models
from kernels.yours.verdict import REFUSED, RIGHT, UNDECIDED, WRONG

FILE = "judged.csv"
CHIP = "v6e"  # that the set was judged on
SUITE, LEVEL = "jaxkernelbench", "level1"  # the part that was looked at; the others are held out
RUNGS = ("trace", "lower", "compile", "memory", "index maps", "interpret", "simulate")
# What the chip's record says, and what the two together come to.
NONE = "no verdict"  # of the chip's record, which has RIGHT, WRONG and REFUSED too
CAUGHT, MISSED, AGREED = "caught", "missed", "right, and so on the chip"
ALARM, HIDDEN = "refused or wrong, though right on the chip", "wrong where zeros had hidden it"
OPEN, ALONE = "not decided by the judge", "not decided by the chip"
LATER = "not judged yet"  # of no rung
OUTCOMES = (CAUGHT, HIDDEN, AGREED, MISSED, ALARM, OPEN, ALONE)
# Of an error of the harness: the memory of other results, another process on the chip, no answer.
OF_HARNESS = r"_HBM0\)|already in use|resource busy|Command timed out|coredump_hook"
CHANGES = "right on the file's own values"
LATE, BLOCKLESS = "not done after", "it could not be shrunk by whole blocks"  # so begin reasons


@dataclass(frozen=True)
class Judged:
    """A kernel of the set: what the chip's record says, and what the judge does."""

    kernel: str
    chip: str
    theirs: str  # RIGHT, WRONG, REFUSED or NONE
    their_ms: str  # of the kernel and of its reference, where they were timed
    their_reference_ms: str
    ours: str
    rung: str
    reason: str  # the judge's, its first words
    ours_ms: str  # estimated
    reference_ms: str
    gone: str  # names that the installed JAX has not
    zeros: str  # whether the problem's weights, as its constructor makes them, are all zeros
    changes: str  # whether the verdict changes with the values
    versions: str

    @property
    def outcome(self) -> str:
        """What the two verdicts come to, one of OUTCOMES."""
        bad = self.ours in (WRONG, REFUSED)
        if not self.ours:
            return LATER
        if self.ours == UNDECIDED:
            return OPEN
        if self.theirs == NONE:
            return ALONE
        if self.theirs == RIGHT:
            hidden = self.ours == WRONG and (self.changes or self.zeros)
            return (HIDDEN if hidden else ALARM) if bad else AGREED
        return CAUGHT if bad else MISSED

    @property
    def alone(self) -> bool:
        """Whether it failed at a smaller size, and may be right at its one size alone."""
        return self.reason.startswith(BLOCKLESS)


def merged(
    verdicts: Sequence[dict[str, Any]],
    theirs: Sequence[dict[str, Any]],
    zeros: Collection[str],
    versions: str,
) -> list[Judged]:
    """A row for each kernel of the set, by its number; also for one that is not judged yet. zeros:
    the names of those whose problem has weights of zeros alone."""
    known = {r["name"]: r for r in theirs if (r["suite"], r["level"]) == (SUITE, LEVEL)}
    none = {"verdict": "", "rung": "", "why": "", "seconds": None, "reference_seconds": None}
    later = {"chips": [none | {"chip": CHIP}], "notes": [], "gone": []}
    ours = {verdict["name"]: verdict for verdict in verdicts}
    rows = []
    for name, record in known.items():
        verdict = ours.get(name, later)
        on = verdict["chips"][0]
        notes = " ".join(verdict["notes"])
        ms = lambda seconds: f"{1e3 * seconds[0]:.4g}" if seconds else ""
        row = Judged(
            kernel=name,
            chip=on["chip"],
            theirs=_theirs(record),
            their_ms=str(record.get("generated_ms", "")),
            their_reference_ms=str(record.get("original_ms", "")),
            ours=on["verdict"],
            rung=on["rung"],
            reason=re.sub(r"\s+", " ", on["why"])[:120],
            ours_ms=ms(on["seconds"]),
            reference_ms=ms(on["reference_seconds"]),
            gone=" ".join(name["name"] for name in verdict["gone"]),
            zeros="yes" if name in zeros else "",
            changes="yes" if CHANGES in notes else "",
            versions=versions,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: int(row.kernel.partition("_")[0]))


def _theirs(record: dict[str, Any]) -> str:
    if record["status"] == "success":
        return RIGHT if record["correct"] else WRONG
    error = record["error"].strip()
    return NONE if not error or re.search(OF_HARNESS, error) else REFUSED


def write(rows: Sequence[Judged]) -> None:
    """Write the rows into results/."""
    store.RESULTS.mkdir(parents=True, exist_ok=True)
    with open(store.RESULTS / FILE, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Judged)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))


def read() -> list[Judged]:
    """The rows that results/ has; none where it has no such file."""
    path = store.RESULTS / FILE
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [Judged(**row) for row in csv.DictReader(file)]


def by_rung(rows: Sequence[Judged]) -> dict[str, Counter[str]]:
    """How often each outcome was decided at each rung, of those that decided any."""
    counts: dict[str, Counter[str]] = {rung: Counter() for rung in RUNGS}
    for row in rows:
        if row.outcome != LATER:
            counts[row.rung][row.outcome] += 1
    return {rung: count for rung, count in counts.items() if count}


def of_zeros(reference: Path) -> bool:
    """Whether a problem has weights, and its constructor makes each of them of zeros alone.

    Raises:
        ValueError: for a file that is not in the form.
    """
    weights = models.sized_as(str(reference), str(reference), {}).weights().values()
    return bool(weights) and not any(np.any(np.asarray(weight)) for weight in weights)


def record(verdicts: Path, theirs: Path, problems: Path, versions: str) -> list[Judged]:
    """Merge two files of verdicts and a folder of problems, and keep what comes out; the verdict on
    what was judged before, and is not in the first, stays.

    Raises:
        OSError: where a file cannot be read.
        ValueError: for a problem that is not in the form.
    """
    lines = verdicts.read_text(encoding="utf-8").splitlines()
    results = json.loads(theirs.read_text(encoding="utf-8"))
    results = results["results"] if isinstance(results, dict) else results
    before = {row.kernel: row for row in read() if row.ours}
    zeros = {file.stem for file in problems.glob("[0-9]*.py") if of_zeros(file)}
    rows = merged([json.loads(line) for line in lines], results, zeros, versions)
    rows = [
        row if row.ours else replace(before.get(row.kernel, row), zeros=row.zeros) for row in rows
    ]
    write(rows)
    return rows
