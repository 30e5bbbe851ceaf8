"""Brackets of GPU programs beside the times that others measured: results/gpu_validation.csv.

An estimate for a GPU says the least and the most (kernels.machines.gpu.estimate). Each row here is
a published time, and what a program's parts take on that chip as its compiled code says. The
bracket itself is made from the parts whenever it is asked for. A hash of the operator and its sizes
puts a row into one of two halves: what the parts reach where they stand in line was fitted to one.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from kernels.figures import store
from kernels.figures.schema import KEY_COLUMNS, NOTHING, Named, Row
from kernels.machines.checks import one_of
from kernels.machines.gpu.estimate import IN_LINE, LAUNCH, Parts
from validation.comparisons import DIGITS, FIT, TEST

__all__ = ["Bracketed", "Held", "fitted", "held", "lines", "read", "summary"]
FILE = "gpu_validation.csv"
INSIDE, WIDE = 0.8, 2.5  # the bars: the share of times inside, and the middle width
JIT, OURS = "jit", "ours"  # the implementations of what was timed for this book
# What is reported together: operator and implementation, and who wrote the kernels.
SORTS = {
    "attention, Pallas through Triton": ("dot_product_attention", "pallas_triton", "pallas"),
    "attention, Mosaic GPU": ("dot_product_attention", "pallas_mosaic_gpu", "pallas"),
    "attention, XLA": ("dot_product_attention", "xla", "xla"),
    "gated linear unit, Pallas through Triton": ("gated_linear_unit", "pallas_triton", "pallas"),
    "gated linear unit, XLA": ("gated_linear_unit", "xla", "xla"),
    "attention in chunks, XLA": ("dot_product_attention", "xla_chunked", "xla"),
    "cross-entropy, XLA": ("linear_cross_entropy", "xla", "xla"),
    "cross-entropy in chunks, XLA": ("linear_cross_entropy", "xla_chunked", "xla"),
    "normalisation, Pallas through Triton": ("normalization", "pallas_triton", "pallas"),
    "normalisation, XLA": ("normalization", "xla", "xla"),
    "float32 product, CUDA C++": ("sgemm", "cuda", "cuda"),
    "product on Hopper, after fast.cu": ("matmul", "fast.cu", "pallas"),
    "sum, after fast.cu": ("sum", "fast.cu", "xla"),
    "product on Blackwell, Mosaic GPU": ("matmul", "mosaic_gpu", "pallas"),
    "of any kind, XLA, timed for this book": ("", JIT, "xla"),
    "our kernels, Mosaic GPU, timed for this book": ("", OURS, "pallas"),
}
# All of their rows test the brackets: some are too few for a half to be fitted to, and those timed
# for this book came last.
TESTS = (
    "float32 product, CUDA C++",
    "product on Hopper, after fast.cu",
    "sum, after fast.cu",
    "product on Blackwell, Mosaic GPU",
    "of any kind, XLA, timed for this book",
    "our kernels, Mosaic GPU, timed for this book",
)


@dataclass(frozen=True, kw_only=True)
class Bracketed(Row):
    """A published time on a GPU, and what the program is made of there.

    Args:
        published_ms: what was measured.
        memory_ms, products_ms, issue_ms, accesses_ms, cached_ms: as
            kernels.machines.gpu.estimate.Parts has them.
        kernels: how many the program launches, libraries' among them.
        registers, spills: of the Pallas kernel with the longest code.
        kind, terms: as kernels.machines.gpu.estimate.GpuEstimate has them, the terms in seconds;
            "" and none where there is no figure.
        versions, date: of the compiler, and when the parts were read.
        source: who published the time.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *(*KEY_COLUMNS, "half", "published_ms", "memory_ms", "products_ms", "issue_ms"),
        *("accesses_ms", "cached_ms", "kernels", "registers", "spills", "kind", "terms"),
        *("versions", "date", "source"),
    )
    DIGITS: ClassVar[int | None] = DIGITS

    published_ms: float
    memory_ms: float
    products_ms: float = 0.0
    issue_ms: float = 0.0
    accesses_ms: float = 0.0
    cached_ms: float = 0.0
    kernels: int = 1
    registers: int = 0
    spills: int = 0
    kind: str = ""
    terms: Named = NOTHING
    versions: str = ""
    date: str = ""
    source: str

    @property
    def sort(self) -> str:
        """One of SORTS."""
        known = {(operator, writer): name for name, (operator, writer, _) in SORTS.items()}
        writer = self.implementation
        return known.get((self.operator, writer)) or known["", writer]

    @property
    def tests(self) -> bool:
        """Whether nothing was fitted to it."""
        return self.half == TEST or self.sort in TESTS

    @property
    def parts(self) -> Parts:
        """In seconds."""
        names = (part.name for part in fields(Parts))
        return Parts(**{name: getattr(self, f"{name}_ms") / 1e3 for name in names})

    @property
    def bracket_ms(self) -> tuple[float, float]:
        """The least and the most."""
        low, high = self.parts.bracket(SORTS[self.sort][2], self.kernels)
        return low * 1e3, high * 1e3

    @property
    def width(self) -> float:
        """The most over the least."""
        low, high = self.bracket_ms
        return high / low if low else math.inf

    @property
    def inside(self) -> bool:
        """Whether what was measured lies in the bracket."""
        low, high = self.bracket_ms
        return low <= self.published_ms <= high


