"""Where the time of a whole program goes: its estimate as records, one of each part."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kernels.figures.schema import Key, Named, Record, versions

__all__ = ["KINDS", "ProgramInParts", "part_records"]
KINDS = ("kernel", "matmul", "elementwise", "relayout")
QUANTITIES = {"time", "traffic", "own estimate"}  # of the whole


@dataclass(frozen=True)
class ProgramInParts:
    """What a program would take, by the compiler's own model, and its parts.

    Args:
        name: which of several forms of the program it is.
        key: what its records are of.
        records: of the program and of its parts. A part has a place, which the program names, and a
            kind of KINDS.
        estimate: of the compiled program; None where it was read from results/.
    """

    name: str
    key: Key
    records: tuple[Record, ...] = field(repr=False)
    estimate: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def recorded(cls, name: str, key: Key, known: Iterable[Record]) -> ProgramInParts | None:
        """The program of which these are records, among others; None where it is not whole."""
        own = tuple(record for record in known if record.key == key)
        whole = {record.quantity for record in own if not record.part}
        return cls(name, key, own) if whole == QUANTITIES else None

    @property
    def seconds(self) -> float:
        """Of the program."""
        return self._whole("time") / 1e3

    @property
    def hbm_bytes(self) -> int:
        """Between HBM and the chip."""
        return round(self._whole("traffic") * 1e9)

    @property
    def optimal_seconds(self) -> float:
        """XLA's own estimate."""
        return self._whole("own estimate") / 1e3

    @property
    def parts(self) -> set[tuple[str, str]]:
        """Place and kind of each."""
        return {(r.part["where"], r.part["what"]) for r in self.records if r.part}

    def spent(self, where: str = "", what: str = "") -> float:
        """Seconds of the parts in a place, of a kind, or both; of everything for neither."""
        return self._sum("time", where, what) / 1e3

    def moved(self, where: str = "", what: str = "") -> int:
        """Bytes of the same parts, between HBM and the chip."""
        return round(self._sum("traffic", where, what) * 1e9)

    def _whole(self, quantity: str) -> float:
        return next(r.value for r in self.records if r.quantity == quantity and not r.part)

    def _sum(self, quantity: str, where: str, what: str) -> float:
        return sum(
            r.value
            for r in self.records
            if r.part and r.quantity == quantity
            if where in ("", r.part["where"]) and what in ("", r.part["what"])
        )


def part_records(
    key: Key, estimate: Any, workload: str, place: Callable[[Any], str], *packages: str
) -> Iterator[Record]:
    """Of a program and of its parts.

    Args:
        key: what they are of.
        estimate: of the compiled program, which takes less than a second.
        workload: its name.
        place: of an operation.
        packages: whose versions count.
    """
    record = functools.partial(
        key.record, workload=workload, kind="estimated", versions=versions(*packages)
    )
    time = functools.partial(record, quantity="time", unit="ms")
    traffic = functools.partial(record, quantity="traffic", unit="GB")
    ms = round(estimate.seconds * 1e3, 6)
    yield time(value=ms, bound=estimate.bound, method=estimate.method)
    summed = "bytes between HBM and the chip, summed over ops"
    yield traffic(value=round(estimate.hbm_bytes / 1e9, 6), method=summed)
    # Without the −1 that each call counts of which XLA knows nothing.
    ms = round(estimate.compiled.cost["optimal_seconds"] % 1 * 1e3, 6)
    yield record(quantity="own estimate", value=ms, method="XLA's optimal_seconds")
    cycles: Counter = Counter()
    moved: Counter = Counter()
    for op in estimate.ops:
        where = place(op), op.kind if op.kind in KINDS else "elementwise"
        cycles[where] += op.cycles
        moved[where] += op.hbm_bytes
    clock = estimate.cycles / estimate.seconds
    for where, what in sorted(cycles):
        part = {"part": Named({"where": where, "what": what}), "method": "sum over ops"}
        yield time(value=round(cycles[where, what] / clock * 1e3, 6), **part)
        yield traffic(value=round(moved[where, what] / 1e9, 6), **part)
