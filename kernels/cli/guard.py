"""python -m kernels guard"""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from kernels.cli.options import ChipsOption, MarkdownOption, TimeoutOption, repeated
from kernels.cli.terminal import console, file_and_name, note, tell, writable, write
from kernels.machines.checks import fail


def guard(
    baseline: Annotated[
        Path, typer.Option(help="JSON of what was estimated, and which rungs held.")
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="FILE.py or FILE.py:NAME each, for a new baseline, or one more."),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option(help="Estimate each kernel on each chip at these: lines as --args has them."),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline anew.")] = False,
    percent: Annotated[float, typer.Option(min=0, help="How much an estimate may grow.")] = 2.0,
    chip: ChipsOption = None,
    rung: Annotated[
        list[str] | None, typer.Option(help="To prove besides; interpret and compile by default.")
    ] = None,
    timeout: TimeoutOption = 120.0,
    jobs: Annotated[int, typer.Option(min=1, help="How many estimates at a time.")] = 2,
    markdown: MarkdownOption = None,
) -> None:
    """Fail when a kernel's estimate grows, or when it loses a rung, against a baseline.

    \b
    python -m kernels guard my_kernels.py --baseline estimates.json --update
    python -m kernels guard --baseline estimates.json
    python -m kernels guard my_kernels.py --baseline estimates.json --shapes buckets.txt --update

    What grew by an upgrade of the compiler alone, while a file and what it imports beside it stayed
    the same, is told and does not fail.
    """
    from kernels.yours import guarding, machines

    writable(markdown, baseline if update else None)
    try:
        rows = shapes.read_text(encoding="utf-8").split("\n") if shapes else []
    except (OSError, UnicodeDecodeError) as error:
        fail("--shapes", f"{shapes} ({error})", "a text file with shapes in each line")
    buckets = [row.strip() for row in rows if row.strip() and row[0] != "#"]
    if shapes and not buckets:
        fail("--shapes", f"{shapes}, which has none", "a text file with shapes in each line")
    guarded = guarding.guard(
        baseline,
        [file_and_name(file) for file in files or ()],
        shapes=buckets,
        update=update,
        percent=percent,
        chips=repeated("--chip", chip, machines.chips()),
        rungs=repeated("--rung", rung, guarding.ALL) or guarding.RUNGS,
        timeout=timeout,
        jobs=jobs,
        progress=lambda words, ended=False: tell(words, ended, dim=True),
    )
    console.print(guarded.table("The new baseline" if update else "Against the baseline"))
    for words in guarded.losses:
        note(f"[red]FAILED[/] {escape(words)}")
    for words in guarded.notes:
        note(f"[dim]note[/] {escape(words)}")
    write(markdown, guarded.markdown())
    if guarded.losses:
        raise typer.Exit(1)
