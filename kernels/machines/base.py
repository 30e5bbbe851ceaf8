"""What the machines' answers are made of: figures and ranges, chips, simulated runs, refusals."""

from __future__ import annotations

import ast
import csv
import functools
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kernels.machines.checks import fail, one_of

Chip = TypeVar("Chip")


class Seconds(float):
    """Seconds: a figure, or a range of which only the ends are known.

    Both unpack, and are indexed, as (low, high). A figure is a float like any other, whose ends are
    the same. A range is no number: who calculates with it as with one meets a ValueError.

    Args:
        low: the least.
        high: the most; the same if left out.
    """

    low: float
    high: float

    def __new__(cls, low: float, high: float | None = None) -> Seconds:
        """A figure where both ends are one, else a range."""
        high = low if high is None else high
        # What passes a range on as a number, past the methods below, passes no number on.
        self = super().__new__(cls, low if low == high else float("nan"))
        self.low, self.high = float(low), float(high)
        return self

    @property
    def is_range(self) -> bool:
        """Whether the ends differ."""
        return self.low != self.high

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return self.low, self.high

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))

    def __getitem__(self, end: int) -> float:
        return (self.low, self.high)[end]

    def __eq__(self, other: object) -> bool:
        ends = tuple(other) if isinstance(other, Seconds | tuple) else (other, other)
        return (self.low, self.high) == ends

    def __hash__(self) -> int:
        return hash((self.low, self.high) if self.is_range else self.low)

    def __repr__(self) -> str:
        return f"{self.low!r} to {self.high!r}" if self.is_range else repr(self.low)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        ends = [format(end, spec) for end in self]
        return " to ".join(ends if self.is_range else ends[:1])


def _of_a_figure(name: str) -> Callable[..., Any]:
    """A method of float that a range refuses."""
    plain = getattr(float, name)

    @functools.wraps(plain)
    def method(self: Seconds, *others: Any) -> Any:
        for seconds in (self, *others):
            if isinstance(seconds, Seconds) and seconds.is_range:
                fail("seconds", f"a range, {seconds}", "a figure; of a range, read .low and .high")
        return plain(self, *others)

    return method


for _operation in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _side in ("", "r"):
        setattr(Seconds, f"__{_side}{_operation}__", _of_a_figure(f"__{_side}{_operation}__"))
for _operation in ("float", "int", "round", "neg", "abs", "lt", "le", "gt", "ge"):
    setattr(Seconds, f"__{_operation}__", _of_a_figure(f"__{_operation}__"))


@dataclass(eq=False)  # an exception equals itself only, and can be put into a set
class CompileError(RuntimeError):
    """A program that could not be compiled.

    Args:
        kind: in a word or two; each machine says which there are.
        message: what is wrong, and what would be right, in a line.
        original: the compiler's or JAX's own text, whole.
        asked_bytes, limit_bytes: of a fast memory that overflows.
        seconds: that the compiler ran.
    """

    kind: str
    message: str
    original: str = ""
    asked_bytes: int | None = None
    limit_bytes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __reduce__(self) -> tuple[type, tuple]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def __str__(self) -> str:
        return self.message


def plain_words(module: str, text: str, unknown: str) -> tuple[str, str] | None:
    """The kind of a compiler's error, and what to say instead, by the first pattern that fits in
    refusals.csv beside a module; {} in the words is the pattern's group, or `unknown`."""
    with Path(module).with_name("refusals.csv").open(encoding="utf-8", newline="") as rows:
        _, *refusals = csv.reader(rows)
    for pattern, kind, words in refusals:
        if said := re.search(pattern, text):
            return kind, words.format(*said.groups(unknown))
    return None


class SimulationError(RuntimeError):
    """A simulated machine refused a kernel; the message is the machine's own last words."""

    gap = False  # whether the simulator fails, and says nothing of the kernel


@dataclass(frozen=True)
class Simulation:
    """What one run on a simulated machine gave.

    Args:
        result: what the function returned, as NumPy arrays.
        races: each race that was seen, in a line.
        order: of a TPU, int [programs, grid rank]: the program ids in the order in which they ran.
        core: of a TPU, int [programs]: which core ran each.
    """

    result: Any
    races: tuple[str, ...]
    order: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), int), repr=False)
    core: np.ndarray = field(default_factory=lambda: np.zeros(0, int), repr=False)


def takes_interpret(function: Callable[..., Any]) -> bool:
    """Whether a function has to be told that it is simulated: else it may do on a CPU what is no
    kernel.
    """
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of something built in
        return False
    return any(
        parameter.name == "interpret" or parameter.kind is parameter.VAR_KEYWORD
        for parameter in known
    )


@dataclass(frozen=True)
class PublishedChip:
    """A chip and what is published of it.

    Args:
        name: as CHIPS has it.
        device_kind: what JAX calls it; "" where it has no name for it.
        sources: where each figure is from, in words.
    """

    name: str
    device_kind: str = field(default="", kw_only=True)
    sources: tuple[tuple[str, str], ...] = field(repr=False, kw_only=True)

    def source(self, field: str) -> str:
        """Where the figure `field` is from."""
        sources = dict(self.sources)
        one_of("field", field, sources)
        return sources[field]


def published(kind: Callable[..., Chip], module: str) -> dict[str, Chip]:
    """The chips that chips.csv beside a module lists: their figures, and where each is from."""
    figures, sources = defaultdict[str, dict](dict), defaultdict[str, dict](dict)
    with Path(module).with_name("chips.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for name in row["chips"].split():
                figures[name][row["figure"]] = _value(row["value"])
                sources[name][row["figure"]] = row["source"]
    return {
        name: kind(name, **own, sources=tuple(sources[name].items()))
        for name, own in figures.items()
    }


def _value(text: str) -> Any:
    """A figure: 80 << 30, a literal of Python, or a word."""
    if " << " in text:
        count, _, power = text.partition(" << ")
        return int(count) << int(power)
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
