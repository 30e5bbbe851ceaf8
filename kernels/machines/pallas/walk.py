"""Run the scalar code of a kernel, and count what it does: copies by hand, products, rounds.

A kernel's scalars decide what it moves: which block, how many rounds, whether at all. They follow
from the program ids, from the values that are prefetched into scalar memory, and from each other;
vectors are not computed here. What no value is known for is `Unknown`, and says of which operand
it comes; a branch or a loop that asks for it makes the count a range.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas, jax_refs, jaxprs

STEPS = 2_000_000  # equations that are run of one kernel; of more programs or rounds, some are run
ROUNDS = 1 << 20  # of one loop, after which it is taken to have no end
HBM = ("hbm", "any")
TIRED = "more rounds than are counted"  # what a count depends on that was given up
SMALL = 1 << 20  # elements of scalar memory that are kept track of


Block = tuple[np.ndarray, tuple[int, ...]]


class EndlessLoop(ValueError):
    """A kernel's loop that its own scalars never end."""


@dataclass(frozen=True)
class Unknown:
    """A value that only the run knows.

    Args:
        names: of the operands that it comes from.
    """

    names: frozenset[str] = frozenset()


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Walk:
    """What a kernel does over its grid, as its scalar code tells.

    Each count is the most where a condition on data decides, and an unknown loop runs once.

    Args:
        moved: operand's number → bytes copied by hand from or to it in HBM; −1 of scratch.
        least_moved: the same at least.
        copies: how many of them.
        flops: dtype → operations of matrix products.
        least_flops: the same at least.
        rounds: a loop that its scalars end, in words → how often its body runs in all.
        lengths: such a loop → equations in its body, those of loops inside it left out.
        depends: operands whose values would tell what is not known.
        by_data: the loops whose length is data that is not given, in words.
        untold: whether one of them has no counter whose limit could be told to a profile.
        open: whether a loop of unknown length is among it, so that there is no most.
        read: of a kernel that reads given scalars or branches on data, id of an equation → for
            each program that was run what a read of theirs gave, which branch was taken (the
            longest where it is not known), or how far a loop counted.
        programs: how many were run, of how many; the counts are those of all.
        cut: of the last loop that was too long to be run whole, how many rounds were run, and of
            how many; the counts are those of all.
    """

    moved: Mapping[int, float]
    least_moved: Mapping[int, float]
    copies: float
    flops: Mapping[str, float]
    least_flops: Mapping[str, float]
    rounds: Mapping[str, float]
    depends: tuple[str, ...] = ()
    by_data: tuple[str, ...] = ()
    untold: bool = False
    open: bool = False
    read: Mapping[int, Mapping[int, float]] = field(default_factory=dict, repr=False)
    programs: tuple[int, int] = (1, 1)
    lengths: Mapping[str, int] = field(default_factory=dict, repr=False)
    cut: tuple[int, int] | None = None


@dataclass
class Ref:
    """Memory that a kernel sees.

    Args:
        number: among the kernel's operands, −1 of scratch.
        memory: such as "vmem".
        names: what its contents come from.
        cells: its scalars, where they are kept track of.
        given: whether those come from outside.
    """

    number: int
    memory: str
    names: frozenset[str]
    cells: np.ndarray | None = None
    given: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """An equation, taken apart once: a grid runs it a million times.

    Args:
        equation, name: which it is, and its operation.
        handler: what runs it; None for a plain operation.
        called: whether it runs another jaxpr.
        taken: variable and None, or None and the literal, of each thing that it reads.
        given: the variables of its results.
        scalar: whether it gives a single scalar.
    """

    equation: Any
    name: str
    handler: Callable[[_Walker, Any, list[Any]], list[Any]] | None
    called: bool
    taken: list[tuple[Any, Any]]
    given: list[Any]
    scalar: bool

    @classmethod
    def of(cls, equation: Any) -> _Step:
        """The parts of an equation."""
        name, given = jaxprs.operation(equation), jaxprs.outputs(equation)
        return cls(
            equation,
            name,
            _HANDLERS.get(name),
            name in jaxprs.CALLS,
            [_source(variable) for variable in jaxprs.inputs(equation)],
            given,
            len(given) == 1 and jaxprs.shape(given[0]) == (),
        )


