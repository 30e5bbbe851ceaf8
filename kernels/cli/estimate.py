"""python -m kernels estimate"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from kernels.cli.options import GradientOption, TimeoutOption, WorkloadOption, largest, repeated
from kernels.cli.terminal import console, errors, writable
from kernels.figures.table import Table, format_seconds
from kernels.machines.checks import fail
from kernels.proof.catalog import find

if TYPE_CHECKING:
    from kernels.figures import Key
    from kernels.proof.backends.base import Backend, Job

COLUMNS = ("entry and workload", "chip", "time", "band", "binds", "of peak", "of HBM")
RIGHT = ("time", "band", "of peak", "of HBM")


def estimate(
    entry: Annotated[
        str | None, typer.Argument(help="OPERATOR or OPERATOR/IMPLEMENTATION; explain takes files.")
    ] = None,
    workload: WorkloadOption = None,
    chip: Annotated[
        list[str] | None,
        typer.Option("--chip", "-c", help="May be repeated; v5e, inf2 or h100 if left out."),
    ] = None,
    timeout: TimeoutOption = 120.0,
    budget: Annotated[float, typer.Option(min=1, help="Seconds of simulation for each.")] = 20.0,
    figures: Annotated[
        bool, typer.Option(help="All sizes that the book gives figures of.")
    ] = False,
    gradient: GradientOption = False,
    record: Annotated[bool, typer.Option(help="Keep them in results/estimated.csv.")] = False,
    rates: Annotated[
        Path | None, typer.Option(help="Of a chip of your own, which `validate --fit` wrote.")
    ] = None,
    late: Annotated[
        bool, typer.Option("--late", help="Keep those too whose static profile ran out of time.")
    ] = False,
) -> None:
    """Estimate run times on a TPU, a NeuronCore or a GPU; nothing is measured."""
    from kernels.figures import add, store
    from kernels.figures.schema import LATE
    from kernels.machines.base import CompileError
    from kernels.machines.tpu.diagnose import TpuCompileError
    from kernels.machines.tpu.estimate.rates import use
    from kernels.machines.tpu.pool import libtpu_version

    if rates and record:
        fail("--record", f"given with the rates of {rates}", "the book's own rates alone")
    if entry and ".py" in entry:
        fail("entry", entry, f"OPERATOR/IMPLEMENTATION, or `python -m kernels explain {entry}`")
    writable(store.RESULTS / "estimated.csv" if record and store.RESULTS.is_dir() else None)
    if figures and workload is not None:
        fail("--workload", repr(workload), "without --figures, which says the sizes")
    questions = _questions(entry, workload, chip, figures, gradient)
    with use(rates, libtpu_version() if rates else "", (q.chip for q in questions)):
        answers: dict[int, Any] = {}  # a backend is asked once
        for backend in dict.fromkeys(question.backend for question in questions):
            places = [i for i, q in enumerate(questions) if q.backend is backend]
            jobs = [(questions[i].job, questions[i].chip) for i in places]
            estimates = backend.estimate(jobs, timeout=timeout, budget=budget)
            answers |= zip(places, estimates, strict=True)
    if len(answers) == 1 and isinstance(answers[0], ValueError):
        raise answers[0]
    rows: list[Sequence[str]] = []
    failed: list[tuple[_Question, Exception]] = []
    records = []
    for question, answer in ((q, answers[i]) for i, q in enumerate(questions)):
        if isinstance(answer, Exception):
            failed.append((question, answer))
            kind = getattr(answer, "kind", "refused")
            rows.append((question.title, question.chip, "", "", kind, "", ""))
            continue
        rows.append((question.title, question.chip, *_row(answer)))
        if record:
            ranged = "a range is no figure" if question.backend.estimates_ranges else ""
            if words := getattr(answer, "on_data", ranged):
                failed.append((question, ValueError(f"not kept, for {words}")))
                continue
            kept = question.key.estimated(answer, question.named, question.backend.versions)
            if late or LATE not in kept.method:
                records.append(kept)
                continue
            # On an idle machine the profile might have been there: another figure.
            reason = "not kept, for its static profile ran out of time; --late keeps it"
            failed.append((question, TpuCompileError("timeout", reason)))
    add("estimated.csv", records)
    title = "Estimated by the model of a compiler or of an engine, not measured"
    refused = {getattr(error, "kind", "refused"): "red" for _, error in failed}
    console.print(Table(COLUMNS, rows, title, RIGHT, refused))
    for question, error in failed:
        colour = "red" if isinstance(error, CompileError) else "yellow"
        errors.print(
            f"[{colour}]{escape(question.title)} on {question.chip}:[/] {escape(str(error))}",
            soft_wrap=True,
        )
    # A figure of the book that an implementation does not solve is no failure.
    if any(not figures or isinstance(error, CompileError) for _, error in failed):
        raise typer.Exit(1)


class _Question(NamedTuple):
    """One estimate that is asked for: of a workload, named as records have it."""

    title: str
    chip: str
    backend: Backend
    job: Job
    key: Key
    named: str


def _questions(
    entry: str | None, workload: str | None, chips: list[str] | None, figures: bool, gradient: bool
) -> list[_Question]:
    """What the command line asks for: every entry on each chip that its backend knows.

    Raises ValueError where nothing of it can be estimated.
    """
    from kernels.figures import Key, schema
    from kernels.proof.ladder import Subject

    named = list(find(entry))
    # A range stands beside no figure: it is made of what is named, or on a chip that is.
    alone = bool(chips) or len(named) == 1
    able = [
        (o, i) for o, i in named if i.backend.chips and (alone or not i.backend.estimates_ranges)
    ]
    if not able:
        written = ", ".join(dict.fromkeys(i.backend.name for _, i in named))
        fail("entry", f"{entry}, written in {written}", "one that there is an estimate of")
    known = dict.fromkeys(chip for _, i in able for chip in i.backend.chips)
    repeated("--chip", chips, known)
    questions = []
    for o, i in able:
        if figures:
            problems = [w for w in o.workloads.figures if i.accepts(w)]
        else:
            problems = [largest(o, i) if workload is None else o.workloads.find(workload)]
        subject = Subject.of(o, i)
        for problem, chip in itertools.product(problems, chips or i.backend.chips[:1]):
            if chip not in i.backend.chips:
                continue
            name = f"{o.name}/{i.name}"
            work = o.workloads.work
            devices = problem.sizes.get("devices", 1)  # share the work; an estimate is of one
            flops = work(problem, gradient)[0] / devices if work else None
            job = replace(subject.job(problem, gradient=gradient), name=name, flops=flops)
            if gradient and not job.wanted:
                if len(able) > 1 or figures:
                    continue
                fail("--gradient", f"given for {entry} on {problem}", "what has gradients")
            pass_ = "gradient" if gradient else "forward"
            key = Key.of(o.name, i.name, problem, chip, pass_)
            title = f"{name}  {problem}{' gradient' * gradient}"
            questions.append(_Question(title, chip, i.backend, job, key, schema.title(problem)))
    if not questions:
        fail("--figures", f"given for {entry}", "what the book gives such figures of")
    return questions


def _row(answer: Any) -> tuple[str, ...]:
    """What of an estimate its model knows."""
    hbm = getattr(answer, "hbm_utilisation", None)
    times = [format_seconds(answer.seconds)]
    figure = getattr(answer, "figure", answer.seconds)  # a GPU's: what the band beside it is of
    if figure is not None and figure is not answer.seconds:
        times.append(f"in one figure {format_seconds(figure)}")
    return (
        ", ".join(times),
        getattr(answer, "band_text", "") if figure is not None else "",
        answer.bound,
        f"{answer.utilisation:.0%}" if getattr(answer, "flops", 0) else "",
        "" if hbm is None else f"{hbm:.0%}",
    )
