"""Loops: the order in which iterations run, what they may not do to each other, and what of them is
left out.

A loop whose iterations are independent runs in any order, so one that reads what another wrote is
refused, or warned of where the order written is kept. Of a long loop the estimate runs a few
iterations, and the others are made from them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernels.machines.neuron.errors import place, refuse
from kernels.machines.neuron.memory import (
    SBUF,
    WRITTEN,
    Access,
    EngineInstruction,
    Picked,
    Room,
    View,
)


class Unsteady(Exception):
    """A run that leaves iterations out came to one that is not like those before it."""


# Of a loop that leaves iterations out: how many run at its start. Then come one in the middle and
# the last one, and those between are made from the two before them.
SAMPLED = 4
SHORT = SAMPLED + 3  # a loop of fewer iterations runs whole
SEVERAL = 64  # places of a tile that are compared with each other


class _Body(NamedTuple):
    """What one iteration of a loop does, and how that moves from one to the next: every number of a
    storage, and every bound of what is touched, by a constant step."""

    now: list[EngineInstruction]  # of an iteration
    steps: list[list[Any]]  # for each instruction, those of its accesses
    rooms: list[Room]  # of the storages that it makes

    @classmethod
    def of(
        cls,
        instructions: Sequence[EngineInstruction],
        rooms: Sequence[Room],
        starts: Sequence[tuple[int, int]],
    ) -> _Body | None:
        """From two iterations that begin at `starts`; None where they are not alike."""
        (one, room), (two, other), (end, last) = starts
        before, now = list(instructions[one:two]), list(instructions[two:end])
        fresh = [
            [storage._replace(label="") for storage in rooms[a:b]]
            for a, b in pairwise((room, other, last))
        ]
        if not now or len(before) != len(now) or fresh[0] != fresh[1]:
            return None
        # Alike but for what they touch.
        if any(
            old != new._replace(reads=old.reads, writes=old.writes)
            or [len(old.reads), len(old.writes)] != [len(new.reads), len(new.writes)]
            for old, new in zip(before, now)
        ):
            return None
        steps = [
            [*map(_step, (*old.reads, *old.writes), (*new.reads, *new.writes))]
            for old, new in zip(before, now)
        ]
        return (
            None if any(None in moved for moved in steps) else cls(now, steps, [*rooms[other:last]])
        )

    def instructions(self, ahead: int) -> list[EngineInstruction]:
        """Those of an iteration so many after the last one known."""
        later = []
        for one, steps in zip(self.now, self.steps):
            moved = [_moved(*pair, ahead) for pair in zip((*one.reads, *one.writes), steps)]
            reads = len(one.reads)
            later.append(one._replace(reads=tuple(moved[:reads]), writes=tuple(moved[reads:])))
        return later


def _flat(access: Access) -> list[int]:
    box = [bound for pair in access.box or () for bound in pair]
    return [access.storage, *access.partitions, *access.elements, *box]


def _step(one: Access, other: Access) -> list[int] | None:
    """How far each number of an access moves; None where the two have different forms."""
    a, b = _flat(one), _flat(other)
    if len(a) != len(b) or (one.box is None) != (other.box is None):
        return None
    return [y - x for x, y in zip(a, b)]


def _moved(access: Access, step: list[int], ahead: int) -> Access:
    """An access so many steps further on."""
    if not any(step):
        return access
    storage, *numbers = [x + ahead * by for x, by in zip(_flat(access), step)]
    pairs = list(zip(numbers[::2], numbers[1::2]))
    return access._replace(
        storage=storage,
        box=None if access.box is None else tuple(pairs[2:]),
        partitions=pairs[0],
        elements=pairs[1],
    )


@dataclass
class Sample:
    """Which loops of a run leave iterations out: all but those at the lines `whole`. `leaks` are
    lines of loops that a tile made in one of their iterations outlived, so that somebody may ask
    for those of all; `extrapolated` counts the instructions that never ran."""

    whole: set[str | None] = field(default_factory=set)
    leaks: set[str | None] = field(default_factory=set)
    extrapolated: int = 0


@dataclass
class NkiLoop:
    """One run of a loop whose iterations are independent, and who wrote what in it."""

    number: int
    line: str | None
    writes: dict[int, list[tuple[int, Access, str, str | None]]] = field(default_factory=dict)
    # Storage → what the iteration that runs has written to it, and its number.
    own: dict[int, tuple[int, list[Access]]] = field(default_factory=dict)

    def hides(self, access: Access, step: int) -> bool:
        """Whether the iteration has written all of this itself, at once or in parts."""
        known, own = self.own.get(access.storage, (step, []))
        if known != step or any(one.covers(access) for one in own):
            return known == step
        if access.box is None:
            return False
        left = np.ones([end - start for start, end in access.box], bool)
        for one in own:
            if one.box is not None and not one.comb:  # where it takes steps, it is larger
                bounds = zip(one.box, access.box)
                left[tuple([slice(max(0, a - c), max(0, b - c)) for (a, b), (c, _) in bounds])] = 0
        return not left.any()


class Contended(NamedTuple):
    """What two iterations of an independent loop wrote, the later one at a line."""

    place: Access
    loop: str | None
    one: int
    other: int
    line: str | None


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How long the two are the same."""
    differ = (at for at, (a, b) in enumerate(zip(one, other)) if a != b)
    return next(differ, min(len(one), len(other)))


