"""python -m kernels list | verify | prove | explain | estimate | tune | guard | bench

Exit codes: 0 everything passed, 1 a check failed, 2 the command line was wrong. A check that
cannot be made on this machine is skipped by name; --strict turns that into a failure.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from kernels.machines.checks import fail, one_of
from kernels.proof.catalog import OPERATORS, RUNGS, Implementation, Operator, find

if TYPE_CHECKING:
    from kernels.figures.benchmark import Measurement
    from kernels.machines.exporting import ExportedProgram
    from kernels.proof.backends.base import Backend, Job
    from kernels.proof.ladder import Check
    from kernels.proof.workload import Workload

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True, highlight=False)

MARKS = {
    "passed": "[green]passed[/]",
    "partial": "[yellow]in part[/]",
    "skipped": "[yellow]skipped[/]",
    "failed": "[red]FAILED[/]",
}


def _version(asked: bool) -> None:
    if asked:
        from kernels import __version__

        typer.echo(f"kernels-rung-by-rung {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Say which version it is."
        ),
    ] = False,
) -> None:
    """Kernels, Rung by Rung: the operators, and the rungs that prove them.

    \b
    python -m kernels list
    python -m kernels prove my_kernels.py
    python -m kernels explain my_kernels.py:softmax --args "f32[8192,1024]" --chip v6e
    """
    from kernels.machines.optional import available

    dev = Path("/dev")
    tpu = [*dev.glob("accel*"), *dev.glob("vfio/[0-9]*")]
    gpu = any(available(f"jax_cuda{n}_plugin") for n in (12, 13))
    if available("libtpu") and not tpu and not gpu:
        # With libtpu and without a TPU, JAX would look for one first, and print a page about it.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


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
            table.add_row(name, implementation.backend.name, *claims)
    console.print(table)
    console.print("● proven by `python -m kernels verify`   · not claimed", highlight=False)


@app.command()
def verify(
    entries: Annotated[
        list[str] | None,
        typer.Argument(help="OPERATOR or OPERATOR/IMPLEMENTATION each; everything if left out."),
    ] = None,
    rung: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(RUNGS)}; may be repeated. All claimed by default."),
    ] = None,
    draws: Annotated[int, typer.Option(min=0, help="Random workloads beside the named ones.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Of the random workloads and values.")] = 0,
    strict: Annotated[
        bool, typer.Option(help="Let fail too what was skipped, or done in part.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every check.")] = False,
) -> None:
    """Prove implementations, rung by rung, against the float64 reference."""
    try:
        found = list(dict.fromkeys(find(*entries or ())))
        for name in rung or ():
            if name not in RUNGS:
                raise ValueError(f"--rung is {name!r}; accepted: {', '.join(RUNGS)}")
    except ValueError as error:
        errors.print(f"[red]{error}[/]")
        raise typer.Exit(2) from None
    from kernels.proof import ladder

    jobs = [
        (operator, implementation, name, ladder.workloads(operator, implementation, draws, seed))
        for operator, implementation in found
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
    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with _progress(*columns) as progress:
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
    part = f"{count['partial']} in part, " if count["partial"] else ""
    console.print(
        f"{count['passed']} passed, {part}{count['failed']} failed, {count['skipped']} skipped "
        f"in {seconds:.0f} s"
    )
    if count["failed"] or (strict and count["skipped"] + count["partial"]):
        raise typer.Exit(1)


@app.command()
def prove(
    files: Annotated[
        list[str],
        typer.Argument(help="FILE.py or FILE.py:NAME each, whose kernels @kernels.proves marks."),
    ],
    rung: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(RUNGS[:3])}; may be repeated. All by default."),
    ] = None,
    chip: Annotated[
        list[str] | None,
        typer.Option("--chip", "-c", help="May be repeated; the file says by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the values.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for a problem at a rung.")] = 300.0,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML there.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown there.")] = None,
    marked: Annotated[
        bool, typer.Option("--marked", help="Pass over files in which nothing is marked.")
    ] = False,
    strict: Annotated[
        bool, typer.Option(help="Let fail too what was skipped, or done in part.")
    ] = False,
) -> None:
    """Prove kernels of your own: interpreted, simulated, compiled, against your reference.

    \b
    python -m kernels prove my_kernels.py
    python -m kernels prove my_kernels.py:softmax --rung interpret --junit report.xml
    """
    with _reported():
        from kernels.yours.proving import RUNGS as known
        from kernels.yours.proving import prove_file
        from kernels.yours.report import Report

        _writable(junit, markdown)
        columns = (TextColumn("{task.description}"), TimeElapsedColumn())
        report = Report(())
        with _progress(*columns) as bar:
            task = bar.add_task("")
            for each in files:
                path, name = _place(each)
                if marked and "proves" not in Path(path).read_text(encoding="utf-8"):
                    continue
                report += prove_file(
                    path,
                    name,
                    rungs=tuple(rung or known),
                    chips=tuple(chip or ()),
                    seed=seed,
                    timeout=timeout,
                    progress=lambda words: bar.update(task, description=escape(words)),
                )
        if junit:
            _write(junit, report.junit())
        if markdown:
            _write(markdown, report.markdown())
        console.print(report)
        lacking = any(f.status in ("skipped", "partial") for f in report.findings)
        if not report.passed or (strict and lacking):
            raise typer.Exit(1)


def _place(text: str) -> tuple[str, str]:
    """File and name of "FILE.py:NAME"."""
    path, colon, name = text.rpartition(".py:")
    path, name = (path + ".py", name) if colon else (text, "")
    if not path.endswith(".py") or not Path(path).is_file():
        fail("file", path, "a Python file that there is, or FILE.py:NAME")
    return path, name


def _writable(*paths: Path | None) -> None:
    """ValueError for a file that there is no folder for, before the work that it is to hold."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            fail("file to write", path, "one in a folder that there is")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail("file to write", path, f"one that can be written ({error.strerror})")