class _Tired(Exception):
    """More equations than are run of one kernel."""


def walk(
    equation: Any,
    grid: tuple[int, ...],
    operands: Sequence[Ref],
    starts: Mapping[int, Block] | None = None,
    depends: Iterable[str] = (),
    trips: Mapping[str, int] | None = None,
) -> Walk:
    """Run the scalar code of a pallas_call.

    Args:
        equation: The pallas_call.
        grid: Programs in each dimension; 1 in one that is not known.
        operands: What the kernel takes before its scratch, the prefetched scalars first.
        starts: Of operands in scalar memory whose values are known, number → where each program's
            block begins, int [programs, rank], and its sizes, squeezed dimensions as 1.
        depends: What the grid itself depends on.
        trips: "FILE:LINE" of a loop, the name of its kernel, or "" → how often it runs where that
            is data.

    Returns:
        The counts.

    Raises:
        EndlessLoop: For a loop that its own scalars never end.
    """
    known = frozenset(depends)
    return _Walker(equation, grid, operands, starts or {}, known, trips or {}).run()


def worth_it(equation: Any) -> bool:
    """Whether a kernel's scalar code decides by more than its program ids: it copies by hand, loops
    to a limit that it computes, or branches on data."""
    inside = list(jaxprs.equations(jax_pallas.kernel(equation)))
    names = {jaxprs.operation(each) for each in inside}
    if names & {"dma_start", "while"}:
        return True
    return "cond" in names and any(map(_reads_a_scalar, inside))


def _reads_a_scalar(equation: Any) -> bool:
    """Whether an equation takes one scalar out of an array."""
    given = jaxprs.outputs(equation)
    scalar = len(given) == 1 and jaxprs.shape(given[0]) == ()
    wide = any(jax_refs.is_ref(v) or jaxprs.shape(v) for v in jaxprs.inputs(equation))
    return scalar and wide and jaxprs.operation(equation) not in ("cond", "while", "scan")


