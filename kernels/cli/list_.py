"""python -m kernels list"""

from kernels.cli.terminal import console
from kernels.figures.table import Table
from kernels.proof.catalog import OPERATORS, RUNGS


def list_() -> None:
    """Show every operator, its implementations, and the rungs that each claims."""
    rows, wide = [], max(map(len, OPERATORS)) + 2
    for operator in OPERATORS.values():
        line = f"[bold]{operator.name:<{wide}}[/]{operator.summary}"
        console.print(line, highlight=False, soft_wrap=True)
        for implementation in operator.implementations:
            marks = {rung: "●" if rung in implementation.rungs else "·" for rung in RUNGS[:3]}
            claims = [mark.center(len(rung)) for rung, mark in marks.items()]
            name = f"{operator.name}/{implementation.name}"
            rows.append((name, implementation.backend.name, *claims))
    columns = ("entry", "written in", *RUNGS[:3])
    console.print(Table(columns, rows, "The rungs that prove each implementation"))
    console.print("● proven by `python -m kernels verify`   · not claimed", highlight=False)
