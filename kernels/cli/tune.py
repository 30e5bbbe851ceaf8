"""python -m kernels tune"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kernels.cli.options import ArgsOption, Entry, TimeoutOption, WorkloadOption, only_for, subject
from kernels.cli.terminal import console, file_and_name, note, progress, tell
from kernels.figures.table import Table, format_seconds
from kernels.machines.checks import fail, kept_by_jax, one_of


def tune(
    entry: Entry,
    workload: WorkloadOption = None,
    args: ArgsOption = "",
    over: Annotated[
        list[str] | None,
        typer.Option(help='"NAME=LOW..HIGH" in powers of two, or "NAME=A,B,C"; may be repeated.'),
    ] = None,
    chip: Annotated[str, typer.Option("--chip", "-c", help="The TPU to compile for.")] = "v5e",
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
    from kernels.machines.tpu import CHIPS
    from kernels.machines.tpu.pool import libtpu_version

    libtpu_version()
    one_of("--chip", chip, CHIPS)
    if ".py" in entry:
        only_for("OPERATOR/IMPLEMENTATION", workload=workload)
    else:
        only_for("FILE.py:NAME", args=args, over=over)
    options: dict[str, Any] = {"chip": chip, "most": most, "timeout": timeout}
    with progress(counted=False) as bar:
        bar.add_task(name := f"{entry} for {chip}")
        options["progress"] = lambda done, all_: tell(f"{name}: {done} of {all_} tried", bar=bar)
        if ".py" in entry:
            table, notes, known = _of_file(entry, args, over or [], fresh, options)
        else:
            table, notes, known = _of_entry(entry, workload, fresh, options)
    console.print(table)
    for words in notes:
        note(words)
    if not known:
        raise typer.Exit(1)


def _of_entry(
    entry: str, workload: str | None, fresh: bool, options: Mapping[str, Any]
) -> tuple[Table, Sequence[str], bool]:
    """The candidates of a catalog entry, what is worth knowing, and True."""
    from kernels.figures import Key, TuningStore
    from kernels.machines import tpu

    chip = options["chip"]
    operator, implementation, problem = subject(entry, workload, tpu.CHIPS)
    known = operator.workloads
    if implementation.name == operator.plain:
        accepted = "one that takes block sizes; XLA chooses its own"
        fail("implementation", f"{implementation.name!r}", accepted)
    if known.candidates is None:
        fail("entry", f"{entry!r}, which offers nothing to tune", "one with candidates")
    candidates = known.candidates(problem, tpu.CHIPS[chip].vmem_bytes)
    if not candidates:
        fail("workload", problem, "one for which a candidate fits into VMEM")
    arguments = known.arguments(problem)
    for array in arguments:
        kept_by_jax("the dtype of an argument", array.dtype)
    tuning = tpu.tune(
        functools.partial(operator.function, implementation=implementation.name, **problem.options),
        *arguments,
        candidates=candidates,
        name=operator.name,
        store=TuningStore(Key.of(operator.name, implementation.name, problem, chip), fresh=fresh),
        **options,
    )
    default = tuning.default_seconds
    rows = []
    for trial in tuning.trials:
        refused, least = math.isinf(trial.seconds), "at least " * bool(trial.on_data)
        comparable = not refused and math.isfinite(default) and not trial.on_data
        time = "refused" if refused else least + format_seconds(trial.seconds)
        change = f"{trial.seconds / default - 1:+.1%}" if comparable else ""
        binds = f"{trial.bound} binds" if trial.bound else re.split("[;:]", trial.note)[0]
        rows.append((str(trial), time, change, trial.on_data or binds))
    columns = ("tuning", "time", "against the default", "")
    title = f"{entry} {problem} on {chip}, estimated"
    own = format_seconds(default) if math.isfinite(default) else "refused"
    kind = f"libtpu {tuning.libtpu}; estimates, not measurements"
    words = f"the operator's own choice: {own} ({kind})"
    return Table(columns, rows, title, right=columns[1:3]), [words], True


def _of_file(
    entry: str, args: str, over: Sequence[str], fresh: bool, options: Mapping[str, Any]
) -> tuple[Table, Sequence[str], bool]:
    """The keyword arguments of a function of a file, what is worth knowing, and whether one of
    them compiles."""
    from kernels.yours.tuning import tune_file

    path, name = file_and_name(entry, named=True)
    tuned = tune_file(path, name, args, over, fresh=fresh, **options)
    best, rest = tuned.trials[0].seconds, tuned.shared
    rows = []
    for trial, band in zip(tuned.trials, tuned.bands, strict=True):
        if math.isinf(trial.seconds):
            rows.append((str(trial), "refused", "", "", trial.note.split("; it holds")[0]))
        else:
            change = "" if trial.on_data else f"{(trial.seconds - rest) / (best - rest) - 1:+.1%}"
            time = "at least " * bool(trial.on_data) + format_seconds(trial.seconds)
            rows.append((str(trial), time, change, band, f"{trial.bound} binds"))
    columns = ("tuning", "time", "against the best", "band", "")
    title = f"{name} {args} on {options['chip']}, estimated".replace("  ", " ")
    return Table(columns, rows, title, right=columns[1:4]), tuned.notes, math.isfinite(best)