class _Walker:
    def __init__(
        self,
        equation: Any,
        grid: tuple[int, ...],
        operands: Sequence[Ref],
        starts: Mapping[int, Block],
        depends: frozenset[str],
        trips: Mapping[str, int],
    ) -> None:
        self.kernel = jax_pallas.kernel(equation)
        self.name = jax_pallas.name(equation)
        self.grid, self.starts = grid, starts
        self.axes = jax_pallas.own_axes(equation)
        # The kernel may write to them, what is not known too.
        self.operands = [
            each if each.cells is None else replace(each, cells=each.cells.astype(object))
            for each in operands
        ]
        self.depends = set(depends)
        self.open = bool(depends)
        self.trips = trips
        self.by_data: dict[str, None] = {}
        self.untold = False
        self.count: Counter[Any] = Counter()  # the most, an unknown loop counting once
        self.slack: Counter[Any] = Counter()  # how much less it may be
        self.found: dict[int, dict[int, list[float]]] = {}
        self.reads = False  # whether a scalar that is given was read
        self.steps = 0
        self.stores = 0  # to scalars that are kept track of
        self.sure = True  # False inside a branch that may not be taken
        self.looping = 0  # loops around what is run
        self.cut: tuple[int, int] | None = None
        self.program = 0
        self.ids: tuple[int, ...] = ()
        # What is read off the program, by the id of an equation, a jaxpr or a variable of it.
        self.blocks: dict[int, tuple[list[_Step], list[tuple[Any, Any]]]] = {}
        self.kinds: dict[int, tuple[str, int]] = {}
        self.parts: dict[int, Any] = {}
        self.loops: dict[int, str] = {}
        self.lengths: dict[int, int] = {}

    def run(self) -> Walk:
        count = math.prod(self.grid)
        scratch = [self._scratch(v) for v in jaxprs.inputs(self.kernel)[len(self.operands) :]]
        stateful = any(each.cells is not None for each in scratch)
        places: Iterable[int] = range(count)
        done = 0
        try:
            for place in places:
                self._program(place, scratch)
                done += 1
                if done == 4 and not stateful and self.steps * count / done > STEPS:
                    most = max(int(STEPS * done / self.steps) - done, 1)
                    spread = np.unique(np.linspace(done, count - 1, most).astype(int))
                    for place in map(int, spread):
                        self._program(place, scratch)
                        done += 1
                    break
        except _Tired:
            if not done:
                done, self.open = 1, True
                self.depends.add(TIRED)
        factor = count / max(done, 1)
        least = {key: self.count[key] - self.slack[key] for key in self.count}
        return Walk(
            moved=self._kind(self.count, "moved", factor),
            least_moved=self._kind(least, "moved", factor),
            copies=self.count["copies", ""] * factor,
            flops=self._kind(self.count, "flops", factor),
            least_flops=self._kind(least, "flops", factor),
            rounds=self._kind(self.count, "rounds", factor),
            depends=tuple(sorted(self.depends)),
            by_data=tuple(self.by_data),
            untold=self.untold,
            open=self.open,
            read={
                site: {place: _mean(values) for place, values in by_place.items()}
                for site, by_place in self.found.items()
                if self.reads
            },
            programs=(done, count),
            cut=self.cut,
            lengths={self.loops[number]: length for number, length in self.lengths.items()},
        )

    def _kind(self, counts: Mapping[Any, float], kind: str, factor: float) -> dict[Any, float]:
        return {key: value * factor for (of, key), value in counts.items() if of == kind}

    def _scratch(self, variable: Any) -> Ref:
        shape, cells = jax_refs.scalars(variable), None
        if shape is not None and math.prod(shape) <= SMALL:
            cells = np.full(shape, Unknown(), object)
        return Ref(-1, jax_refs.memory(variable), frozenset(), cells)

    def _program(self, place: int, scratch: list[Ref]) -> None:
        self.program = place
        self.ids = tuple(int(i) for i in np.unravel_index(place, self.grid)) if self.grid else ()
        operands = list(self.operands)
        for number, (starts, sizes) in self.starts.items():
            ref = operands[number]
            if ref.cells is None:
                continue
            # A squeezed dimension has no place in the kernel's ref; a clipped block is smaller.
            shape = jaxprs.shape(jaxprs.inputs(self.kernel)[number])
            part = tuple(slice(int(f), int(f) + size) for f, size in zip(starts[place], sizes))
            cells = ref.cells[part]
            held = cells.reshape(shape) if cells.size == math.prod(shape) else None
            operands[number] = replace(ref, cells=held)
        self._jaxpr(self.kernel, [], [*operands, *scratch])

    # Below, an environment maps each variable of one jaxpr to a Python scalar, Unknown or Ref.

    def _jaxpr(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        inner = jaxprs.opened(jaxpr)
        outside, held = jaxprs.constants(jaxpr)
        env: dict[Any, Any] = dict(zip(outside, constants or map(_scalar, held)))
        env.update(zip(jaxprs.inputs(inner), inputs))
        if id(inner) not in self.blocks:
            self.blocks[id(inner)] = (
                [_Step.of(each) for each in jaxprs.own_equations(inner)],
                [_source(variable) for variable in jaxprs.outputs(inner)],
            )
        steps, results = self.blocks[id(inner)]
        self.steps += len(steps)
        if self.steps > STEPS * 1.5:
            raise _Tired
        for step in steps:
            values = _values(step.taken, env)
            if step.handler is not None:
                found = step.handler(self, step.equation, values)
            elif step.called:
                found = self._jaxpr(jaxprs.called_closed(step.equation), [], values)
            elif step.scalar:
                found = [self._scalar_result(step.equation, step.name, values, step.given[0])]
            else:
                found = [_joined(values)] * len(step.given)
            env.update(zip(step.given, found))
        return _values(results, env)

    def _wrapped(self, value: Any, variable: Any) -> Any:
        """A result as its dtype holds it."""
        kind = self.kinds.get(id(variable))
        if kind is None:
            kind = self.kinds[id(variable)] = jaxprs.kind(variable)
        return _wrapped(value, *kind)

    def _part(self, each: Any, read: Callable[[Any], Any]) -> Any:
        """What an equation touches, read off it once."""
        if id(each) not in self.parts:
            self.parts[id(each)] = read(each)
        return self.parts[id(each)]

    def _scalar_result(self, each: Any, name: str, values: list[Any], out: Any) -> Any:
        function = SCALARS.get(name)
        if any(isinstance(v, (Unknown, Ref)) for v in values):
            short = _SHORT.get(name)
            found = short(values) if short else None
            return _joined(values) if found is None else found
        if function is None:
            if not values or any(map(jaxprs.shape, jaxprs.inputs(each))):
                return Unknown()
            found = jaxprs.evaluate(each, [np.asarray(v) for v in values])
            return Unknown() if found is None else _scalar(np.reshape(found, -1)[0])
        try:
            return self._wrapped(function(*values), out)
        except (ArithmeticError, ValueError):
            return Unknown()

    def _program_id(self, each: Any, values: list[Any]) -> list[Any]:
        return [self.ids[self.axes[jaxprs.grid_axis(each)]]]

    def _num_programs(self, each: Any, values: list[Any]) -> list[Any]:
        return [self.grid[self.axes[jaxprs.grid_axis(each)]]]

    def _convert(self, each: Any, values: list[Any]) -> list[Any]:
        [value], [out] = values, jaxprs.outputs(each)
        if isinstance(value, Unknown) or jaxprs.shape(out):
            return [_joined(values)]
        kind, _ = jaxprs.kind(out)
        if kind == "b":
            return [bool(value)]
        return [self._wrapped(int(value), out) if kind in "iu" else float(value)]

    def _get(self, each: Any, values: list[Any]) -> list[Any]:
        part, _ = self._part(each, jax_refs.access)
        ref = values[0]
        cells = _select(part, ref, values)
        if isinstance(cells, (np.ndarray, Unknown)):
            return [Unknown(_names(values))]
        value = _scalar(cells)
        if ref.given and not isinstance(value, Unknown):
            self.reads = True
            self._note(each, value)
        return [value]

    def _note(self, each: Any, value: float) -> None:
        """Remember what an equation got in this program."""
        self.found.setdefault(id(each), {}).setdefault(self.program, []).append(value)

    def _store(self, each: Any, values: list[Any]) -> list[Any]:
        part, written = self._part(each, jax_refs.access)
        ref = values[0]
        old: Any = Unknown(_names(values[:1]))
        if isinstance(ref, Ref) and ref.cells is not None:
            assert written is not None
            self.stores += 1
            value = values[written.number]
            index = _indices(part, values)
            known = jaxprs.operation(each) == "swap" and self.sure
            if not known or isinstance(value, (Ref, Unknown)):
                value = Unknown(_names([value]) | frozenset(self.depends if not self.sure else ()))
            if index is None or len(index) > 1:
                ref.cells.fill(Unknown(_names(values)))
            else:
                place = index[0] if index else ()
                found = ref.cells[place]
                old = found if not isinstance(found, np.ndarray) else old
                # An object array would take the fields of a tuple apart, not those of Unknown.
                ref.cells[place] = value
        return [old] * len(jaxprs.outputs(each))

    def _poison(self, each: Any, values: list[Any]) -> list[Any]:
        for ref in values:
            if isinstance(ref, Ref) and ref.cells is not None:
                self.stores += 1
                ref.cells.fill(Unknown(_names(values)))
        return [Unknown(_names(values))] * len(jaxprs.outputs(each))

    def _copy(self, each: Any, values: list[Any]) -> list[Any]:
        found = self._part(each, jax_refs.copy)
        size = _bytes(found.source, values)
        if isinstance(size, Unknown):
            self.depends |= size.names
            least, size = 0, _most_bytes(found.source)
            self.slack["copies", ""] += 1
        else:
            least = size
        self.count["copies", ""] += 1
        for part in (found.source, found.target):
            ref = values[part.ref.number]
            if isinstance(ref, Ref) and ref.memory in HBM:
                self.count["moved", ref.number] += size
                self.slack["moved", ref.number] += size - least
        target = values[found.target.ref.number]
        if isinstance(target, Ref) and target.cells is not None:
            target.cells.fill(Unknown(_names(values)))
        return []

    def _dot(self, each: Any, values: list[Any]) -> list[Any]:
        [out] = jaxprs.outputs(each)
        products = math.prod(jaxprs.shape(out)) * math.prod(jaxprs.contracted(each))
        self.count["flops", jaxprs.dtype(jaxprs.inputs(each)[0])] += 2 * products
        return [_joined(values)]

    def _cond(self, each: Any, values: list[Any]) -> list[Any]:
        index, *rest = values
        branches = jaxprs.branches(each)
        if not isinstance(index, (Unknown, Ref)):
            chosen = min(max(int(index), 0), len(branches) - 1)
            self._note(each, chosen)
            return self._jaxpr(branches[chosen], [], rest)
        self.depends |= index.names
        self.reads = True  # a profile shall take the longest branch too
        self._note(each, max(range(len(branches)), key=lambda i: _length(branches[i])))
        results, counts = [], []
        for branch in branches:
            found, count, slack = self._unsure(branch, rest)
            results.append(found)
            counts.append((count, slack))
        for key in {key for count, _ in counts for key in count}:
            most = max(count[key] for count, _ in counts)
            least = min(count[key] - slack[key] for count, slack in counts)
            self.count[key] += most
            self.slack[key] += most - least
        return [
            same[0] if all(_same(same[0], s) for s in same) else Unknown(_names([index, *same]))
            for same in zip(*results)
        ]

    def _unsure(
        self, jaxpr: Any, values: Sequence[Any], constants: Sequence[Any] = ()
    ) -> tuple[list[Any], Counter, Counter]:
        """What a jaxpr gives that may not run, with its own counts, which are not added."""
        outer = self.count, self.slack, self.sure
        self.count, self.slack, self.sure = Counter(), Counter(), False
        try:
            return self._jaxpr(jaxpr, constants, values), self.count, self.slack
        finally:
            self.count, self.slack, self.sure = outer

    def _while(self, each: Any, values: list[Any]) -> list[Any]:
        loop = jaxprs.while_loop(each)
        condition, body = loop.condition, loop.body
        first = loop.of_condition + loop.of_body
        of_condition, of_body = values[: loop.of_condition], values[loop.of_condition : first]
        carry = values[first:]
        place = _place(each, self.name)
        limit = jaxprs.limit(each)
        end: Any = Unknown() if limit is None else values[limit]
        if not isinstance(end, Unknown):
            self._note(each, end)
        start = carry[0] if carry else None
        enough = max(STEPS, self.steps + STEPS // 16)
        outer = Counter(self.count), Counter(self.slack)
        for done in range(ROUNDS):
            if done and self.steps > enough and not self.looping:
                # Of a loop that counts up one by one, the first rounds stand for the others.
                now = carry[0] if carry else None
                length = end - start if isinstance(start, int) and isinstance(end, int) else 0
                if done < length and now == end - length + done:
                    self.cut = done, length
                    self._again(outer, self.cut[1] / done)
                    return [v if isinstance(v, Ref) else Unknown() for v in carry]
            [more] = self._jaxpr(condition, [], [*of_condition, *carry])
            if isinstance(more, Unknown):
                return self._open_loop(each, place, more, body, of_body, carry)
            if not more:
                return carry
            self.count["rounds", self._loop(each, place)] += 1
            before = self.stores
            self.looping += 1
            after = self._jaxpr(body, [], [*of_body, *carry])
            self.looping -= 1
            if self.stores == before and all(map(_alike, carry, after)):
                break  # the next round is this one again
            carry = after
        raise EndlessLoop(f"{place} has no end: its condition holds round after round")

    def _again(self, before: Sequence[Counter], times: float) -> None:
        """Take what was counted since so many times."""
        for now, old in zip((self.count, self.slack), before, strict=True):
            for key in now:
                now[key] += (now[key] - old[key]) * (times - 1)  # type: ignore[assignment]

    def _loop(self, each: Any, place: str) -> str:
        """Which loop this is: two that stand at one place, such as a library's, are told apart."""
        if id(each) not in self.loops:
            of = sum(other.startswith(place) for other in self.loops.values())
            self.loops[id(each)] = f"{place}, number {of + 1}" if of else place
            self.lengths[id(each)] = _own_length(jaxprs.loop(each)[0])
        return self.loops[id(each)]

    def _open_loop(
        self,
        each: Any,
        place: str,
        more: Unknown,
        body: Any,
        constants: list[Any],
        carry: list[Any],
    ) -> list[Any]:
        """A loop whose length is not known counts as often as trips say; else once, and may count
        not at all."""
        self.by_data[place] = None
        given = given_trips(self.trips, self.name, _line(each))
        names = more.names if given is None else frozenset()
        self.depends |= names
        self.open |= given is None
        unsure = [Unknown(names | _names([v])) if not isinstance(v, Ref) else v for v in carry]
        if jaxprs.limit(each) is None:
            self.untold = True
        elif given is not None:
            # The counter is the first of what is carried: a profile counts from where it starts.
            start = carry[0] if carry and isinstance(carry[0], int) else 0
            self.reads = True
            self._note(each, start + given)
        found, count, slack = self._unsure(body, [*constants, *unsure])
        times = 1 if given is None else given
        self.count["rounds", self._loop(each, place)] += times
        for key, value in count.items():
            self.count[key] += value * times
            self.slack[key] += value if given is None else slack[key] * times
        return [Unknown(names | _names([v])) for v in found]

    def _scan(self, each: Any, values: list[Any]) -> list[Any]:
        parts = jaxprs.scan(each)
        body, length, carried = parts.body, parts.length, parts.carried
        fixed, carry = values[: parts.fixed], values[parts.fixed : parts.fixed + carried]
        rows = [_row(v) for v in values[parts.fixed + carried :]]
        size = _length(body)
        run = length
        if length * size > STEPS / 4:  # its first rounds stand for the others
            run = max(int(STEPS / 4 / size), 1)
        outer, slack = self.count, self.slack
        self.count, self.slack = Counter(), Counter()
        try:
            for _ in range(run):
                results = self._jaxpr(body, [], [*fixed, *carry, *rows])
                carry = results[:carried]
        finally:
            for key, value in self.count.items():
                outer[key] += value * length / max(run, 1)  # type: ignore[assignment]
            for key, value in self.slack.items():
                slack[key] += value * length / max(run, 1)  # type: ignore[assignment]
            self.count, self.slack = outer, slack
        if run < length:
            carry = [v if isinstance(v, Ref) else Unknown() for v in carry]
        stacked = len(jaxprs.outputs(each)) - carried
        return [*carry, *[Unknown()] * stacked]

    def _scoped(self, each: Any, values: list[Any]) -> list[Any]:
        inner = jax_refs.scoped(each)
        return self._jaxpr(inner, values, [self._scratch(v) for v in jaxprs.inputs(inner)])


_HANDLERS: dict[str, Callable[[_Walker, Any, list[Any]], list[Any]]] = {
    "program_id": _Walker._program_id,
    "num_programs": _Walker._num_programs,
    "convert_element_type": _Walker._convert,
    "get": _Walker._get,
    "swap": _Walker._store,
    "addupdate": _Walker._store,
    "masked_load": _Walker._poison,
    "masked_swap": _Walker._poison,
    "dma_start": _Walker._copy,
    "dot_general": _Walker._dot,
    "cond": _Walker._cond,
    "while": _Walker._while,
    "scan": _Walker._scan,
    "run_scoped": _Walker._scoped,
}


def _clamp(low: Any, value: Any, high: Any) -> Any:
    return min(max(value, low), high)


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)  # XLA's rounds towards zero
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


def _remainder(a: Any, b: Any) -> Any:
    return a - b * _divide(a, b) if isinstance(a, int) else math.fmod(a, b)


def _not(a: Any) -> Any:
    return not a if isinstance(a, bool) else ~a


# What scalar operations give, of Python's own numbers.
SCALARS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "rem": _remainder,
    "neg": operator.neg,
    "sign": lambda a: (a > 0) - (a < 0),
    "abs": abs,
    "max": max,
    "min": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": _not,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "select_n": lambda which, *cases: cases[int(which)],
    "clamp": _clamp,
    "shift_left": lambda a, b: a << b,
    "shift_right_arithmetic": lambda a, b: a >> b,
    "floor": math.floor,
    "ceil": math.ceil,
    "pow": operator.pow,
    "copy": lambda a: a,
    "copy_p": lambda a: a,
    "reshape": lambda a: a,
    "squeeze": lambda a: a,
    "broadcast_in_dim": lambda a: a,
    "multiple_of": lambda a: a,
    "optimization_barrier": lambda a: a,
    "stop_gradient": lambda a: a,
}

