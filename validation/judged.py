"""The judge's verdicts on a public set of kernels that a language model wrote, beside a chip's.

    python -m validation judged VERDICTS.jsonl THEIRS.json

VERDICTS.jsonl is what `python -m kernels judge --json` printed of the set's kernels, THEIRS.json
the set's own record of what a v6e said. What is kept are facts of both, a row a kernel, no code.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kernels.figures import store

FILE = "judged.csv"
CHIP = "v6e"  # that the set was judged on
SUITE, LEVEL = "jaxkernelbench", "level1"  # the part that was looked at; the others are held out
RUNGS = ("trace", "lower", "compile", "memory", "index maps", "interpret", "simulate")
# What the chip's record says, and what the two together come to.
RIGHT, WRONG, REFUSED, NONE = "right", "wrong", "refused", "no verdict"
CAUGHT, MISSED, AGREED = "caught", "missed", "right, and so on the chip"
ALARM, HIDDEN = "refused or wrong, though right on the chip", "wrong where zeros had hidden it"
OPEN, ALONE = "not decided by the judge", "not decided by the chip"
LATER = "not judged yet"  # of no rung
OUTCOMES = (CAUGHT, HIDDEN, AGREED, MISSED, ALARM, OPEN, ALONE)
# Of an error of the harness: the memory of other results, another process on the chip, no answer.
OF_HARNESS = r"_HBM0\)|already in use|resource busy|Command timed out|coredump_hook"
ZEROS = "all zeros"
CHANGES = "right on the file's own values"


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
    zeros: str  # whether weights of the set are all zeros
    changes: str  # whether the verdict changes with the values
    versions: str

    @property
    def outcome(self) -> str:
        """What the two verdicts come to, one of OUTCOMES."""
        bad = self.ours in (WRONG, REFUSED)
        if not self.ours:
            return LATER
        if self.ours == "undecided":
            return OPEN
        if self.theirs == NONE:
            return ALONE
        if self.theirs == RIGHT:
            return (HIDDEN if self.changes else ALARM) if bad else AGREED
        return CAUGHT if bad else MISSED


def merged(
    verdicts: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], versions: str
) -> list[Judged]:
    """A row for each kernel of the set, by its number; also for one that is not judged yet."""
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
            zeros="yes" if ZEROS in notes else "",
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


def record(verdicts: Path, theirs: Path, versions: str) -> list[Judged]:
    """Merge two files of verdicts, and keep what comes out; what was judged before, and is not in
    the first, stays.

    Raises:
        OSError: where a file cannot be read.
    """
    lines = verdicts.read_text(encoding="utf-8").splitlines()
    results = json.loads(theirs.read_text(encoding="utf-8"))
    results = results["results"] if isinstance(results, dict) else results
    before = {row.kernel: row for row in read() if row.ours}
    rows = merged([json.loads(line) for line in lines], results, versions)
    rows = [row if row.ours else before.get(row.kernel, row) for row in rows]
    write(rows)
    return rows
