"""python -m kernels validate"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kernels.cli.terminal import console, note, progress, reported
from kernels.figures.table import Table


def validate(
    chip: Annotated[
        list[str] | None, typer.Option("--chip", "-c", help="May be repeated; all by default.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", "-k", help="OPERATOR or OPERATOR/IMPLEMENTATION; all by default."),
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Rows of each kind, chip and half.")
    ] = None,
    limit: Annotated[float, typer.Option(min=1, help="Seconds that a row may take.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, help="Rows side by side.")] = 1,
    fresh: Annotated[bool, typer.Option(help="Estimate again what is kept.")] = False,
    tuner: Annotated[
        bool, typer.Option("--tuner", help="Rank tunings that a search on the hardware found.")
    ] = False,
) -> None:
    """Set estimates beside published times, in results/validation.csv; a stopped run goes on.

    With --tuner, rank the published tunings among others of their search space, in
    results/searched.csv; then --most says how many problems.

    \b
    python -m kernels validate --chip v6e --kind linear_cross_entropy
    python -m kernels validate --tuner --most 3
    """
    with reported():
        from kernels.figures import bands, validation
        from kernels.machines.tpu.pool import libtpu_version

        libtpu_version()
        if tuner:
            _validate_tuner(chip or (), kind or (), most, fresh)
            return
        published = validation.published(chip or (), kind or (), most)
        with progress() as bar:
            task = bar.add_task("rows", total=len(published))

            def tick(row: bands.Checked | None, done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)
                if row is not None and row.error is None:
                    bar.console.print(f"{row.chip} {row.operator} {row.text}: {row.reason}")

            checked = validation.validate(
                published, seconds=limit, jobs=jobs, fresh=fresh, progress=tick
            )
        rows = []
        for (on, sort, half), group in validation.sorts(checked).items():
            spread = bands.spread(group)
            errors = ("", "", "")
            if spread:
                errors = f"{spread.median:.0%}", f"{spread.most:.0%}", f"{spread.bias:+.0%}"
            refused = sum(row.error is None for row in group)
            rows.append((on, sort, half, str(len(group)), str(refused or ""), *errors))
        columns = ("chip", "sort", "half", "rows", "no estimate", "median", "9 in 10", "bias")
        console.print(Table(columns, rows, "Estimates against published times", columns[3:]))


def _validate_tuner(
    chips: Sequence[str], kinds: Sequence[str], most: int | None, fresh: bool
) -> None:
    """Rank published tunings among others of their search space, one problem after another."""
    from kernels.figures import report, searched

    problems = searched.problems(most, chips, kinds)
    searches = []
    with progress() as bar:
        whole = bar.add_task("problems", total=len(problems))
        tunings = bar.add_task("tunings")
        tick = lambda row, done, total: bar.update(tunings, completed=done, total=total)
        for row in problems:
            searches += searched.search([row], fresh=fresh, progress=tick)
            bar.advance(whole)
    rows = []
    for search in searches:
        cells = (f"{search.row.operator} {search.row.sizes} {search.row.tuning}", search.row.chip)
        if search.place is None:
            rows.append((*cells, "refused", "", "", ""))
            continue
        first = report.digits(search.trials[0][1])
        place = f"{search.place} of {search.known}"
        rows.append((*cells, report.digits(search.theirs), first, place, f"{search.loss:.1%}"))
    columns = ("problem", "chip", "theirs, ms", "our first, ms", "place of theirs", "difference")
    title = "Tunings that were the fastest on the hardware, among others, by estimate"
    console.print(Table(columns, rows, title, columns[2:]))
    for line in searched.told(searches):
        note(line)
