"""What the simulated NeuronCore, the lint and the vendor's tools refuse, in plain words."""

import difflib
import dis
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

HERE = str(Path(__file__).parent)


class NeuronError(RuntimeError):
    """A kernel that a NeuronCore, or the language it is written in, does not take.

    message: one line, which names the instruction, the tile and the limit. source: "file.py:line"
    of the kernel, where that is known.
    """

    def __init__(self, message: str, source: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.source = source

    def __str__(self) -> str:
        return f"{self.message} ({self.source})" if self.source else self.message

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), (self.message, self.source)


class MissingName(NeuronError, AttributeError):
    """A name that this generation of NKI does not have; the message says what to write instead."""


class MissingImport(NeuronError, ModuleNotFoundError):
    """The same, for an import statement: Python would replace an AttributeError's words."""


def place() -> str | None:
    """Where in the kernel we are: the innermost frame outside this package, as "file.py:line"."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    if frame is None:
        return None
    return located(frame.f_code.co_filename, frame.f_lineno)


@functools.cache
def located(path: str, line: int) -> str:
    """A line of a file without its folder; a notebook's cell is a file named by a number."""
    name = Path(path).name
    return f"the cell, line {line}" if name.removesuffix(".py").isdigit() else f"{name}:{line}"


def absent(
    module: str, name: str, known: Sequence[str], instead: Mapping[str, str] | None = None
) -> Any:
    """Say that a module of the vendor's has no such name here, and which it has."""
    if name.startswith("__"):
        raise AttributeError(name)
    frame = sys._getframe(2)  # at `from module import name`, or another line that asks for it
    importing = dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"
    error = MissingImport if importing else MissingName
    if instead and name in instead:
        raise error(f"{module} has no {name}: write {instead[name]}", place())
    near = difflib.get_close_matches(name, known, 3)
    near_words = f"the nearest are {', '.join(near)}; " if near else ""
    raise error(
        f"not simulated: {module}.{name}; {near_words}simulated are {', '.join(sorted(known))}",
        place(),
    )


def nothing_but(
    module: str, known: Sequence[str], instead: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a module of the vendor's: it says which names are known here."""
    return lambda name: absent(module, name, known, instead)


def own_names(module: Mapping[str, Any]) -> list[str]:
    """The functions and classes that a module, as its globals(), defines for kernels."""
    home = module["__name__"]
    return [
        name
        for name, value in module.items()
        if name[0] != "_" and getattr(value, "__module__", None) == home
    ]


def refuse(message: str) -> NoReturn:
    """Raise NeuronError for the line of the kernel that is running."""
    raise NeuronError(message, place())
