"""What every command says to its reader: where it prints, bars, errors, and files it writes."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import typer
from rich import progress as bars
from rich.console import Console
from rich.markup import escape

from kernels.machines.checks import fail

console = Console()
errors = Console(stderr=True, highlight=False)
NAMED = (errno.ENOSPC, errno.EROFS, errno.EACCES)  # whose words say what to do


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turn what a reader can do something about into a line and an exit code, not a traceback."""
    from kernels.machines.optional import MissingPackage

    try:
        yield
    except (ValueError, MissingPackage, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NAMED:
            raise
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


def progress(form: str = "{task.description}", counted: bool = True) -> bars.Progress:
    """A bar on stderr while something takes long; nothing where that is no terminal."""
    columns: list[bars.ProgressColumn] = [bars.TextColumn(form)]
    if counted:
        columns += [bars.BarColumn(), bars.MofNCompleteColumn()]
    columns.append(bars.TimeElapsedColumn())
    return bars.Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)


def tell(
    words: str, ended: bool = True, bar: bars.Progress | None = None, dim: bool = False
) -> None:
    """Words in a bar without a count, if there is one, or dim on a terminal; and of what ended a
    line on stderr, where that is no terminal and so shows neither."""
    if bar is not None:
        bar.update(bar.task_ids[0] if bar.task_ids else bar.add_task(""), description=escape(words))
    if dim if errors.is_terminal else ended:
        errors.print(words, style="dim" if dim else "", markup=False, soft_wrap=True)


def note(words: str) -> None:
    """Print a line as it is, of any length."""
    console.print(words, highlight=False, soft_wrap=True)


def file_and_name(text: str, named: bool = False) -> tuple[str, str]:
    """File and name of "FILE.py:NAME"; ValueError for a file that there is not. With `named` a name
    that is left out is that of the kernel that the file marks; ValueError where it is not one."""
    path, colon, name = text.rpartition(".py:")
    path, name = (path + ".py", name) if colon else (text, "")
    if not path.endswith(".py") or not Path(path).is_file():
        fail("file", path, "a Python file that there is, or FILE.py:NAME")
    if named and not name:
        from kernels.yours.proving import declared_in

        marks = b"proves" in Path(path).read_bytes()
        names = [own for own, _ in declared_in(path)] if marks else []
        if len(names) != 1:
            fail("entry", text, ", ".join(f"{path}:{own}" for own in names) or "FILE.py:NAME")
        [name] = names
    return path, name


def writable(*paths: Path | None) -> None:
    """ValueError for a file that cannot be written, before the work that it is to hold."""
    for path in filter(None, paths):
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            fail("file to write", path, "one in a folder that there is and that can be written to")


def write(path: Path | None, text: str) -> None:
    """Write a file, if one was asked for."""
    try:
        if path is not None:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail("file to write", path, f"one that can be written ({error.strerror})")
