"""python -m kernels nki"""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from kernels.cli.terminal import errors
from kernels.machines.checks import fail, one_of

TARGET = "NEURON_PLATFORM_TARGET_OVERRIDE"  # the vendor's variable


def nki(
    script: Annotated[Path, typer.Argument(help="SCRIPT.py, which imports nki or neuronxcc.nki.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Of the script; put -- before its options.")
    ] = None,
    chip: Annotated[
        str, typer.Option("--chip", "-c", envvar=TARGET, help="Whose limits hold; AWS's default.")
    ] = "trn3",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that it may run.")] = 600.0,
    memory: Annotated[float, typer.Option(min=0.5, help="GiB that it may have.")] = 8.0,
) -> None:
    """Run a script for AWS Neuron as it is, on a simulated NeuronCore: no Neuron package is needed.

    \b
    python -m kernels nki their_script.py
    python -m kernels nki their_script.py --chip trn2 -- --batch 4

    `import nki` and `import neuronxcc.nki` find the simulator; arrays may be NumPy's or PyTorch's,
    and results are of the same kind. What a NeuronCore refuses is told in a line, and so is what
    the script itself raises. It runs in a process of its own and keeps its exit status; 1 is a
    refusal, an error, or the end of its time or memory. In a folder with a kernels.py of its own,
    write `python -P -m kernels`: otherwise Python takes that file for this program.
    """
    from kernels.machines import child
    from kernels.machines.neuron.chips import CHIPS, TARGETS
    from kernels.yours import nki_script

    if not script.is_file():
        fail("script", script, "a Python file that there is")
    one_of("--chip", TARGETS.get(chip, chip), CHIPS)
    command = child.python(nki_script.__file__, str(int(memory * 2**30)), str(script))
    environment = os.environ | {TARGET: chip, "PYTHONPATH": child.search_path()}
    try:
        done = child.run(
            [*command, *(arguments or ())], seconds=timeout, environment=environment, shown=True
        )
    except child.ChildLate:
        errors.print(f"[red]{escape(script.name)} had not ended after {timeout:g} s[/]")
        raise typer.Exit(1) from None
    if done.status < 0:
        errors.print(f"[red]{escape(script.name)} died of {child.how(done.status)}[/]")
    raise typer.Exit(abs(done.status) and max(done.status, 1))
