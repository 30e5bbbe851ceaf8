"""python -m kernels prove"""

from pathlib import Path
from typing import Annotated, Any

import typer

from kernels.cli import options
from kernels.cli.terminal import console, file_and_name, progress, tell, writable, write
from kernels.proof.catalog import RUNGS

NOT_RUN = 3  # the exit status where a kernel was compiled at best


def prove(
    files: Annotated[
        list[str],
        typer.Argument(help="FILE.py or FILE.py:NAME each, whose kernels @kernels.proves marks."),
    ],
    rung: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(RUNGS[:3])}; may be repeated. All by default."),
    ] = None,
    chip: options.ChipsOption = None,
    mesh: options.MeshOption = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the values.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for a problem at a rung.")] = 300.0,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML there.")] = None,
    markdown: options.MarkdownOption = None,
    marked: Annotated[
        bool, typer.Option("--marked", help="Pass over files in which nothing is marked.")
    ] = False,
    strict: options.StrictOption = False,
    allow_skips: Annotated[
        bool, typer.Option("--allow-skips", help="Let a kernel pass that no interpreter ran.")
    ] = False,
    sandbox: options.SandboxOption = False,
) -> None:
    """Prove kernels of your own: interpreted, simulated, compiled, against your reference.

    \b
    python -m kernels prove my_kernels.py
    python -m kernels prove my_kernels.py:softmax --rung interpret --junit report.xml
    python -m kernels prove my_rings.py --mesh x=8

    \b
    @kernels.proves(jax.nn.softmax, arguments=lambda rng: (rng.random((64, 256), np.float32),))
    def softmax(x): ...

    A file is code, and runs: in a process of its own, without your secrets of the environment, for
    --timeout, in part of the free memory. It still reads and writes files, and reaches the network,
    as you do; --sandbox takes that away.

    The exit status is 1 where a rung failed, and 3 where a kernel was compiled and never run.
    """
    from kernels.yours import machines
    from kernels.yours.proving import RUNGS as known
    from kernels.yours.proving import prove_file
    from kernels.yours.report import FAILED, ProblemResult, Report
    from kernels.yours.shapes import mesh_of

    writable(junit, markdown)
    rungs = options.repeated("--rung", rung, known) or known
    chips = options.repeated("--chip", chip, machines.chips())
    report, refused, asked = Report(()), [], [file_and_name(file) for file in files]
    with progress(counted=False) as bar:
        say = lambda words, ended=False: tell(words, ended, bar)
        for path, name in asked:
            if marked and b"proves" not in Path(path).read_bytes():
                continue
            more: dict[str, Any] = dict(sandbox=sandbox, mesh=mesh_of(mesh), progress=say)
            more |= dict(rungs=rungs, chips=chips, seed=seed, timeout=timeout)
            try:
                report += prove_file(path, name, **more)
            except ValueError as error:  # beside what the others' reports say
                refused.append(error)
                words = (Path(path).name, "load", "the file", FAILED, str(error))
                report += Report((ProblemResult(*words),))
    if len(refused) == len(asked):
        raise refused[0]
    write(junit, report.junit())
    write(markdown, report.markdown())
    console.print(report)
    lacking = any(result.status in ("skipped", "partial") for result in report.findings)
    if report.failures or (strict and lacking):
        raise typer.Exit(1)
    if report.not_run and not allow_skips:
        raise typer.Exit(NOT_RUN)
