"""What proving a kernel found: a table in a terminal and in a notebook, JUnit XML, Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

# From kernels.ladder, which a report that is only shown does not need.
PASSED, PARTIAL, SKIPPED, FAILED = "passed", "partial", "skipped", "failed"
WORDS = {PASSED: "passed", PARTIAL: "in part", SKIPPED: "skipped", FAILED: "FAILED"}
COLOURS = {PASSED: "green", PARTIAL: "yellow", SKIPPED: "yellow", FAILED: "red"}


@dataclass(frozen=True)
class Finding:
    """One rung on one problem.

    Args:
        kernel: its name.
        rung: "interpret", "simulate" or "compile".
        problem: the values that were drawn.
        status: "passed", "partial", "skipped" or "failed".
        message: why it is not "passed", in a line.
        wrote: which block of which program wrote the wrong element; empty where none is wrong, or
            where that is not known.
        used: the share of the error budget that the worst element took; None where nothing ran.
        seconds: of wall time.
    """

    kernel: str
    rung: str
    problem: str
    status: str
    message: str = ""
    wrote: str = ""
    used: float | None = None
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Report:
    """What `kernels.prove` found, shown as a table.

    Args:
        findings: one for each kernel, rung and problem.
        notes: what is worth knowing beside them.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no rung failed."""
        return all(each.status != FAILED for each in self.findings)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """What failed."""
        return tuple(each for each in self.findings if each.status == FAILED)

    def of(self, kernel: str, rung: str) -> tuple[Finding, ...]:
        """What one rung found of one kernel.

        Args:
            kernel: its name.
            rung: of the rungs.
        """
        return tuple(f for f in self.findings if (f.kernel, f.rung) == (kernel, rung))

    def __add__(self, other: Report) -> Report:
        notes = dict.fromkeys((*self.notes, *other.notes))
        return Report(self.findings + other.findings, tuple(notes))

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Kernel, rung, problems, result, budget used, seconds: a row for each kernel and rung."""
        groups: dict[tuple[str, str], list[Finding]] = {}
        for each in self.findings:
            groups.setdefault((each.kernel, each.rung), []).append(each)
        made = []
        for (kernel, rung), group in groups.items():
            status = _worst(each.status for each in group)
            used = [each.used for each in group if each.used is not None]
            share = f"{max(used):.0%}" if used and status != FAILED else ""
            seconds = f"{sum(each.seconds for each in group):.1f}"
            made.append((kernel, rung, str(len(group)), status, share, seconds))
        return made

    def remarks(self) -> list[tuple[str, str, str]]:
        """Status, place and words of each rung's first that did not pass, and of the notes."""
        found: dict[tuple[str, str, str], tuple[str, str, str]] = {}
        more: dict[tuple[str, str, str], int] = {}
        for each in self.findings:
            if each.status == PASSED or not each.message:
                continue
            key = (each.kernel, each.rung, each.status)
            if key in found:
                more[key] = more.get(key, 0) + 1
                continue
            words = each.message + (f"; {each.wrote}" if each.wrote else "")
            place = f"{each.kernel}, {each.rung}, {each.problem}"
            if each.status != FAILED:
                place = f"{each.kernel}, {each.rung}"
            found[key] = each.status, place, words
        told = [
            (status, place + (f" and {more[key]} more" if key in more else ""), words)
            for key, (status, place, words) in found.items()
        ]
        return [*told, *(("note", "", words) for words in self.notes)]

    def __rich__(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in HEADS:
            table.add_column(name, justify="right" if name in RIGHT else "left", no_wrap=True)
        for kernel, rung, problems, status, used, seconds in self.rows():
            mark = Text(WORDS[status], style=COLOURS[status])
            table.add_row(kernel, rung, problems, mark, used, seconds)
        lines: list[Any] = [table]
        for status, place, words in self.remarks():
            line = Text(WORDS.get(status, "note"), style=COLOURS.get(status, "dim"))
            lines.append(line.append(f" {place}" if place else "", style="default"))
            lines.append(Text(f"  {words}"))
        return Group(*lines)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=100, color_system=None, force_terminal=False)
        with console.capture() as shown:
            console.print(self, soft_wrap=False)
        return shown.get().rstrip()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{head}</th>" for head in HEADS)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td>{html.escape(WORDS.get(cell, cell) if place == 3 else cell)}</td>"
                for place, cell in enumerate(row)
            )
            + "</tr>"
            for row in self.rows()
        )
        told = "".join(
            f"<li><b>{WORDS.get(status, 'note')}</b> {html.escape(place)}<br>"
            f"{html.escape(words)}</li>"
            for status, place, words in self.remarks()
        )
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>" + (
            f"<ul>{told}</ul>" if told else ""
        )

    def markdown(self) -> str:
        """The report for a pull request."""
        lines = [
            f"### {'Every rung holds' if self.passed else 'A rung does not hold'}",
            "",
            "| " + " | ".join(HEADS) + " |",
            "| " + " | ".join("---:" if h in RIGHT else "---" for h in HEADS) + " |",
        ]
        for kernel, rung, problems, status, used, seconds in self.rows():
            word = f"**{WORDS[status]}**" if status == FAILED else WORDS[status]
            lines.append(f"| `{kernel}` | {rung} | {problems} | {word} | {used} | {seconds} |")
        if remarks := self.remarks():
            lines.append("")
        for status, place, words in remarks:
            start = f"**{WORDS.get(status, 'note')}**" + (f" {place}" if place else "")
            lines.append(f"- {start}: {_escaped(words)}")
        return "\n".join(lines) + "\n"

    def junit(self) -> str:
        """The report as JUnit XML, which CI systems read: a suite a kernel, a case a problem."""
        root = ElementTree.Element("testsuites", name="kernels prove")
        for kernel in dict.fromkeys(each.kernel for each in self.findings):
            own = [each for each in self.findings if each.kernel == kernel]
            count = lambda *statuses, own=own: str(sum(e.status in statuses for e in own))
            suite = ElementTree.SubElement(
                root,
                "testsuite",
                name=kernel,
                tests=str(len(own)),
                failures=count(FAILED),
                skipped=count(SKIPPED, PARTIAL),
                errors="0",
                time=f"{sum(each.seconds for each in own):.3f}",
            )
            for each in own:
                case = ElementTree.SubElement(
                    suite,
                    "testcase",
                    classname=f"{kernel}.{each.rung}",
                    name=each.problem,
                    time=f"{each.seconds:.3f}",
                )
                words = each.message + (f"; {each.wrote}" if each.wrote else "")
                if each.status == FAILED:
                    ElementTree.SubElement(case, "failure", message=_xml(words)).text = _xml(words)
                elif each.status != PASSED:
                    ElementTree.SubElement(case, "skipped", message=_xml(words))
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


HEADS = ("kernel", "rung", "problems", "result", "budget used", "seconds")
RIGHT = ("problems", "budget used", "seconds")


def _worst(statuses: Iterable[str]) -> str:
    return max(statuses, key=(PASSED, PARTIAL, SKIPPED, FAILED).index, default=PASSED)


def _xml(text: str) -> str:
    """Without the characters that XML has not."""
    return "".join(c for c in text if c in "\t\n" or ord(c) >= 32)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
