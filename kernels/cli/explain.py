"""python -m kernels explain"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernels.cli import options as common
from kernels.cli.terminal import console, file_and_name, writable, write
from kernels.figures.table import show
from kernels.machines.checks import one_of

if TYPE_CHECKING:
    from kernels.yours.explanation import Explanation


def explain(
    entry: common.Entry,
    workload: common.WorkloadOption = None,
    args: common.ArgsOption = "",
    trips: Annotated[
        list[str] | None,
        typer.Option(
            "--trips",
            help="N, or KERNEL=N, or FILE:LINE=N of a loop: how often it runs, or how many steps a "
            "grid has, where data decides that is not given. May be repeated.",
        ),
    ] = None,
    chip: Annotated[
        str | None, typer.Option("--chip", "-c", help="A TPU or a GPU; v5e or h100 if left out.")
    ] = None,
    mesh: common.MeshOption = "",
    timeout: common.TimeoutOption = 120.0,
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
    from kernels.yours.shapes import mesh_of, trips_of

    writable(html)
    other, pictures = None, html is not None
    options = {"timeout": timeout, "trips": trips_of(trips or []), "pictures": pictures}
    if ".py" in entry:
        common.only_for("OPERATOR/IMPLEMENTATION", workload=workload)
        options |= {"chip": chip or "v5e", "mesh": mesh_of(mesh)}
        explanation, other = _of_file(entry, args, compare, options)
    else:
        common.only_for("FILE.py:NAME", args=args, compare=compare, mesh=mesh)
        explanation = _of_entry(entry, workload, chip, options)
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


def _of_entry(
    entry: str, workload: str | None, chip: str | None, options: Mapping[str, Any]
) -> Explanation:
    from kernels.machines.tpu.export import abstract_device
    from kernels.proof import ladder
    from kernels.yours.machines import Asked, chips, machine

    operator, implementation, problem = common.subject(entry, workload, chips())
    chip = chip or implementation.backend.chips[0]
    one_of("--chip", chip, implementation.backend.chips)
    target = machine(chip)
    target.ready()
    proven = ladder.Subject.of(operator, implementation)
    function, arrays = ladder.programs(proven, problem)[0]
    title, work = f"{entry}  {problem}", operator.workloads.work
    flops = work(problem, False)[0] if work else None
    explanation = target.explain(
        Asked(function, arrays, chip, entry, title, flops=flops, **options)
    )
    if operator.workloads.choice and proven.tunable and not explanation.refused:
        with abstract_device(chip):
            choice = operator.workloads.choice(problem)
        explanation = replace(explanation, advice=(*explanation.advice, choice))
    return explanation


def _of_file(
    entry: str, args: str, compare: str | None, options: dict[str, Any]
) -> tuple[Explanation, Explanation | None]:
    from kernels.yours.explaining import explain_file, other

    path, name = file_and_name(entry, named=True)
    words = f"compiling {name} for {options['chip']}"
    with console.status(words) if console.is_terminal else contextlib.nullcontext():
        explanation = explain_file(path, name, args, **options)
        if compare is None:
            return explanation, None
        with other(compare, path, name) as (file, function):
            beside = explain_file(file, function, args, **{**options, "pictures": False})
    titled = replace(beside.facts, title=f"{beside.facts.title} ({compare})")
    return explanation, replace(beside, facts=titled)