def read(file: Path | None = None) -> list[Bracketed]:
    """The rows; none where there is no file.

    Args:
        file: by default that of results/.

    Raises:
        ValueError: for other columns, and for a row that contradicts itself.
    """
    return store.read(file or FILE, Bracketed, missing_ok=True)


@dataclass(frozen=True)
class Held:
    """How good the brackets of some rows are.

    Args:
        rows: how many.
        inside: the share of measured times inside.
        width: the middle one, the most over the least.
        below, above: how many measured times lie on either side.
    """

    rows: int
    inside: float
    width: float
    below: int
    above: int

    @property
    def reached(self) -> bool:
        """Whether both bars are reached."""
        return self.inside >= INSIDE and self.width <= WIDE


def held(rows: Sequence[Bracketed]) -> Held:
    """How good the brackets are.

    Args:
        rows: one or more.
    """
    return Held(
        rows=len(rows),
        inside=sum(row.inside for row in rows) / len(rows),
        width=statistics.median(row.width for row in rows),
        below=sum(row.published_ms < row.bracket_ms[0] for row in rows),
        above=sum(row.published_ms > row.bracket_ms[1] for row in rows),
    )


def fitted(rows: Iterable[Bracketed], who: str) -> float:
    """What the parts reach in line, by the times of the fitting half.

    At least seven in eight of its times lie below the most, and all of them where the middle width
    stays within the bar.

    Args:
        rows: of any kind; those of the fitting half and of `who` count, forwards and
            without a loop.
        who: one of IN_LINE.
    """
    one_of("who", who, IN_LINE)
    known = [
        (row, row.parts.line)
        for row in rows
        if row.half == FIT and SORTS[row.sort][2] == who and row.sort not in TESTS
        if row.pass_ == "forward" and not row.cached_ms
    ]
    shares = sorted(line * 1e3 / row.published_ms for row, line in known)
    eighth = len(shares) // 8
    for share in shares[:eighth]:
        widths = [
            (row.kernels * LAUNCH + line / share) / row.parts.bracket(who)[0] for row, line in known
        ]
        if statistics.median(widths) <= WIDE:
            return share
    return shares[eighth]


TITLES = ("program", "half", "rows", "inside", "below, above", "middle width", "the bar")


def lines(rows: Sequence[Bracketed]) -> list[tuple[str, ...]]:
    """The share of measured times inside their brackets, a line for each sort and half.

    Args:
        rows: as `read` gives them.

    Returns:
        Cells for each of TITLES.
    """
    table: list[tuple[str, ...]] = []
    for sort in SORTS:
        for part in (TEST,) if sort in TESTS else (FIT, TEST):
            some = [r for r in rows if r.sort == sort and (sort in TESTS or r.half == part)]
            if some:
                kept = held(some)
                bar = ("reached" if kept.reached else "missed") if part == TEST else "–"
                outside = f"{kept.below}, {kept.above}"
                figures = str(kept.rows), f"{kept.inside:.0%}", outside, f"{kept.width:.2f}"
                table.append((sort, part, *figures, bar))
    return table


def summary(rows: Sequence[Bracketed]) -> str:
    """How good the brackets are together, in words.

    Args:
        rows: as `read` gives them.
    """
    kept = held([row for row in rows if row.tests])
    missed = [line for line in lines(rows) if line[-1] == "missed"]
    where = "; ".join(f"{line[0]} ({line[3]} inside, {line[5]} wide)" for line in missed)
    slow = Counter(
        row.sort.partition(", ")[2]
        for row in rows
        if row.sort.startswith("attention") and row.published_ms > row.bracket_ms[1]
    )
    counted = ", ".join(f"{who}: {count}" for who, count in sorted(slow.items()))
    return (
        f"Of the {kept.rows} times of the test half, {kept.inside:.0%} lie inside their "
        f"bracket, whose middle width is a factor of {kept.width:.2f}. The bar is {INSIDE:.0%} "
        f"inside and a middle width of {WIDE:g} at most"
        + (f"; it is missed by {where}." if where else ", for every sort of program.")
        + (f" Of the attention kernels, so many lie above it ({counted})." if counted else "")
    )
