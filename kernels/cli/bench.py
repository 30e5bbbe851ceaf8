"""python -m kernels bench"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from kernels.cli.options import GradientOption, WorkloadOption
from kernels.cli.terminal import console, errors, progress, tell, writable
from kernels.figures.table import Table, format_seconds
from kernels.machines.checks import fail, one_of
from kernels.proof.catalog import OPERATORS, Implementation, find

if TYPE_CHECKING:
    from kernels.figures.benchmark import Measurement


def bench(
    entries: Annotated[
        list[str], typer.Argument(help="OPERATOR, OPERATOR/IMPLEMENTATION or a folder, each.")
    ],
    workload: WorkloadOption = None,
    repeats: Annotated[int, typer.Option(min=2, help="Readings of each.")] = 20,
    device: Annotated[str, typer.Option(help="cpu or cuda, for PyTorch and Taichi.")] = "cpu",
    gradient: GradientOption = False,
    record: Annotated[bool, typer.Option(help="Keep them in results/measured.csv.")] = False,
) -> None:
    """Measure operators on this machine, in turn; the sizes of the book's figures by default."""
    from kernels import figures
    from kernels.figures import benchmark, store

    one_of("--device", device, ("cpu", "cuda"))
    writable(store.RESULTS / "measured.csv" if record and store.RESULTS.is_dir() else None)
    chosen: dict[str, list[Implementation]] = {}
    for operator, implementation in dict.fromkeys(find(*entries)):
        if reason := implementation.backend.why_not("measure", device):
            errors.print(f"[yellow]{operator.name}/{implementation.name}: {reason}[/]")
        else:
            chosen.setdefault(operator.name, []).append(implementation)
    if not chosen:
        fail("entry", ", ".join(entries), f"one that runs on {device} here")
    for name, implementations in chosen.items():
        operator, problems = OPERATORS[name], OPERATORS[name].workloads
        named = problems.figures or problems.named[:1]
        for problem in named if workload is None else [problems.find(workload)]:
            able = [i for i in implementations if i.accepts(problem)]
            with progress(counted=False) as bar:
                say = functools.partial(tell, bar=bar)
                more: dict[str, Any] = dict(device=device, gradient=gradient, progress=say)
                measurement = benchmark.bench(operator, able, problem, repeats=repeats, **more)
            for refusing, reason in measurement.refused.items():
                errors.print(f"[yellow]{name}/{refusing}, {problem}:[/] {escape(reason)}")
            if record:
                figures.add("measured.csv", measurement.records())
            console.print(_table(measurement))


def _table(measurement: Measurement) -> Table:
    limit, plain = measurement.limit, measurement.plain
    rows = []
    for name, timing in measurement.timings.items():
        low, middle, high = measurement.ratio(plain, name)
        quantiles = [format_seconds(timing.quantile(share)) for share in (0.2, 0.8)]
        share = [f"{measurement.ratio(limit, name)[1]:.0%}"] if limit else []
        rows.append(
            (
                f"limit: {name}" if name == limit else name,
                format_seconds(timing.median),
                " to ".join(quantiles),
                f"{middle:.2f}× ({low:.2f} to {high:.2f})",
                *share,
            )
        )
    columns = ("median", "p20 to p80", f"{plain} takes", *["of the limit"][: bool(limit)])
    operator = measurement.operator.name
    title = f"{operator}, {measurement.title}: measured on {measurement.machine}"
    return Table(("", *columns), rows, title, right=columns)
