"""python -m kernels judge"""

import json
from typing import Annotated, Any

import typer

from kernels.cli.options import MarkdownOption, MeshOption, SandboxOption, repeated
from kernels.cli.terminal import console, errors, progress, writable, write

UNDECIDED = 3  # the exit status where nothing is wrong or refused, and a kernel is not decided


def judge(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files or folders: kernels that @kernels.proves marks (FILE.py:NAME is one), or "
            "files in the form of KernelBench for JAX (Model, get_inputs, get_init_inputs)."
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="The originals of files in KernelBench's form: a file or a folder.")
    ] = "",
    chip: Annotated[
        list[str] | None,
        typer.Option("--chip", "-c", help="May be repeated; v6e by default, whatever a file says."),
    ] = None,
    mesh: MeshOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON a kernel.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the schema of --json.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="How many kernels at a time.")] = 1,
    shard: Annotated[str, typer.Option(help="K/N: every N-th kernel, from the K-th on.")] = "1/1",
    seed: Annotated[int, typer.Option(min=0, help="Of the values.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for a kernel.")] = 300.0,
    memory: Annotated[
        float | None, typer.Option(min=0.5, help="GiB for the process of a kernel.")
    ] = None,
    markdown: MarkdownOption = None,
    sandbox: SandboxOption = False,
) -> None:
    """Judge kernels that a program or a stranger wrote: refused, wrong, or right, chip by chip.

    \b
    python -m kernels judge answers/ --reference problems/ --jobs 2 --json > verdicts.jsonl
    python -m kernels judge my_kernels.py:softmax --chip v6e --chip v7x
    python -m kernels judge answers/ --reference problems/ --shard 3/8

    At full size a kernel is compiled, weighed and estimated beside XLA's program of its reference;
    at sizes made smaller by whole blocks it is interpreted and simulated, on values drawn here.

    Exit status: 0 every kernel is right as far as the rungs reach, 1 one is wrong or refused, 2 the
    command line is wrong, 3 none is wrong or refused and one is undecided.

    A kernel is code, and runs: in a process of its own, without your secrets of the environment,
    for --timeout and in --memory. It reads and writes files, up to 2 GiB each, and reaches the
    network, as you do; --sandbox takes that away.
    """
    from kernels.machines.tpu.chips import CHIPS
    from kernels.yours import judging
    from kernels.yours.shapes import mesh_of
    from kernels.yours.verdict import REFUSED, SCHEMA, WRONG, table
    from kernels.yours.verdict import UNDECIDED as OPEN

    if schema:
        typer.echo(json.dumps(SCHEMA, indent=1))
        return
    if not files:
        raise ValueError("no file is named; accepted: files or folders of kernels")
    writable(markdown)
    chips = repeated("--chip", chip, CHIPS) or judging.CHIPS
    listed = judging.shard(judging.entries(files, reference, sandbox), shard)
    verdicts = []
    with progress() as bar:
        task = bar.add_task("judging", total=len(listed))
        limits: dict[str, Any] = dict(timeout=timeout, memory=memory, jobs=jobs, seed=seed)
        limits |= dict(chips=chips, mesh=mesh_of(mesh), sandbox=sandbox)
        for verdict in judging.judge_all(listed, **limits):
            verdicts.append(verdict)
            bar.advance(task)
            bar.stop()  # else it stays beside what is printed
            if as_json:
                typer.echo(json.dumps(verdict.as_json()))
            else:
                console.print(verdict)
            bar.start()
    write(markdown, table(verdicts).markdown() + "\n")
    counts = [verdict.verdict for verdict in verdicts]
    said = ", ".join(f"{counts.count(word)} {word}" for word in dict.fromkeys(counts))
    many = "s" * (len(counts) != 1)
    errors.print(f"{len(counts)} kernel{many}: {said}" if counts else "no kernel in this shard")
    if {REFUSED, WRONG} & set(counts):
        raise typer.Exit(1)
    if OPEN in counts:
        raise typer.Exit(UNDECIDED)