Entry = Annotated[str, typer.Argument(help="OPERATOR/IMPLEMENTATION, such as matmul/pallas.")]
WorkloadOption = Annotated[
    str | None,
    typer.Option("--workload", "-w", help='A name, or sizes such as "m=512 k=512 n=512 bfloat16".'),
]
ChipOption = Annotated[str, typer.Option("--chip", "-c", help="The TPU to compile for.")]
TimeoutOption = Annotated[float, typer.Option(min=1, help="Seconds for one compilation.")]


Own = Annotated[
    str,
    typer.Argument(help="OPERATOR/IMPLEMENTATION, or FILE.py:NAME of a function of your own."),
]
ArgsOption = Annotated[
    str,
    typer.Option(
        "--args",
        help='What it takes, such as "bf16[64,128] i32[3]=[100,0,156]": values that a grid or a '
        "loop depends on are given so. As @kernels.proves draws it by default.",
    ),
]
TripsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trips",
        help="N, or KERNEL=N, or FILE:LINE=N of a loop: how often it runs, or how many steps a "
        "grid has, where data decides that is not given. May be repeated.",
    ),
]


@app.command()
def explain(
    entry: Own,
    workload: WorkloadOption = None,
    args: ArgsOption = "",
    trips: TripsOption = None,
    chip: Annotated[
        str, typer.Option("--chip", "-c", help="To compile for: a TPU, or for FILE.py a GPU.")
    ] = "v5e",
    timeout: TimeoutOption = 120.0,
    html: Annotated[Path | None, typer.Option(help="Write one page of HTML there.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON instead.")] = False,
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
    with _reported():
        _writable(html)
        if ".py" in entry:
            from kernels.yours import machines

            page = machines.machine(chip)
            page.ready()
            pictures = html is not None
            made, second = _explained(entry, args, trips or [], chip, timeout, pictures, compare)
        else:
            from kernels.yours import on_tpu as page

            given = (("--args", args), ("--trips", trips), ("--html", html), ("--compare", compare))
            for option, value in given:
                if value:
                    fail(option, value, "with FILE.py:NAME")
            made, second = _explained_entry(entry, workload, chip, timeout), None
        drawn = made.pop("pictures", ())
        if html is not None:
            from kernels.yours.explaining import page as whole

            _write(html, whole(made | {"pictures": drawn}, second))
        if json:
            import json as form

            typer.echo(form.dumps(made if second is None else [made, second], indent=1))
        else:
            page.page(made, console)
            if second is not None:
                page.compare(made, second, console)
        if "error" in made:
            raise typer.Exit(1)


def _explained_entry(entry: str, workload: str | None, chip: str, timeout: float) -> dict[str, Any]:
    """What explain says of a catalog entry."""
    from kernels.machines.tpu import explain as page
    from kernels.machines.tpu.estimate import estimate_program
    from kernels.machines.tpu.lowering import abstract_device
    from kernels.proof.ladder import Subject

    program, title = _program(entry, workload, chip)
    made = page.facts(program, estimate_program(program, timeout=timeout), title)
    operator, implementation, problem = _subject(entry, workload)
    if operator.workloads.choice and Subject.of(operator, implementation).tunable:
        with abstract_device(chip):
            made["advice"].append(operator.workloads.choice(problem))
    return made


def _explained(
    entry: str,
    args: str,
    trips: list[str],
    chip: str,
    timeout: float,
    pictures: bool,
    compare: str | None,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What explain says of a function of a file, and of what it is compared with."""
    from kernels.yours.explaining import explain_file, other
    from kernels.yours.shapes import trips_of

    path, name = _place(entry)
    if not name:
        fail("entry", entry, "FILE.py:NAME")
    options: dict[str, Any] = dict(chip=chip, timeout=timeout, trips=trips_of(trips))
    with console.status(f"compiling {name} for {chip}") if console.is_terminal else _nothing():
        made = explain_file(path, name, args, pictures=pictures, **options)
        if compare is None:
            return made, None
        file, function, folder = other(compare, path, name)
        try:
            second = explain_file(file, function, args, **options)
        finally:
            if folder is not None:
                folder.cleanup()
    return made, second | {"title": f"{second['title']} ({compare})"}


def _nothing() -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@app.command()
def estimate(
    entry: Annotated[
        str | None, typer.Argument(help="OPERATOR or OPERATOR/IMPLEMENTATION.")
    ] = None,
    workload: WorkloadOption = None,
    chip: Annotated[
        list[str] | None,
        typer.Option("--chip", "-c", help="May be repeated; v5e or inf2 by default."),
    ] = None,
    timeout: TimeoutOption = 120.0,
    budget: Annotated[float, typer.Option(min=1, help="Seconds of simulation for each.")] = 20.0,
    figures: Annotated[
        bool, typer.Option(help="All sizes that the book gives figures of.")
    ] = False,
    gradient: Annotated[
        bool, typer.Option(help="Of the gradients, forward pass included.")
    ] = False,
    record: Annotated[bool, typer.Option(help="Keep them in results/estimated.csv.")] = False,
    late: Annotated[
        bool, typer.Option("--late", help="Keep those too whose static profile ran out of time.")
    ] = False,
) -> None:
    """Estimate run times on a TPU or a NeuronCore; nothing is measured."""
    with _reported():
        from kernels.figures import add, estimated
        from kernels.figures.schema import LATE
        from kernels.machines.tpu.diagnose import TpuCompileError

        asked = _estimates(entry, workload, chip, figures, gradient)
        by_backend: dict[Backend, list[_Asked]] = {}
        for each in asked:
            by_backend.setdefault(each.implementation.backend, []).append(each)
        answers: dict[int, Any] = {}
        for backend, those in by_backend.items():
            jobs = [(each.job, each.chip) for each in those]
            found = backend.estimate(jobs, timeout=timeout, budget=budget)
            answers |= {id(each): answer for each, answer in zip(those, found, strict=True)}
        table = _table("Estimated by the model of a compiler or of an engine, not measured")
        table.add_column("entry and workload", overflow="fold", min_width=22)
        for name in ("chip", "time", "band", "binds", "of peak", "of HBM"):
            left = name in ("chip", "binds")
            table.add_column(name, justify="left" if left else "right", overflow="fold")
        table.columns[4].no_wrap = table.columns[1].no_wrap = True
        failed, kept = [], []
        for each in asked:
            answer = answers[id(each)]
            if isinstance(answer, Exception):
                failed.append((each, answer))
                kind = getattr(answer, "kind", "refused")
                table.add_row(each.title, each.chip, "", "", f"[red]{kind}[/]", "", "")
            else:
                kept.append((each, answer))
                table.add_row(each.title, each.chip, *_estimated(answer))
        if record:
            of = lambda each: each.implementation.backend.versions
            rows = []
            for each, answer in kept:
                row = estimated(*each.key, answer, software=of(each))
                if late or LATE not in row.method:
                    rows.append(row)
                    continue
                # On an idle machine the profile might have been there: another figure.
                reason = "not kept, for its static profile ran out of time; --late keeps it"
                failed.append((each, TpuCompileError("timeout", reason)))
            add("estimated.csv", rows)
        console.print(table)
        for each, error in failed:
            colour = "red" if isinstance(error, TpuCompileError) else "yellow"
            errors.print(
                f"[{colour}]{escape(each.title)} on {each.chip}:[/] {escape(str(error))}",
                soft_wrap=True,
            )
        # A figure of the book that an implementation does not solve is no failure.
        if any(not figures or isinstance(error, TpuCompileError) for _, error in failed):
            raise typer.Exit(1)


@dataclass(frozen=True, eq=False)
class _Asked:
    """One estimate that is asked for."""

    operator: Operator
    implementation: Implementation
    problem: Workload
    chip: str
    gradient: bool
    job: Job

    @property
    def key(self) -> tuple[str, str, Workload, str]:
        """What a record is of: operator, implementation, workload, pass."""
        direction = "gradient" if self.gradient else "forward"
        return self.operator.name, self.implementation.name, self.problem, direction

    @property
    def title(self) -> str:
        name = f"{self.operator.name}/{self.implementation.name}"
        return f"{name}  {self.problem}{' gradient' * self.gradient}"


def _estimates(
    entry: str | None, workload: str | None, chips: list[str] | None, figures: bool, gradient: bool
) -> list[_Asked]:
    """What the command line asks for: every entry on each chip that its backend knows.

    Raises ValueError where nothing of it can be estimated.
    """
    from kernels.proof.ladder import Subject

    named = list(find(entry))
    able = [(o, i) for o, i in named if i.backend.chips]
    if not able:
        written = ", ".join(dict.fromkeys(i.backend.name for _, i in named))
        fail("entry", f"{entry}, written in {written}", "one that there is an estimate of")
    known = dict.fromkeys(chip for _, i in able for chip in i.backend.chips)
    for chip in chips or ():
        one_of("--chip", chip, known)
    asked = []
    for o, i in able:
        if figures:
            problems = [w for w in o.workloads.figures if i.accepts(w)]
        else:
            problems = [o.workloads.find(workload) if workload else _largest(o, i)]
        subject = Subject.of(o, i)
        for problem, chip in itertools.product(problems, chips or i.backend.chips[:1]):
            if chip not in i.backend.chips:
                continue
            job = replace(subject.job(problem, gradient=gradient), name=f"{o.name}/{i.name}")
            if gradient and not job.wanted:
                if len(able) > 1 or figures:
                    continue
                fail("--gradient", f"given for {entry} on {problem}", "what has gradients")
            asked.append(_Asked(o, i, problem, chip, gradient, job))
    return asked


def _largest(operator: Operator, implementation: Implementation) -> Workload:
    taken = filter(implementation.accepts, operator.workloads.named)
    return max(taken, key=lambda each: math.prod(each.sizes.values()))


def _estimated(found: Any) -> tuple[str, ...]:
    """A row of the table: what of an estimate its model knows."""
    from kernels.machines.tpu.explain import format_seconds

    hbm = getattr(found, "hbm_utilisation", None)
    return (
        format_seconds(found.seconds),
        getattr(found, "band_text", ""),
        found.bound,
        f"{found.utilisation:.0%}" if getattr(found, "flops", 0) else "",
        "" if hbm is None else f"{hbm:.0%}",
    )


@app.command()
def tune(
    entry: Own,
    workload: WorkloadOption = None,
    args: ArgsOption = "",
    over: Annotated[
        list[str] | None,
        typer.Option(help='"NAME=LOW..HIGH" in powers of two, or "NAME=A,B,C"; may be repeated.'),
    ] = None,
    chip: ChipOption = "v5e",
    most: Annotated[int, typer.Option(min=1, help="Candidates to try.")] = 24,
    timeout: TimeoutOption = 120.0,
    fresh: Annotated[bool, typer.Option(help="Do not read what an earlier run has found.")] = False,
) -> None:
    """Rank block sizes for a TPU by estimate; a stopped run goes on where it was.

    \b
    python -m kernels tune matmul/pallas --workload square
    python -m kernels tune mine.py:matmul --args "bf16[4096,4096] bf16[4096,4096]" \\
      --over bm=128..2048 --over bn=128,256
    """
    if ".py" in entry:
        with _reported():
            _tune_own(entry, args, over or [], chip, most, timeout, fresh)
        return
    with _reported():
        for option, value in (("--args", args), ("--over", over)):
            if value:
                fail(option, value, "with FILE.py:NAME")
        from kernels.figures import Key, TuningStore
        from kernels.machines import tpu
        from kernels.machines.tpu.explain import format_seconds
        from kernels.machines.tpu.pool import libtpu_version

        libtpu_version()
        operator, implementation, problem = _subject(entry, workload)
        known = operator.workloads
        one_of("chip", chip, tpu.CHIPS)
        if implementation.name == operator.plain:
            accepted = "one that takes block sizes; XLA chooses its own"
            fail("implementation", f"{implementation.name!r}", accepted)
        if known.candidates is None:
            fail("entry", f"{entry!r}, which offers nothing to tune", "one with candidates")
        candidates = known.candidates(problem, tpu.CHIPS[chip].vmem_bytes)
        if not candidates:
            fail("workload", problem, "one for which a candidate fits into VMEM")
        function = functools.partial(
            operator.function, implementation=implementation.name, **problem.options
        )
        store = TuningStore(Key.of(operator.name, implementation.name, problem, chip), fresh=fresh)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with _progress(*columns, TimeElapsedColumn()) as bar:
            task = bar.add_task(f"{entry} for {chip}", total=None)
            found = tpu.tune(
                function,
                *known.arguments(problem),
                candidates=candidates,
                chip=chip,
                name=operator.name,
                most=most,
                store=store,
                timeout=timeout,
                progress=lambda done, of: bar.update(task, completed=done, total=of),
            )
        table = _table(f"{entry} {problem} on {chip}, estimated")
        for name in ("tuning", "time", "against the default", ""):
            table.add_column(name, justify="left" if name in ("tuning", "") else "right")
        for trial in found.trials:
            refused = trial.seconds == float("inf")
            change = trial.seconds / found.default_seconds - 1
            compared = not refused and math.isfinite(found.default_seconds)
            table.add_row(
                str(trial),
                "refused" if refused else format_seconds(trial.seconds),
                f"{change:+.1%}" if compared else "",
                f"{trial.bound} binds" if trial.bound else re.split("[;:]", trial.note)[0],
            )
        console.print(table)
        default = (
            format_seconds(found.default_seconds)
            if math.isfinite(found.default_seconds)
            else "refused"
        )
        console.print(
            f"the operator's own choice: {default} (libtpu {found.libtpu}; "
            "estimates, not measurements)",
            highlight=False,
        )


def _tune_own(
    entry: str, args: str, over: list[str], chip: str, most: int, timeout: float, fresh: bool
) -> None:
    """Rank the keyword arguments of a function of a file."""
    from kernels.machines.tpu.chips import CHIPS
    from kernels.machines.tpu.explain import format_seconds
    from kernels.machines.tpu.pool import libtpu_version
    from kernels.yours.tuning import tune_file

    libtpu_version()
    one_of("--chip", chip, CHIPS)
    path, name = _place(entry)
    if not name:
        fail("entry", entry, "FILE.py:NAME")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with _progress(*columns, TimeElapsedColumn()) as bar:
        task = bar.add_task(f"{name} for {chip}", total=None)
        found = tune_file(
            path,
            name,
            args,
            over,
            chip=chip,
            most=most,
            timeout=timeout,
            fresh=fresh,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    table = _table(f"{name} {args} on {chip}, estimated".replace("  ", " "))
    for column in ("tuning", "time", "against the best", "band", ""):
        table.add_column(column, justify="left" if column in ("tuning", "") else "right")
    best = found.trials[0].seconds
    for trial, band in zip(found.trials, found.bands, strict=True):
        if trial.seconds == float("inf"):
            table.add_row(str(trial), "refused", "", "", trial.note.split("; it holds")[0])
        else:
            change = f"{trial.seconds / best - 1:+.1%}"
            time = format_seconds(trial.seconds)
            table.add_row(str(trial), time, change, band, f"{trial.bound} binds")
    console.print(table)
    for words in found.notes:
        console.print(words, highlight=False, soft_wrap=True)
    if not math.isfinite(best):
        raise typer.Exit(1)


@app.command()
def guard(
    baseline: Annotated[
        Path, typer.Option(help="JSON of what was estimated, and which rungs held.")
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="FILE.py or FILE.py:NAME each, for a new baseline, or one more."),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline anew.")] = False,
    percent: Annotated[float, typer.Option(min=0, help="How much an estimate may grow.")] = 2.0,
    chip: Annotated[
        list[str] | None,
        typer.Option("--chip", "-c", help="May be repeated; the file says by default."),
    ] = None,
    rung: Annotated[
        list[str] | None, typer.Option(help="To prove besides; interpret and compile by default.")
    ] = None,
    timeout: TimeoutOption = 120.0,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown there.")] = None,
) -> None:
    """Fail when a kernel's estimate grows, or when it loses a rung, against a baseline.

    \b
    python -m kernels guard my_kernels.py --baseline estimates.json --update
    python -m kernels guard --baseline estimates.json
    """
    with _reported():
        from kernels.yours import guarding

        _writable(markdown, baseline if update else None)
        found = guarding.guard(
            baseline,
            [_place(each) for each in files or ()],
            update=update,
            percent=percent,
            chips=tuple(chip or ()),
            rungs=tuple(rung or guarding.RUNGS),
            timeout=timeout,
            progress=lambda words: (
                errors.print(f"[dim]{escape(words)}[/]") if errors.is_terminal else None
            ),
        )
        table = _table("Against the baseline" if not update else "The new baseline")
        for name in ("kernel", "chip", "was", "is", "change", "rungs"):
            table.add_column(name, justify="right" if name in ("was", "is", "change") else "left")
        for row in found.rows():
            table.add_row(*row)
        console.print(table)
        for words in found.losses:
            console.print(f"[red]FAILED[/] {escape(words)}", highlight=False, soft_wrap=True)
        for words in found.notes:
            console.print(f"[dim]note[/] {escape(words)}", highlight=False, soft_wrap=True)
        if markdown:
            _write(markdown, found.markdown())
        if found.losses:
            raise typer.Exit(1)


@app.command()
def bench(
    entries: Annotated[
        list[str], typer.Argument(help="OPERATOR, OPERATOR/IMPLEMENTATION or a folder, each.")
    ],
    workload: WorkloadOption = None,
    repeats: Annotated[int, typer.Option(min=2, help="Readings of each.")] = 20,
    device: Annotated[str, typer.Option(help="cpu or cuda, for PyTorch and Taichi.")] = "cpu",
    gradient: Annotated[
        bool, typer.Option(help="Of the gradients, forward pass included.")
    ] = False,
    record: Annotated[bool, typer.Option(help="Keep them in results/measured.csv.")] = False,
) -> None:
    """Measure operators on this machine, in turn; the sizes of the book's figures by default."""
    with _reported():
        from kernels import figures
        from kernels.figures import benchmark

        one_of("--device", device, ("cpu", "cuda"))
        chosen: dict[str, list[Implementation]] = {}
        for operator, implementation in dict.fromkeys(find(*entries)):
            if reason := implementation.backend.why_not("measure", device):
                errors.print(f"[yellow]{operator.name}/{implementation.name}: {reason}[/]")
            else:
                chosen.setdefault(operator.name, []).append(implementation)
        if not chosen:
            fail("entry", ", ".join(entries), f"one that runs on {device} here")
        for name, implementations in chosen.items():
            problems = OPERATORS[name].workloads
            named = problems.figures or problems.named[:1]
            for problem in [problems.find(workload)] if workload else named:
                found = benchmark.bench(
                    OPERATORS[name],
                    [i for i in implementations if i.accepts(problem)],
                    problem,
                    repeats=repeats,
                    device=device,
                    gradient=gradient,
                )
                for refusing, reason in found.refused.items():
                    errors.print(f"[yellow]{name}/{refusing}, {problem}:[/] {escape(reason)}")
                if record:
                    figures.add("measured.csv", found.records())
                console.print(_measured(found))


def _measured(found: Measurement) -> Table:
    from kernels.machines.tpu.explain import format_seconds

    table = _table(f"{found.operator.name}, {found.title}: measured on {found.machine}")
    table.add_column("", overflow="fold")
    limit = ["of the limit"] if found.limit else []
    for column in ("median", "p20 to p80", f"{found.plain} takes", *limit):
        table.add_column(column, justify="right", no_wrap=True)
    for name, timing in found.timings.items():
        low, middle, high = found.ratio(found.plain, name)
        table.add_row(
            f"limit: {name}" if name == found.limit else name,
            format_seconds(timing.median),
            f"{format_seconds(timing.quantile(0.2))} to {format_seconds(timing.quantile(0.8))}",
            f"{middle:.2f}× ({low:.2f} to {high:.2f})",
            *([f"{found.ratio(found.limit, name)[1]:.0%}"] if found.limit else []),
        )
    return table


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Turn what a reader can do something about into a line and an exit code, not a traceback."""
    from kernels.machines.optional import MissingPackage

    try:
        yield
    except (ValueError, MissingPackage) as error:
        errors.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        errors.print("[yellow]stopped[/]")
        raise typer.Exit(130) from None
    except RuntimeError as error:
        from kernels.machines.tpu.diagnose import TpuCompileError

        if not isinstance(error, TpuCompileError):
            raise
        errors.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        raise typer.Exit(1) from None


def _subject(entry: str, workload: str | None) -> tuple[Operator, Implementation, Workload]:
    """The catalog entry for a TPU, and the workload, that the command line names."""
    from kernels.machines.tpu import CHIPS

    operator, implementation = next(find(entry))
    if "/" not in entry:
        fail("entry", repr(entry), "OPERATOR/IMPLEMENTATION")
    if not set(implementation.backend.chips) & set(CHIPS):
        written = implementation.backend.name
        fail("entry", f"{entry}, written in {written}", "one that runs on a TPU")
    known = operator.workloads
    problem = known.find(workload) if workload else _largest(operator, implementation)
    return operator, implementation, problem


def _program(entry: str, workload: str | None, chip: str) -> tuple[ExportedProgram, str]:
    """The exported program of an entry, and its title."""
    from kernels.machines.tpu.export import export
    from kernels.machines.tpu.pool import libtpu_version
    from kernels.proof import ladder

    libtpu_version()
    operator, implementation, problem = _subject(entry, workload)
    function, arrays = ladder.programs(ladder.Subject.of(operator, implementation), problem)[0]
    return export(function, *arrays, chip=chip, name=entry), f"{entry}  {problem}"


def _progress(*columns: ProgressColumn) -> Progress:
    """A bar on stderr while something takes long; nothing where that is no terminal."""
    return Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _report(checks: list[Check], verbose: bool) -> None:
    """One row for each entry and rung, then each check that did not pass, with its reason."""
    from kernels.proof import ladder

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
        worst = ladder.worst(check.status for check in group)
        used = [check.used for check in group if check.used is not None]
        share = f"{max(used):.0%}" if used else ""
        seconds = f"{sum(check.seconds for check in group):.1f}"
        table.add_row(*key, str(len(group)), MARKS[worst], share, seconds)
    console.print(table)
    told: set[object] = set()
    for check in checks:
        entry = f"{check.operator}/{check.implementation}"
        if check.status == ladder.PARTIAL and not verbose:
            if check.message not in told:
                told.add(check.message)
                console.print(f"[yellow]note[/] {check.message}", highlight=False, soft_wrap=True)
            continue
        if check.status == ladder.SKIPPED and not verbose:
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