# What is known although an operand is not.
_SHORT: dict[str, Callable[[list[Any]], Any]] = {
    "and": lambda v: False if any(each is False for each in v) else None,
    "or": lambda v: True if any(each is True for each in v) else None,
    "mul": lambda v: 0 if any(each == 0 and isinstance(each, int) for each in v) else None,
    "select_n": lambda v: (
        v[1 + int(v[0])]
        if not isinstance(v[0], (Unknown, Ref))
        else v[1]
        if all(_same(v[1], each) for each in v[2:])
        else None
    ),
}


def _wrapped(value: Any, kind: str, size: int) -> Any:
    """A result as a dtype of that kind and so many bits holds it."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if kind == "b":
        return bool(value)
    if kind not in ("i", "u"):
        return value
    if kind == "u":
        return value & ((1 << size) - 1)
    half = 1 << (size - 1)
    return value if -half <= value < half else (value + half) % (1 << size) - half


def _scalar(value: Any) -> Any:
    """A Python scalar of an array without dimensions; what has some is not known."""
    if isinstance(value, (Unknown, Ref, bool, int, float)):
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype == object:
        return Unknown()
    return array.item()


def _source(variable: Any) -> tuple[Any, Any]:
    """Where a value comes from: a variable and None, or None and the scalar of a literal."""
    literal = jaxprs.literal(variable)
    return (variable, None) if literal is None else (None, _scalar(literal))


def _values(sources: Iterable[tuple[Any, Any]], env: Mapping[Any, Any]) -> list[Any]:
    return [held if variable is None else env.get(variable, UNKNOWN) for variable, held in sources]


def _names(values: Iterable[Any]) -> frozenset[str]:
    """The operands that values come from."""
    found: frozenset[str] = frozenset()
    for each in values:
        if isinstance(each, (Unknown, Ref)):
            found |= each.names
    return found


def _joined(values: Sequence[Any]) -> Unknown:
    return Unknown(_names(values))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Ref) or isinstance(other, Ref):
        return one is other
    return not isinstance(one, Unknown) and not isinstance(other, Unknown) and one == other


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are the same as far as is known."""
    return _same(one, other) or (isinstance(one, Unknown) and isinstance(other, Unknown))


