"""python -m kernels list | verify

Exit codes: 0 everything passed, 1 a check failed, 2 the command line was wrong. A check that
cannot be made on this machine is skipped by name; --strict turns that into a failure.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernels.catalog import OPERATORS, RUNGS, find

if TYPE_CHECKING:
    from kernels.ladder import Check

app = typer.Typer(
    help="Kernels, Rung by Rung: the operators, and the rungs that prove them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True, highlight=False)

MARKS = {"passed": "[green]passed[/]", "failed": "[red]FAILED[/]", "skipped": "[yellow]skipped[/]"}


@app.command("list")
def list_() -> None:
    """Show every operator, its implementations, and the rungs that each claims."""
    table = _table("The rungs that prove each implementation")
    table.add_column("entry", no_wrap=True)
    table.add_column("written in", no_wrap=True)
    for rung in RUNGS[:3]:
        table.add_column(rung, justify="center", no_wrap=True)
    for operator in OPERATORS.values():
        console.print(f"[bold]{operator.name:<14}[/]{operator.summary}", highlight=False)
        for implementation in operator.implementations:
            claims = ["●" if rung in implementation.rungs else "·" for rung in RUNGS[:3]]
            name = f"{operator.name}/{implementation.name}"
            table.add_row(name, implementation.language, *claims)
    console.print(table)
    console.print("● proven by `python -m kernels verify`   · not claimed", highlight=False)


@app.command()
def verify(
    entry: Annotated[
        str | None,
        typer.Argument(help="OPERATOR or OPERATOR/IMPLEMENTATION; everything if left out."),
    ] = None,
    rung: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(RUNGS)}; may be repeated. All claimed by default."),
    ] = None,
    draws: Annotated[int, typer.Option(min=0, help="Random workloads beside the named ones.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of the random workloads and values.")] = 0,
    strict: Annotated[bool, typer.Option(help="Let a skipped check fail too.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every check.")] = False,
) -> None:
    """Prove implementations, rung by rung, against the float64 reference."""
    try:
        entries = list(find(entry))
        for name in rung or ():
            if name not in RUNGS:
                raise ValueError(f"--rung is {name!r}; accepted: {', '.join(RUNGS)}")
    except ValueError as error:
        errors.print(f"[red]{error}[/]")
        raise typer.Exit(2) from None
    from kernels import ladder

    jobs = [
        (operator, implementation, name, ladder.workloads(operator, draws, seed))
        for operator, implementation in entries
        for name in rung or RUNGS
        # Nobody has to claim the last rung: it is asked for by those who have the machine.
        if name in implementation.rungs or (rung and name == "measure")
    ]
    if not jobs:
        errors.print(f"[red]{entry or 'The catalog'} claims no rung {', '.join(rung or ())}[/]")
        raise typer.Exit(2)
    checks = []
    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("", total=sum(len(problems) for *_, problems in jobs))
        for operator, implementation, name, problems in jobs:
            progress.update(task, description=f"{operator.name}/{implementation.name} {name}")
            subject = ladder.Subject.of(operator, implementation)
            for check in ladder.climb(subject, name, problems, seed):
                checks.append(check)
                progress.advance(task)
    _report(checks, verbose)
    count = Counter(check.status for check in checks)
    seconds = sum(check.seconds for check in checks)
    console.print(
        f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped "
        f"in {seconds:.0f} s"
    )
    if count["failed"] or (strict and count["skipped"]):
        raise typer.Exit(1)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _report(checks: list[Check], verbose: bool) -> None:
    """One row for each entry and rung, then each check that did not pass, with its reason."""
    table = _table("Against the float64 reference")
    table.add_column("entry", no_wrap=True)
    table.add_column("rung", no_wrap=True)
    table.add_column("workloads", justify="right")
    table.add_column("result", no_wrap=True)
    table.add_column("budget used", justify="right")
    table.add_column("seconds", justify="right")
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        entry = f"{check.operator}/{check.implementation}"
        groups.setdefault((entry, check.rung), []).append(check)
    for key, group in groups.items():
        count = Counter(check.status for check in group)
        worst = "failed" if count["failed"] else "skipped" if count["skipped"] else "passed"
        used = [check.used for check in group if check.used is not None]
        share = f"{max(used):.0%}" if used else ""
        seconds = f"{sum(check.seconds for check in group):.1f}"
        table.add_row(*key, str(len(group)), MARKS[worst], share, seconds)
    console.print(table)
    told: set[object] = set()
    for check in checks:
        entry = f"{check.operator}/{check.implementation}"
        if check.status == "passed" and check.message and not verbose:
            if check.message not in told:
                told.add(check.message)
                console.print(f"[yellow]note[/] {check.message}", highlight=False, soft_wrap=True)
            continue
        if check.status == "skipped" and not verbose:
            if (entry, check.message) in told:
                continue  # one reason, once
            told.add((entry, check.message))
        if verbose or check.status != "passed":
            share = f"  {check.used:.0%} of the budget" if check.used is not None else ""
            line = f"{MARKS[check.status]} {entry} {check.rung}  {check.workload}{share}"
            console.print(line, highlight=False, soft_wrap=True)
            if check.message:
                console.print(f"  {check.message}", highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    app()
