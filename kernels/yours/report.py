"""What proving a kernel found: a table in a terminal and in a notebook, JUnit XML, Markdown."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from kernels.figures.table import Page, Paragraph, Table

# Words of a compiler's message, or of ours for it, and the anchor of its entry; the first counts.
with Path(__file__).with_name("symptoms.csv").open(encoding="utf-8", newline="") as _rows:
    ANCHORS = [(row["words"], row["anchor"]) for row in csv.DictReader(_rows)]


def see(message: str) -> str:
    """Where to read on, put after a message; empty where the page has nothing on it."""
    known = (anchor for words, anchor in ANCHORS if re.search(words, message))
    return next((f" (see book/symptoms.md#{anchor})" for anchor in known), "")


# From kernels.proof.ladder, which a report that is only shown does not need; the worst last.
PASSED, PARTIAL, SKIPPED, FAILED = "passed", "partial", "skipped", "failed"
WORDS = {PASSED: "passed", PARTIAL: "in part", SKIPPED: "skipped", FAILED: "FAILED"}
COLOURS = {"passed": "green", "in part": "yellow", "skipped": "yellow", "FAILED": "red"}
COLOURS["NOT RUN"] = "red"

COLUMNS = ("kernel", "rung", "problems", "result", "budget used", "seconds")


@dataclass(frozen=True)
class ProblemResult:
    """One rung on one problem."""

    kernel: str  # its name
    rung: str  # "interpret", "simulate" or "compile"
    problem: str  # the values that were drawn
    status: str  # "passed", "partial", "skipped" or "failed"
    message: str = ""  # why it is not "passed", in a line
    # Which block of which program wrote the wrong element; empty where none did or it is unknown.
    wrote: str = ""
    # The share of the error budget that the worst element took; None where nothing ran.
    used: float | None = None
    seconds: float = field(default=0.0, compare=False)  # of wall time
    chips: Sequence[str] = ()  # that it was to be compiled for

    @property
    def words(self) -> str:
        """Why it is not "passed", and what wrote the wrong element."""
        wrote = f"; {self.wrote}" if self.wrote else ""
        return self.message + wrote + (see(self.message) if self.status == FAILED else "")


@dataclass(frozen=True, repr=False)
class Report(Page):
    """What `kernels.prove` found, shown as a table.

    Args:
        findings: one for each kernel, rung and problem.
        notes: what is worth knowing beside them.
    """

    findings: tuple[ProblemResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no rung failed, and every kernel ran at one of those that run it."""
        return not self.failures and not self.not_run

    @property
    def not_run(self) -> tuple[str, ...]:
        """The kernels that no interpreter knows all of: at best, they were compiled."""
        tried: dict[str, set[str]] = {}
        for result in self.findings:
            if result.rung != "compile":
                tried.setdefault(result.kernel, set()).add(result.status)
        return tuple(kernel for kernel, statuses in tried.items() if statuses == {SKIPPED})

    @property
    def failures(self) -> tuple[ProblemResult, ...]:
        """What failed."""
        return tuple(result for result in self.findings if result.status == FAILED)

    def of(self, kernel: str, rung: str) -> tuple[ProblemResult, ...]:
        """What one rung found of the kernel of this name."""
        return tuple(r for r in self.findings if (r.kernel, r.rung) == (kernel, rung))

    def __add__(self, other: Report) -> Report:
        notes = dict.fromkeys((*self.notes, *other.notes))
        return Report(self.findings + other.findings, tuple(notes))

    def table(self, form: str = "{}", columns: Sequence[str] = COLUMNS, caption: str = "") -> Table:
        """A row for each kernel and rung."""
        rows = []
        for kernel, rung in dict.fromkeys((r.kernel, r.rung) for r in self.findings):
            group = self.of(kernel, rung)
            status = max((r.status for r in group), key=list(WORDS).index)
            used = [r.used for r in group if r.used is not None]
            share = f"{max(used):.0%}" if used and status != FAILED else ""
            seconds = f"{sum(r.seconds for r in group):.1f}"
            name = form.format(kernel)
            rung += f" for {', '.join(group[0].chips)}" if group[0].chips else ""
            rows.append((name, rung, str(len(group)), WORDS[status], share, seconds))
        return Table(columns, rows, caption, (columns[2], *columns[4:]), COLOURS)

    def remarks(self) -> list[tuple[str, str, str]]:
        """Mark, place and words of each rung's first that did not pass, and of the notes."""
        firsts: dict[tuple[str, str, str], list[ProblemResult]] = {}
        for result in self.findings:
            if result.status != PASSED and result.message:
                key = result.kernel, result.rung, result.status
                firsts.setdefault(key, []).append(result)
        remarks = []
        for (kernel, rung, status), (first, *others) in firsts.items():
            place = f"{kernel}, {rung}" + f", {first.problem}" * (status == FAILED)
            place += f" and {len(others)} more" if others else ""
            remarks.append((WORDS[status], place, first.words))
        remarks += [("note", "", words) for words in self.notes]
        if self.not_run:
            remarks.append(
                ("NOT RUN", ", ".join(self.not_run), "no interpreter ran it, so nothing is proven")
            )
        return remarks

    def parts(self) -> Iterator[Table | Paragraph]:
        """What there is to read, piece by piece."""
        yield self.table()
        for mark, place, words in self.remarks():
            beside = f" {place}" if place else ""
            yield Paragraph(f"{beside}\n  {words}", lead=mark, mark=COLOURS.get(mark, "dim"))

    def markdown(self) -> str:
        """The report for a pull request."""
        title = "A rung does not hold" if self.failures else "Every rung holds"
        title = title if self.passed or self.failures else "A kernel was not run"
        lines = [f"### {title}", "", self.table("`{}`").markdown()]
        remarks = self.remarks()
        lines += [""][: len(remarks)]
        for mark, place, words in remarks:
            beside = f" {place}" if place else ""
            words = words.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
            lines.append(f"- **{mark}**{beside}: {words}")
        return "\n".join(lines) + "\n"

    def junit(self) -> str:
        """The report as JUnit XML, which CI systems read: a suite a kernel, a case a problem."""
        root = ElementTree.Element("testsuites", name="kernels prove")
        for kernel in dict.fromkeys(result.kernel for result in self.findings):
            own = [result for result in self.findings if result.kernel == kernel]
            count = lambda *statuses, own=own: str(sum(r.status in statuses for r in own))
            counts = dict(name=kernel, tests=str(len(own)), failures=count(FAILED), errors="0")
            seconds = f"{sum(result.seconds for result in own):.3f}"
            counts |= dict(skipped=count(SKIPPED, PARTIAL), time=seconds)
            suite = ElementTree.SubElement(root, "testsuite", counts)
            for result in own:
                place = dict(classname=f"{kernel}.{result.rung}", name=result.problem)
                place["time"] = f"{result.seconds:.3f}"
                case = ElementTree.SubElement(suite, "testcase", place)
                # Without the characters that XML has not.
                words = "".join(c for c in result.words if c in "\t\n" or ord(c) >= 32)
                if result.status == FAILED:
                    ElementTree.SubElement(case, "failure", message=words).text = words
                elif result.status != PASSED:
                    ElementTree.SubElement(case, "skipped", message=words)
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
