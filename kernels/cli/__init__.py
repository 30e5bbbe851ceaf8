"""python -m kernels list | verify | prove | judge | explain | estimate | tune | guard | nki | …

Exit codes: 0 everything passed, 1 a check failed, 2 the command line was wrong. A check that
cannot be made on this machine is skipped by name; --strict turns that into a failure.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from kernels.cli.bench import bench
from kernels.cli.estimate import estimate
from kernels.cli.explain import explain
from kernels.cli.guard import guard
from kernels.cli.judge import judge
from kernels.cli.list_ import list_
from kernels.cli.nki import nki
from kernels.cli.prove import prove
from kernels.cli.terminal import reported
from kernels.cli.tune import tune
from kernels.cli.validate import validate
from kernels.cli.verify import verify

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


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
    python -m kernels explain my_kernels.py:softmax --args "f32[8192,1024]"
    """
    from kernels.machines.optional import available

    dev = Path("/dev")
    tpu = [*dev.glob("accel*"), *dev.glob("vfio/[0-9]*")]
    gpu = any(available(f"jax_cuda{n}_plugin") for n in (12, 13))
    if available("libtpu") and not tpu and not gpu:
        # With libtpu and without a TPU, JAX would look for one first, and print a page about it.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


# In the order of the help.
app.command("list")(list_)
for command in (verify, prove, judge, explain, estimate, tune, guard, nki, bench, validate):
    app.command()(reported()(command))