def _row(value: Any) -> Any:
    """One of the rows that a scan goes over, whose value is not looked at."""
    return value if isinstance(value, Ref) else Unknown(_names([value]))


def _length(jaxpr: Any) -> int:
    """Equations of a jaxpr, those inside it included."""
    return sum(1 for _ in jaxprs.equations(jaxpr))


def _own_length(jaxpr: Any) -> int:
    """Equations of a jaxpr, those inside it included but for those in its loops."""
    found = 0
    for each in jaxprs.own_equations(jaxpr):
        found += 1
        if jaxprs.operation(each) not in ("scan", "while"):
            found += sum(map(_own_length, jaxprs.inner_jaxprs(each)))
    return found


def _place(equation: Any, kernel: str) -> str:
    line = _line(equation)
    return f"the loop at {line} of {kernel}" if line else f"a loop of {kernel}"


def _line(equation: Any) -> str:
    """FILE:LINE of an equation, in the code that is not a library's; empty where there is none."""
    for file, line in jaxprs.frames(equation):
        if "site-packages" not in file and not file.startswith("<"):
            return f"{file.rpartition('/')[2]}:{line}"
    return ""


def given_trips(trips: Mapping[str, int], kernel: str, line: str = "") -> int | None:
    """How often a loop runs, or how many steps a grid has, as somebody says.

    Args:
        trips: FILE:LINE, the name of a kernel, or "" for all → that number.
        kernel: its name.
        line: FILE:LINE of the loop; empty for a grid.
    """
    return next((trips[key] for key in (line or kernel, kernel, "") if key in trips), None)


