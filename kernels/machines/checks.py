"""Checks of arguments. Each raises ValueError: the argument, what it was, and what is accepted."""

import re
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np


def brief(error: BaseException) -> str:
    """An exception in one line: its type and the first line of its text, files without folders."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    first = re.sub(r"(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", first)
    first = re.sub(
        r"\b\d+\.py:(\d+)", r"line \1 of the cell", first
    )  # a notebook's own name for it
    return f"{type(error).__name__}: {first}"[:400]


def located(error: BaseException) -> str:
    """An exception in one line, with the line of code that raised it outside of libraries.

    Args:
        error: with its traceback.

    Returns:
        As brief gives it, then "(file.py:line)" where there is such a line.
    """
    if isinstance(error, SyntaxError):
        place = f" ({Path(error.filename).name}:{error.lineno})" if error.filename else ""
        return f"{type(error).__name__}: {error.msg}{place}"
    words = str(error).splitlines()[0] if type(error) is ValueError and str(error) else brief(error)
    theirs = [f for f in traceback.extract_tb(error.__traceback__) if user_file(f.filename)]
    return f"{words} ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else words


def user_file(file: str) -> bool:
    """Whether a line of code is a reader's, and neither a library's nor this package's own.

    Args:
        file: its path, as a traceback has it.
    """
    library = "site-packages" in file or "/lib/python" in file or file.startswith("<")
    return not library and Path(__file__).parents[1] not in Path(file).parents


def fail(argument: str, value: object, accepted: str) -> NoReturn:
    """Raise the one form of ValueError that all public functions use.

    Args:
        argument: its name, or that of a part of it such as "x.shape".
        value: what it was.
        accepted: what would do, in words.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{argument} is {value}; accepted: {accepted}")


def array(
    argument: str, value: Any, *, rank: int, dtypes: Collection[str], empty: bool = False
) -> None:
    """Check that `value` is an array of `rank` dimensions and one of `dtypes`.

    Args:
        argument: its name.
        value: what it is.
        rank: how many dimensions it has to have.
        dtypes: the names of the dtypes that it may have.
        empty: whether a dimension may be zero.

    Raises:
        ValueError: for what is no array, and for another rank, an empty dimension or another dtype.
    """
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        fail(argument, f"a {type(value).__name__}", f"an array of rank {rank}")
    shape = tuple(value.shape)
    if len(shape) != rank:
        fail(f"{argument}.shape", shape, f"{rank} dimension{'s' * (rank != 1)}")
    if 0 in shape and not empty:
        fail(f"{argument}.shape", shape, "dimensions of at least 1")
    one_of(f"{argument}.dtype", str(value.dtype), dtypes)


def same(argument: str, value: object, other: str, expected: object) -> None:
    """Check that a property of one argument equals that of another.

    Args:
        argument: the name of the property, such as "y.dtype".
        value: what it is.
        other: the name of the other argument.
        expected: what the property is there.

    Raises:
        ValueError: where they differ.
    """
    if value != expected:
        fail(argument, value, f"{expected}, as {other} has it")


def one_of(argument: str, value: object, accepted: Collection[Any]) -> None:
    """Check that `value` is one of the `accepted` ones.

    Args:
        argument: its name.
        value: what it is.
        accepted: what it may be.

    Raises:
        ValueError: where it is none of them.
    """
    if value not in accepted:
        shown = f"{value!r}" if isinstance(value, str) else value
        fail(argument, shown, ", ".join(map(str, accepted)))


def positive_int(argument: str, value: object) -> None:
    """Check that `value` is a whole number of at least 1 (a bool is not a number here).

    Args:
        argument: its name.
        value: what it is.

    Raises:
        ValueError: where it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        fail(argument, repr(value), "a whole number of at least 1")


def name_of(function: Any) -> str:
    """A function's name, or that of its type."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__name__", "") or type(function).__name__