class Loops:
    """The part of a run that knows of loops."""

    def __init__(self, order: int | None, sample: Sample | None, beta1: bool) -> None:
        self.order = order
        self.beta1 = beta1
        self.sample = sample
        self.rng = np.random.default_rng(order)
        self.instructions: list[EngineInstruction] = []
        self.rooms: list[Room] = []
        self.loops: list[tuple[NkiLoop, int]] = []  # that run, and their iterations
        self.iteration: tuple[tuple[int, int], ...] = ()
        self.started = 0
        self.turns_of_loops: list[tuple[int, int]] = []  # loops that run, and how often by now
        self.contended: dict[int, Contended] = {}  # storage → what depends on a loop's order
        self.unchanged: tuple[View, np.ndarray] | None = None  # by the last write in a loop
        self.lines: dict[int, str | None] = {}  # loop → where it stands
        self.steps: dict[int, int] = {}  # loop → its index, in the iteration that runs
        self.warned: set[str | None] = set()  # lines
        self.births: dict[int, tuple[tuple[int, int], ...]] = {}  # storage → iterations
        # What a compiler moves out of loops: storage → a number for what it holds; instruction →
        # iteration and that number; how many numbers there are.
        self.versions: dict[int, int] = {}
        self.results: dict[tuple[Any, ...], tuple[int, int]] = {}
        self.counted = 0

    def iterations(self, *bounds: int) -> Iterator[int]:
        """A loop whose iterations do not depend on each other, in this run's order. Seed 0 goes
        backwards; others draw an order that is not the written one."""
        written = list(range(*bounds))
        steps = written if self.order is None else written[::-1]
        while self.order and len(steps) > 1:
            self.rng.shuffle(steps)
            if steps != written:
                break
        return self._watched(steps, place())

    def _watched(self, steps: list[int], line: str | None) -> Iterator[int]:
        loop, before, depth = NkiLoop(self.started + 1, line), self.iteration, len(self.loops)
        try:
            for step in self._numbered(steps, line):
                del self.loops[depth:]  # an inner loop that was left early
                self.loops.append((loop, step))
                self.iteration = (*before, (loop.number, step))
                yield step
            self._compare_writes(loop)
        finally:
            del self.loops[depth:]
            self.iteration = before

    def dependent(self, *bounds: int) -> Iterator[int]:
        """A loop whose iterations depend on each other, and which a compiler keeps as a loop."""
        return self._numbered(range(*bounds), place())

    def _numbered(self, steps: Sequence[int], line: str | None) -> Iterator[int]:
        self.started += 1
        number, outer = self.started, len(self.turns_of_loops)
        self.lines[number] = line
        try:
            for turn, step in self._sampled(steps, line):
                del self.turns_of_loops[outer:]
                self.turns_of_loops.append((number, turn))
                self.steps[number] = step
                yield step
        finally:
            del self.turns_of_loops[outer:]

    def _sampled(self, steps: Sequence[int], line: str | None) -> Iterator[tuple[int, int]]:
        """The iterations that run, numbered: all, or some where the others are like them."""
        turns = list(enumerate(steps))
        sample = self.sample
        if sample is None or line in sample.whole or len(turns) < SHORT:
            yield from turns
            return
        starts = []  # of each iteration: instructions and storages before it
        for turn in turns[:SAMPLED]:
            starts.append((len(self.instructions), len(self.rooms)))
            yield turn
        starts.append((len(self.instructions), len(self.rooms)))
        body = _Body.of(self.instructions, self.rooms, starts[-3:])
        if body is None:
            yield from turns[SAMPLED:]
            return
        middle = (SAMPLED + len(turns)) // 2
        for number in range(SAMPLED, middle):
            self._make(body, number - SAMPLED + 1)
        first = len(self.instructions)
        yield turns[middle]
        if body.instructions(middle - SAMPLED + 1) != self.instructions[first:]:
            sample.whole.add(line)
            raise Unsteady
        for number in range(middle + 1, len(turns) - 1):
            self._make(body, number - SAMPLED + 1)
        yield turns[-1]

    def _make(self, body: _Body, ahead: int) -> None:
        """An iteration as those before it, so many after the last of them."""
        assert self.sample is not None
        self.rooms += body.rooms
        for number in range(len(self.rooms) - len(body.rooms), len(self.rooms)):
            self.births[number] = ()
        instructions = body.instructions(ahead)
        self.instructions += instructions
        self.sample.extrapolated += len(instructions)

    def _in_order(self, message: str, strict: bool) -> None:
        """What is right in the order written is warned of, once a line; where another order may be
        taken (`strict`), or is asked for, it is refused."""
        at = place()
        if strict or self.order is not None:
            refuse(message)
        if at not in self.warned:
            self.warned.add(at)
            words = f"{message}. Here, and in NKI 0.7, the order written is kept ({at})"
            warnings.warn(words, stacklevel=2)

    def _raced(self, view: View) -> bool:
        """Whether another iteration of an independent loop that runs has written to this."""
        number, access = view._storage.number, view._access()
        return any(
            other != step and written.meets(access)
            for loop, step in self._outside(view)
            for other, written, _, _ in loop.writes.get(number, ())
        )

    def _compare_writes(self, loop: NkiLoop) -> None:
        """At the end of an independent loop: what several iterations wrote, so that it depends on
        their order which one is left. Sums are added up in any order."""
        for number, writes in loop.writes.items():
            if self.rooms[number].buffer != SBUF:  # PSUM adds up, and HBM is written once
                continue
            by_place: dict[Access, tuple[int, str, str | None]] = {}
            for step, access, op, line in writes:
                first, how, _ = by_place.setdefault(access, (step, op, line))
                if first != step and not (op and op == how):
                    self.contended[number] = Contended(access, loop.line, first, step, line)
            places = list(by_place.items()) if len(by_place) <= SEVERAL else []
            for at, (access, (step, op, _)) in enumerate(places):
                for other, (later, how, line) in places[at + 1 :]:
                    if later != step and not (op and op == how) and access.meets(other):
                        self.contended[number] = Contended(other, loop.line, step, later, line)

    def _settle(self, name: str, reads: Sequence[View], writes: Sequence[View]) -> None:
        """Refuse to read what depends on the order of a loop that has ended."""
        for view in reads:
            clash = self.contended.get(view._storage.number)
            if clash is not None and clash.place.meets(view._access()):
                self._in_order(
                    f"{name} reads {view}, which iterations {clash.one} and {clash.other} of the "
                    f"nl.affine_range at {clash.loop} both wrote ({clash.line}): they may run in "
                    "any order, so it is open which is left; write nl.sequential_range, or range",
                    self.beta1,
                )
        for view in writes:
            clash = self.contended.get(view._storage.number)
            if clash is not None and view._access().covers(clash.place):
                del self.contended[view._storage.number]

    def _watch(self, name: str, op: str, reads: Sequence[View], writes: Sequence[View]) -> None:
        """Find an iteration of an independent loop that reads what another one wrote. op: what the
        instruction does to a tile that it both reads and writes. Sums are no dependence
        (nki.language.affine_range: associative reductions are not considered)."""
        for view in reads:
            sums = bool(op) and any(w._storage is view._storage for w in writes)
            if not sums:
                self._check_carried(name, view)
            for loop, step in self._outside(view):
                self._search(name, op if sums else "", view, loop, step)
        for view in writes:
            access, number = self._changed(view), view._storage.number
            for loop, step in self._outside(view):
                if loop.own.get(number, (None,))[0] != step:
                    loop.own[number] = (step, [])
                loop.own[number][1].append(view._access())
                if access is None:
                    continue
                known = loop.writes.setdefault(number, [])
                if not known or known[-1][:3] != (step, access, op):
                    known.append((step, access, op, place()))

    def _check_carried(self, name: str, view: View) -> None:
        """Refuse a tile that another iteration of an independent loop has made."""
        for (loop, step), (own, home) in zip(self.iteration, view._storage.born):
            if loop != own:
                return
            if step != home:
                line = next(known.line for known, _ in self.loops if known.number == loop)
                self._in_order(
                    f"{name}: iteration {step} of the nl.affine_range at {line} reads {view}, "
                    f"which iteration {home} made: its iterations may run in any order; write "
                    "nl.sequential_range, or range",
                    self.beta1,
                )

    def _outside(self, view: View) -> list[tuple[NkiLoop, int]]:
        """The independent loops that run and in whose iteration a tile was not made."""
        born = view._storage.born
        if born == self.iteration:
            return []
        return self.loops[_common(born, self.iteration) :]

    def _search(self, name: str, sums: str, view: View, loop: NkiLoop, step: int) -> None:
        known = loop.writes.get(view._storage.number, ())
        access = view._access()
        for other, written, how, line in known:
            if other == step or not written.meets(access) or (sums and how == sums):
                continue
            if not loop.hides(access, step):
                self._in_order(
                    f"{name}: iteration {step} of the nl.affine_range at {loop.line} reads what "
                    f"iteration {other} wrote into {view} ({line}): its iterations may run in any "
                    "order; write nl.sequential_range, or range",
                    self.beta1,
                )
            return

    def _numbers_before(self, dst: View, values: np.ndarray | None) -> np.ndarray | None:
        """What a tile holds before it is written again in a loop whose iterations are independent:
        a number that is replaced by itself depends on no order."""
        self.unchanged = None
        if not self.loops or values is None or isinstance(dst, Picked) or not dst._on_chip:
            return None
        if not self._outside(dst) or (isinstance(dst._states(), int) and dst._states() != WRITTEN):
            return None
        return np.array(dst._values())

    def _changed(self, view: View) -> Access | None:
        """What the last write to a tile changed, in a loop; None where it changed nothing."""
        access = view._access()
        if self.unchanged is None or self.unchanged[0] is not view:
            return access
        rows = np.flatnonzero(~self.unchanged[1])
        if not rows.size:
            return None
        first = access.partitions[0]
        partitions = (first + int(rows[0]), first + int(rows[-1]) + 1)
        box = access.box
        if box is not None and view._storage.par == 0:
            box = (partitions, *box[1:])
        return access._replace(partitions=partitions, box=box)

    def _find_leaks(self, operands: Sequence[View]) -> None:
        """Remember loops of which a tile is used in another iteration than its own, or later."""
        now = self.turns_of_loops
        assert self.sample is not None
        for view in operands:
            born = self.births[view._storage.number]
            left = born[_common(born, now) :]
            self.sample.leaks.update(self.lines[loop] for loop, _ in left)

    def _hoisted(
        self,
        name: str,
        dst: View,
        sources: Sequence[View],
        fresh: bool,
        detail: tuple[Any, ...] | None,
    ) -> bool:
        """Whether the iteration before made the same of the same, in the innermost loop."""
        self.counted += 1
        number, versions = self.counted, self.versions
        before = versions.get(dst._storage.number)
        versions[dst._storage.number] = number
        if detail is None or not fresh or before is not None or not self.turns_of_loops:
            return False
        loop, turn = self.turns_of_loops[-1]
        key = (
            loop,
            place(),
            name,
            detail,
            dst.shape,
            *[
                (versions.get(s._storage.number, -s._storage.number), *s._access()[2:])
                for s in sources
            ],
        )
        known = self.results.get(key)
        if known is not None and known[0] < turn:
            self.results[key] = (turn, known[1])
            versions[dst._storage.number] = known[1]
            return True
        self.results[key] = (turn, number)
        return False