def _resolve(size: Any, values: Sequence[Any]) -> Any:
    if isinstance(size, jax_refs.OperandSlot):
        return values[size.number]
    return _scalar(size) if not isinstance(size, int) else size


def _indices(part: jax_refs.Part, values: Sequence[Any]) -> list[tuple[Any, ...]] | None:
    """NumPy's indices of a part, one after another; None where they are not known."""
    found = []
    for step in part.steps:
        if step is None:
            return None
        index: list[Any] = []
        for each in step:
            if isinstance(each, tuple):
                start, size, stride = (_resolve(e, values) for e in each)
                if isinstance(start, Unknown) or isinstance(size, Unknown):
                    return None
                index.append(slice(start, start + size * stride, stride))
            else:
                at = _resolve(each, values)
                if isinstance(at, (Unknown, Ref)):
                    return None
                index.append(int(at))
        found.append(tuple(index))
    return found


def _select(part: jax_refs.Part, ref: Any, values: Sequence[Any]) -> Any:
    """The scalars of a part of a ref; Unknown where they are not kept or it is not known which."""
    if not isinstance(ref, Ref) or ref.cells is None:
        return Unknown()
    indices = _indices(part, values)
    if indices is None:
        return Unknown()
    cells: Any = ref.cells
    try:
        for index in indices:
            cells = cells[index]
    except IndexError:
        return Unknown()
    return cells


def _bytes(part: jax_refs.Part, values: Sequence[Any]) -> Any:
    """Bytes of a part; Unknown where a size is data."""
    count = 1
    for size in part.sizes:
        found = _resolve(size, values)
        if isinstance(found, (Unknown, Ref)):
            return Unknown(_names([found]))
        count *= found
    return count * jaxprs.bits(part.dtype) // 8


def _most_bytes(part: jax_refs.Part) -> int:
    """Bytes of a part whose unknown sizes are as large as the ref's."""
    steps = [step for step in part.steps if step is not None]
    if not steps:
        return math.prod(part.shape) * jaxprs.bits(part.dtype) // 8
    sizes = [
        (each[1] if isinstance(each[1], int) else whole)
        for each, whole in zip(steps[-1], part.shape)
        if isinstance(each, tuple)
    ]
    return math.prod(sizes) * jaxprs.bits(part.dtype) // 8


def _mean(values: list[float]) -> float:
    """One value for those that a program reads: theirs if they agree, else about their mean."""
    mean = sum(values) / len(values)
    return values[0] if all(v == values[0] for v in values) else round(mean)
