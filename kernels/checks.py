"""Checks of arguments. Each raises ValueError: the argument, what it was, and what is accepted."""

import re
from collections.abc import Collection, Sequence
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


def fail(argument: str, value: object, accepted: str) -> NoReturn:
    """Raise the one form of ValueError that all public functions use."""
    raise ValueError(f"{argument} is {value}; accepted: {accepted}")


def array(
    argument: str, value: Any, *, rank: int, dtypes: Collection[str], empty: bool = False
) -> None:
    """Check that `value` is an array of `rank` dimensions and one of `dtypes`.

    No dimension may be zero, unless `empty` allows it.
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
    """Check that a property of one argument equals that of another."""
    if value != expected:
        fail(argument, value, f"{expected}, as {other} has it")


def one_of(argument: str, value: object, accepted: Collection[Any]) -> None:
    """Check that `value` is one of the `accepted` ones."""
    if value not in accepted:
        shown = f"{value!r}" if isinstance(value, str) else value
        fail(argument, shown, ", ".join(map(str, accepted)))


def positive_int(argument: str, value: object) -> None:
    """Check that `value` is a whole number of at least 1 (a bool is not a number here)."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        fail(argument, repr(value), "a whole number of at least 1")


def implementation(value: object, accepted: Sequence[str]) -> None:
    """Check the name of an implementation."""
    one_of("implementation", value, accepted)
