"""Arguments and options that several commands take, and the catalog entries that they name."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernels.machines.checks import fail, one_of
from kernels.proof.catalog import Implementation, Operator, find

if TYPE_CHECKING:
    from kernels.proof.workload import Workload

Entry = Annotated[
    str,
    typer.Argument(help="OPERATOR/IMPLEMENTATION, FILE.py:NAME, or FILE.py where it marks one."),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option("--workload", "-w", help='A name, or sizes such as "m=512 k=512 n=512 bfloat16".'),
]
ArgsOption = Annotated[
    str,
    typer.Option(
        "--args",
        help='What it takes, such as "bf16[64,128] i32[3]=[100,0,156]": values that a grid or a '
        "loop depends on are given so. As @kernels.proves draws it by default.",
    ),
]
ChipsOption = Annotated[
    list[str] | None,
    typer.Option("--chip", "-c", help="May be repeated; as the file says, or else v5e and v6e."),
]
MeshOption = Annotated[
    str,
    typer.Option(
        "--mesh",
        help="Devices such as x=4 or x=2,y=4, in place of the file's mesh; its in_specs and "
        "out_specs cut the arrays.",
    ),
]
TimeoutOption = Annotated[float, typer.Option(min=1, help="Seconds for one compilation.")]
GradientOption = Annotated[bool, typer.Option(help="Of the gradients, forward pass included.")]
StrictOption = Annotated[bool, typer.Option(help="Let fail too what was skipped, or done in part.")]
SandboxOption = Annotated[
    bool,
    typer.Option(
        "--sandbox", help="Confine the files by bubblewrap: a /tmp of their own, no network."
    ),
]
MarkdownOption = Annotated[Path | None, typer.Option(help="Write Markdown there.")]


def largest(operator: Operator, implementation: Implementation) -> Workload:
    """The largest named workload that an implementation takes."""
    taken = filter(implementation.accepts, operator.workloads.named)
    return max(taken, key=lambda workload: math.prod(workload.sizes.values()))


def subject(
    entry: str, workload: str | None, chips: Collection[str]
) -> tuple[Operator, Implementation, Workload]:
    """The catalog entry for one of the chips, and the workload, that the command line names;
    ValueError for another entry, and an unknown workload."""
    operator, implementation = next(find(entry))
    if "/" not in entry:
        fail("entry", repr(entry), "OPERATOR/IMPLEMENTATION")
    if not set(implementation.backend.chips) & set(chips):
        written = implementation.backend.name
        fail("entry", f"{entry}, written in {written}", f"one in JAX, for {', '.join(chips)}")
    known = operator.workloads
    problem = largest(operator, implementation) if workload is None else known.find(workload)
    return operator, implementation, problem


def repeated(option: str, names: list[str] | None, known: Collection[str]) -> tuple[str, ...]:
    """The values of an option that may be repeated; ValueError for one that is not accepted."""
    for name in names or ():
        one_of(option, name, known)
    return tuple(names or ())


def only_for(entry: str, **options: object) -> None:
    """ValueError for an option that is given, and says something of such an entry alone."""
    for option, value in options.items():
        if value:
            fail(f"--{option}", value, f"with {entry}")
