"""python -m kernels verify"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from kernels.cli.options import StrictOption, repeated
from kernels.cli.terminal import console, errors, note, progress, tell
from kernels.figures.table import Table
from kernels.proof.catalog import RUNGS, find
from kernels.yours.report import COLOURS, PARTIAL, PASSED, SKIPPED, WORDS, ProblemResult, Report

if TYPE_CHECKING:
    from kernels.proof.ladder import Check

COLUMNS = ("entry", "rung", "workloads", "result", "budget used", "seconds")


def verify(
    entries: Annotated[
        list[str] | None,
        typer.Argument(help="OPERATOR, OPERATOR/IMPLEMENTATION or a folder each; all if left out."),
    ] = None,
    rung: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(RUNGS)}; may be repeated. All claimed by default."),
    ] = None,
    draws: Annotated[int, typer.Option(min=0, help="Random workloads beside the named ones.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of the random workloads and values.")] = 0,
    strict: StrictOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every check.")] = False,
) -> None:
    """Prove implementations, rung by rung, against the float64 reference."""
    chosen = list(dict.fromkeys(find(*entries or ())))
    repeated("--rung", rung, RUNGS)
    from kernels.proof import ladder

    jobs = [
        (operator, implementation, name, ladder.workloads(operator, implementation, draws, seed))
        for operator, implementation in chosen
        for name in rung or RUNGS
        # Nobody has to claim the last rung: it is asked for by those who have the machine.
        if name in implementation.rungs or (rung and name == "measure")
    ]
    if not jobs:
        errors.print(
            f"[red]{', '.join(entries or ['The catalog'])} claims no rung "
            f"{', '.join(rung or ())}[/]"
        )
        raise typer.Exit(2)
    checks = []
    with progress("{task.description:<34}") as bar:
        task = bar.add_task("", total=sum(len(problems) for *_, problems in jobs))
        for operator, implementation, name, problems in jobs:
            bar.update(task, description=f"{operator.name}/{implementation.name} {name}")
            subject = ladder.Subject.of(operator, implementation)
            for check in ladder.climb(subject, name, problems, seed):
                checks.append(check)
                bar.advance(task)
            count = Counter(check.status for check in checks[-len(problems) :])
            words = ", ".join(f"{number} {status}" for status, number in count.items())
            tell(f"{operator.name}/{implementation.name} {name}: {words}")
    console.print(_table(checks))
    _remark(checks, verbose)
    count = Counter(check.status for check in checks)
    seconds = sum(check.seconds for check in checks)
    part = f"{count['partial']} in part, " if count["partial"] else ""
    console.print(
        f"{count['passed']} passed, {part}{count['failed']} failed, {count['skipped']} skipped "
        f"in {seconds:.0f} s"
    )
    if count["failed"] or (strict and count["skipped"] + count["partial"]):
        raise typer.Exit(1)


def _entry(check: Check) -> str:
    return f"{check.operator}/{check.implementation}"


def _table(checks: list[Check]) -> Table:
    results = [
        ProblemResult(_entry(c), c.rung, str(c.workload), c.status, used=c.used, seconds=c.seconds)
        for c in checks
    ]
    return Report(tuple(results)).table(columns=COLUMNS, caption="Against the float64 reference")


def _remark(checks: list[Check], verbose: bool) -> None:
    """Say of each check that did not pass why, a reason of an entry once."""
    said: set[object] = set()
    for check in checks:
        if not verbose:
            # A reason to skip an entry is said once, one for doing a part once of them all.
            reasons = {PARTIAL: check.message, SKIPPED: (_entry(check), check.message)}
            key = reasons.get(check.status)
            if check.status == PASSED or key in said:
                continue
            if key:
                said.add(key)
            if check.status == PARTIAL:
                note(f"[yellow]note[/] {check.message}")
                continue
        word = WORDS[check.status]
        share = f"  {check.used:.0%} of the budget" if check.used is not None else ""
        note(f"[{COLOURS[word]}]{word}[/] {_entry(check)} {check.rung}  {check.workload}{share}")
        if check.message:
            console.print(f"  {check.message}", highlight=False, markup=False, soft_wrap=True)
