"""python -m kernels explain"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernels.cli.options import (
    ArgsOption,
    Entry,
    TimeoutOption,
    WorkloadOption,
    only_for_files,
    subject,
)
from kernels.cli.terminal import console, file_and_name, reported, writable, write
from kernels.figures.table import show

if TYPE_CHECKING:
    from kernels.yours.explanation import Explanation


def explain(
    entry: Entry,
    workload: WorkloadOption = None,
    args: ArgsOption = "",
    trips: Annotated[
        list[str] | None,
        typer.Option(
            "--trips",
            help="N, or KERNEL=N, or FILE:LINE=N of a loop: how often it runs, or how many steps a "
            "grid has, where data decides that is not given. May be repeated.",
        ),
    ] = None,
    chip: Annotated[
        str, typer.Option("--chip", "-c", help="To compile for: a TPU, or for FILE.py a GPU.")
    ] = "v5e",
    timeout: TimeoutOption = 120.0,
    html: Annotated[Path | None, typer.Option(help="Write one page of HTML there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON instead.")] = False,
    compare: Annotated[
        str | None, typer.Option(help="FILE.py, FILE.py:NAME, or a commit with the same file.")
    ] = None,
) -> None:
    """Say where the time goes on a TPU or a GPU: one page, from what its compiler made.

    \b
    python -m kernels explain matmul/pallas --workload square
    python -m kernels explain mine.py:softmax --args "f32[8192,1024]" --chip v6e --html report.html
    python -m kernels explain mine.py:ragged --args "bf16[512,128] i32[1]" --trips 64
    """
    with reported():
        writable(html)
        other = None
        if ".py" in entry:
            from kernels.yours.shapes import trips_of

            options = {"chip": chip, "timeout": timeout, "trips": trips_of(trips or [])}
            explanation, other = _of_file(entry, args, compare, html is not None, options)
        else:
            only_for_files(args=args, trips=trips, html=html, compare=compare)
            explanation = _of_entry(entry, workload, chip, timeout)
        if html is not None:
            write(html, explanation.html(other))
        if as_json:
            sides = [side.as_json() for side in (explanation, other) if side is not None]
            typer.echo(json.dumps(sides if other is not None else sides[0], indent=1))
        else:
            show(explanation.parts(), console)
            if other is not None:
                console.print(explanation.compared(other))
        if explanation.refused:
            raise typer.Exit(1)


def _of_entry(entry: str, workload: str | None, chip: str, timeout: float) -> Explanation:
    """What explain says of a catalog entry."""
    from kernels.machines.tpu.estimate import estimate_program
    from kernels.machines.tpu.explain import facts
    from kernels.machines.tpu.export import abstract_device, export
    from kernels.machines.tpu.pool import libtpu_version
    from kernels.proof import ladder
    from kernels.yours.explanation import explained

    libtpu_version()
    operator, implementation, problem = subject(entry, workload)
    known = ladder.Subject.of(operator, implementation)
    function, arrays = ladder.programs(known, problem)[0]
    program = export(function, *arrays, chip=chip, name=entry)
    estimate = estimate_program(program, timeout=timeout)
    explanation = explained(facts(program, estimate, f"{entry}  {problem}"))
    if operator.workloads.choice and known.tunable:
        with abstract_device(chip):
            choice = operator.workloads.choice(problem)
        explanation = replace(explanation, advice=(*explanation.advice, choice))
    return explanation


def _of_file(
    entry: str, args: str, compare: str | None, pictures: bool, options: dict[str, Any]
) -> tuple[Explanation, Explanation | None]:
    """What explain says of a function of a file, and of what it is compared with."""
    from kernels.yours.explaining import explain_file, other

    path, name = file_and_name(entry, named=True)
    words = f"compiling {name} for {options['chip']}"
    with console.status(words) if console.is_terminal else contextlib.nullcontext():
        explanation = explain_file(path, name, args, pictures=pictures, **options)
        if compare is None:
            return explanation, None
        with other(compare, path, name) as (file, function):
            beside = explain_file(file, function, args, **options)
    titled = replace(beside.facts, title=f"{beside.facts.title} ({compare})")
    return explanation, replace(beside, facts=titled)
