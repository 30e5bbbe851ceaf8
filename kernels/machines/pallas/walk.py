"""Run the scalar code of a kernel, and count what it does: copies by hand, products, rounds.

A kernel's scalars decide what it moves: which block, how many rounds, whether at all. They follow
from the program ids, from the values that are prefetched into scalar memory, and from each other;
vectors are not computed here. What no value is known for is `Unknown`, and says of which operand
it comes; a branch or a loop that asks for it makes the count a range.

An example: a kernel on a grid of 4 loops `counts[program_id(0)]` times, and copies a row of 512
bytes in each round. With counts = [3, 0, 2, 5] as prefetched scalars, program 0 reads 3, its loop
counts 3 rounds and 3 copies; over the grid moved is 10 · 512, least_moved the same, and depends is
empty. Without them the read gives Unknown({"counts"}): each program's loop counts once at most and
not at all at least, so moved is 4 · 512, least_moved 0, depends ("counts",), and open is True.

Over 600 lines because every kind of equation writes to the same counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas, jax_refs, jaxprs
from kernels.machines.pallas import scalars
from kernels.machines.pallas.exchange import Message
from kernels.machines.pallas.scalars import Ref, Unknown

STEPS = 2_000_000  # equations that are run of one kernel; of more programs or rounds, some are run
ROUNDS = 1 << 20  # of one loop, after which it is taken to have no end
HBM = ("hbm", "any")
TIRED = "more rounds than are counted"  # what a count depends on that was given up
SMALL = 1 << 20  # elements of scalar memory that are kept track of

Block = tuple[np.ndarray, tuple[int, ...]]


class EndlessLoop(ValueError):
    """A kernel's loop that its own scalars never end."""


@dataclass(frozen=True)
class Walk:
    """What a kernel does over its grid, as its scalar code tells.

    Each count is the most where a condition on data decides, and an unknown loop runs once.
    """

    # Operand's number → bytes copied by hand from or to it in HBM; −1 of scratch.
    moved: Mapping[int, float]
    least_moved: Mapping[int, float]  # the same at least
    copies: float  # how many of them
    # Another device, as the kernel of device 0 names it → copies to it, and their bytes.
    sent: Mapping[Any, tuple[float, float]]
    flops: Mapping[str, float]  # dtype → operations of matrix products
    least_flops: Mapping[str, float]  # the same at least
    # A loop that its scalars end, in words → how often its body runs in all.
    rounds: Mapping[str, float]
    depends: tuple[str, ...] = ()  # operands whose values would tell what is not known
    by_data: tuple[str, ...] = ()  # the loops whose length is data that is not given, in words
    # Whether one of them has no counter whose limit could be told to a profile.
    untold: bool = False
    open: bool = False  # whether a loop of unknown length is among it, so that there is no most
    # Of a kernel that reads given scalars or branches on data, id of an equation → for each program
    # that was run what a read of theirs gave, which branch was taken (the longest where it is not
    # known), or how far a loop counted.
    read: Mapping[int, Mapping[int, float]] = field(default_factory=dict, repr=False)
    # How many were run, of how many; the counts are those of all.
    programs: tuple[int, int] = (1, 1)
    # A loop that its scalars end → equations in its body, those of inner loops left out.
    lengths: Mapping[str, int] = field(default_factory=dict, repr=False)
    # Of the last loop that was too long to be run whole, how many rounds were run, and of how many;
    # the counts are those of all.
    cut: tuple[int, int] | None = None
    # What is sent in order, and the waits for it; empty where not all of it was run.
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class _Step:
    """An equation, taken apart once: a grid runs it a million times."""

    equation: Any
    name: str
    handler: Callable[[_Walker, Any, list[Any]], list[Any]] | None  # None for a plain operation
    called: bool  # whether it runs another jaxpr
    read: list[tuple[Any, Any]]  # variable and None, or None and the literal
    results: list[Any]
    scalar: bool  # whether it gives a single one

    @classmethod
    def of(cls, equation: Any) -> _Step:
        """The parts of an equation."""
        name, results = jaxprs.operation(equation), jaxprs.outputs(equation)
        return cls(
            equation,
            name,
            _HANDLERS.get(name),
            name in jaxprs.CALLS,
            [scalars.source(variable) for variable in jaxprs.inputs(equation)],
            results,
            _is_scalar(results),
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
    """Run the scalar code of a pallas_call; EndlessLoop for a loop that its own scalars never end.

    Args:
        equation, grid: the pallas_call, and programs in each dimension; 1 in one that is not known.
        operands: what the kernel takes before its scratch, the prefetched scalars first.
        starts: of operands in scalar memory whose values are known, number → where each program's
            block begins, int [programs, rank], and its sizes, squeezed dimensions as 1.
        depends: what the grid itself depends on.
        trips: "FILE:LINE" of a loop, the name of its kernel, or "" → how often it runs where that
            is data.
    """
    return _Walker(equation, grid, operands, starts or {}, set(depends), trips or {}).run()


def worth_it(equation: Any) -> bool:
    """Whether a kernel's scalar code decides by more than its program ids: it copies by hand, loops
    to a limit that it computes, or branches on data."""
    inside = list(jaxprs.equations(jax_pallas.kernel(equation)))
    names = {jaxprs.operation(inner) for inner in inside}
    if names & {"dma_start", "while"}:
        return True
    return "cond" in names and any(map(_reads_a_scalar, inside))


def _reads_a_scalar(equation: Any) -> bool:
    """Whether an equation takes one scalar out of an array."""
    wide = any(jax_refs.is_ref(v) or jaxprs.shape(v) for v in jaxprs.inputs(equation))
    single = _is_scalar(jaxprs.outputs(equation))
    return single and wide and jaxprs.operation(equation) not in ("cond", "while", "scan")


def _divides(equation: Any) -> bool:
    return jaxprs.operation(equation) in ("div", "rem") and _is_scalar(jaxprs.outputs(equation))


def _is_scalar(results: Sequence[Any]) -> bool:
    return len(results) == 1 and jaxprs.shape(results[0]) == ()


@dataclass
class _Walker:
    """Its fields are those of walk, then what it finds out."""

    equation: Any
    grid: tuple[int, ...]
    operands: Sequence[Ref]
    starts: Mapping[int, Block]
    depends: set[str]
    trips: Mapping[str, int]
    by_data: dict[str, None] = field(default_factory=dict)
    untold: bool = False
    count: Counter[Any] = field(default_factory=Counter)  # the most, an unknown loop counting once
    slack: Counter[Any] = field(default_factory=Counter)  # how much less it may be
    noted: dict[int, dict[int, list[float]]] = field(default_factory=dict)
    reads: bool = False  # whether a scalar that is given was read
    steps: int = 0
    stores: int = 0  # to scalars that are kept track of
    sure: bool = True  # False inside a branch that may not be taken
    looping: int = 0  # loops around what is run
    cut: tuple[int, int] | None = None
    messages: list[Message] = field(default_factory=list)
    multiplied: float = 0.0  # so far, of all dtypes
    in_order: bool = True  # whether all messages were seen, and their semaphores known
    program: int = 0
    ids: tuple[int, ...] = ()
    # What is read off the program, by the id of an equation or a jaxpr of it.
    blocks: dict[int, tuple[list[_Step], list[tuple[Any, Any]]]] = field(default_factory=dict)
    parts: dict[int, Any] = field(default_factory=dict)
    loops: dict[int, str] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernel, self.name = jax_pallas.kernel(self.equation), jax_pallas.name(self.equation)
        self.axes = jax_pallas.own_axes(self.equation)
        self.divides = any(map(_divides, jaxprs.equations(self.kernel)))
        self.open = bool(self.depends)
        # The kernel may write to them, what is not known too.
        self.operands = [
            ref if ref.cells is None else replace(ref, cells=ref.cells.astype(object))
            for ref in self.operands
        ]

    def run(self) -> Walk:
        count = math.prod(self.grid)
        scratch = [self._scratch(v) for v in jaxprs.inputs(self.kernel)[len(self.operands) :]]
        stateful = any(ref.cells is not None for ref in scratch)
        done = 0
        try:
            for place in range(count):
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
        least = {key: self.count[key] - self.slack[key] for key in self.count}

        def of_kind(counts: Mapping[Any, float], kind: str) -> dict[Any, float]:
            factor = count / max(done, 1)
            return {key: n * factor for (its_kind, key), n in counts.items() if its_kind == kind}

        hops = of_kind(self.count, "hops")
        return Walk(
            moved=of_kind(self.count, "moved"),
            least_moved=of_kind(least, "moved"),
            copies=of_kind(self.count, "copies").get("", 0.0),
            sent={d: (hops[d], size) for d, size in of_kind(self.count, "sent").items()},
            flops=of_kind(self.count, "flops"),
            least_flops=of_kind(least, "flops"),
            rounds=of_kind(self.count, "rounds"),
            depends=tuple(sorted(self.depends)),
            by_data=tuple(self.by_data),
            untold=self.untold,
            open=self.open,
            read={
                site: {place: _mean(values) for place, values in by_place.items()}
                for site, by_place in self.noted.items()
                if self.reads
            },
            programs=(done, count),
            cut=self.cut,
            lengths={self.loops[number]: length for number, length in self.lengths.items()},
            messages=tuple(
                replace(m, share=m.share / max(self.multiplied, 1.0)) for m in self.messages
            )
            if self.in_order and done == count and not self.cut
            else (),
        )

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
        env: dict[Any, Any] = dict(zip(outside, constants or map(scalars.scalar, held)))
        env.update(zip(jaxprs.inputs(inner), inputs))
        if id(inner) not in self.blocks:
            self.blocks[id(inner)] = (
                [_Step.of(equation) for equation in jaxprs.own_equations(inner)],
                [scalars.source(variable) for variable in jaxprs.outputs(inner)],
            )
        steps, outputs = self.blocks[id(inner)]
        self.steps += len(steps)
        if self.steps > STEPS * 1.5:
            raise _Tired
        for step in steps:
            values = scalars.read(step.read, env)
            if step.handler is not None:
                results = step.handler(self, step.equation, values)
            elif step.called:
                results = self._jaxpr(jaxprs.called_closed(step.equation), [], values)
            elif step.scalar:
                results = [self._scalar_result(step, values)]
            else:
                results = [scalars.joined(values)] * len(step.results)
            env.update(zip(step.results, results))
        return scalars.read(outputs, env)

    def _part(self, part: Any, read: Callable[[Any], Any]) -> Any:
        """What an equation touches, or the kind of a variable: read off it once."""
        if id(part) not in self.parts:
            self.parts[id(part)] = read(part)
        return self.parts[id(part)]

    def _scalar_result(self, step: _Step, values: list[Any]) -> Any:
        function = scalars.SCALARS.get(step.name)
        if any(isinstance(v, (Unknown, Ref)) for v in values):
            short = scalars.SHORT.get(step.name)
            known = short(values) if short else None
            return scalars.joined(values) if known is None else known
        if function is None:
            if not values or any(map(jaxprs.shape, jaxprs.inputs(step.equation))):
                return Unknown()
            known = jaxprs.evaluate(step.equation, [np.asarray(v) for v in values])
            return Unknown() if known is None else scalars.scalar(np.reshape(known, -1)[0])
        try:
            return scalars.wrapped(function(*values), *self._part(step.results[0], jaxprs.kind))
        except (ArithmeticError, ValueError):
            return Unknown()

    def _convert(self, equation: Any, values: list[Any]) -> list[Any]:
        [value], [out] = values, jaxprs.outputs(equation)
        if isinstance(value, Unknown) or jaxprs.shape(out):
            return [scalars.joined(values)]
        kind, bits = jaxprs.kind(out)
        if kind == "b":
            return [bool(value)]
        return [scalars.wrapped(int(value), kind, bits) if kind in "iu" else float(value)]

    def _get(self, equation: Any, values: list[Any]) -> list[Any]:
        part, _ = self._part(equation, jax_refs.access)
        ref = values[0]
        cells = scalars.selected(part, ref, values)
        if isinstance(cells, (np.ndarray, Unknown)):
            return [scalars.joined(values)]
        value = scalars.scalar(cells)
        if ref.from_outside and not isinstance(value, Unknown):
            self.reads = True
            self._note(equation, value)
        return [value]

    def _note(self, equation: Any, value: float) -> None:
        """Remember what an equation got in this program."""
        self.noted.setdefault(id(equation), {}).setdefault(self.program, []).append(value)

    def _store(self, equation: Any, values: list[Any]) -> list[Any]:
        part, written = self._part(equation, jax_refs.access)
        ref = values[0]
        old: Any = scalars.joined(values[:1])
        if isinstance(ref, Ref) and ref.cells is not None:
            assert written is not None
            self.stores += 1
            value = values[written.number]
            index = scalars.indices_of(part, values)
            known = jaxprs.operation(equation) == "swap" and self.sure
            if not known or isinstance(value, (Ref, Unknown)):
                names = scalars.names_of([value])
                value = Unknown(names if self.sure else names | self.depends)
            if index is None or len(index) > 1:
                ref.cells.fill(scalars.joined(values))
            else:
                place = index[0] if index else ()
                held = ref.cells[place]
                old = held if not isinstance(held, np.ndarray) else old
                # An object array would take the fields of a tuple apart, not those of Unknown.
                ref.cells[place] = value
        return [old] * len(jaxprs.outputs(equation))

    def _poison(self, equation: Any, values: list[Any]) -> list[Any]:
        for ref in values:
            if isinstance(ref, Ref) and ref.cells is not None:
                self.stores += 1
                ref.cells.fill(scalars.joined(values))
        return [scalars.joined(values)] * len(jaxprs.outputs(equation))

    def _copy(self, equation: Any, values: list[Any]) -> list[Any]:
        copy = self._part(equation, jax_refs.copy)
        size = scalars.bytes_of(copy.source, values)
        if isinstance(size, Unknown):
            self.depends |= size.names
            least, size = 0, scalars.most_bytes(copy.source)
            self.slack["copies", ""] += 1
        else:
            least = size
        self.count["copies", ""] += 1
        if device := tuple(scalars.resolved(place, values) for place in copy.device):
            self.count["hops", device] += 1
            self.count["sent", device] += size
            self._message(copy.semaphores, values, device, least)
        for part in (copy.source, copy.target):
            ref = values[part.ref.number]
            if isinstance(ref, Ref) and ref.memory in HBM:
                self.count["moved", ref.number] += size
                self.slack["moved", ref.number] += size - least
        target = values[copy.target.ref.number]
        if isinstance(target, Ref) and target.cells is not None:
            target.cells.fill(scalars.joined(values))
        return []

    def _wait(self, equation: Any, values: list[Any]) -> list[Any]:
        copy = self._part(equation, jax_refs.copy)
        if copy.remote:
            self._message(copy.semaphores[:1], values)
        return []

    def _message(
        self, parts: Sequence[Any], values: list[Any], device: Any = None, size: float = 0.0
    ) -> None:
        keys = [(id(values[p.ref.number]), scalars.indices_of(p, values)) for p in parts]
        self.in_order &= self.sure and all(indices is not None for _, indices in keys)
        names = tuple((ref, str(indices)) for ref, indices in keys)
        self.messages.append(Message(self.multiplied, names, device, size))

    def _dot(self, equation: Any, values: list[Any]) -> list[Any]:
        self.count["flops", jaxprs.dtype(jaxprs.inputs(equation)[0])] += jaxprs.dot_flops(equation)
        self.multiplied += jaxprs.dot_flops(equation)
        return [scalars.joined(values)]

    def _cond(self, equation: Any, values: list[Any]) -> list[Any]:
        index, *rest = values
        branches = jaxprs.branches(equation)
        if not isinstance(index, (Unknown, Ref)):
            chosen = min(max(int(index), 0), len(branches) - 1)
            self._note(equation, chosen)
            return self._jaxpr(branches[chosen], [], rest)
        self.depends |= index.names
        self.reads = True  # a profile shall take the longest branch too
        self._note(equation, max(range(len(branches)), key=lambda i: _length(branches[i])))
        runs = [self._unsure(branch, rest) for branch in branches]
        results, counts = [run[0] for run in runs], [run[1:] for run in runs]
        for key in {key for count, _ in counts for key in count}:
            most = max(count[key] for count, _ in counts)
            least = min(count[key] - slack[key] for count, slack in counts)
            self.count[key] += most
            self.slack[key] += most - least
        same = lambda ways: all(scalars.same(ways[0], way) for way in ways)
        return [w[0] if same(w) else scalars.joined([index, *w]) for w in zip(*results)]

    def _unsure(self, jaxpr: Any, values: Sequence[Any]) -> tuple[list[Any], Counter, Counter]:
        """What a jaxpr gives that may not run, with its own counts, which are not added."""
        outer = self.count, self.slack, self.sure
        self.count, self.slack, self.sure = Counter(), Counter(), False
        try:
            return self._jaxpr(jaxpr, [], values), self.count, self.slack
        finally:
            self.count, self.slack, self.sure = outer

    def _while(self, equation: Any, values: list[Any]) -> list[Any]:
        loop = jaxprs.while_loop(equation)
        first = loop.of_condition + loop.of_body
        of_condition, of_body = values[: loop.of_condition], values[loop.of_condition : first]
        carry = values[first:]
        line = _line(equation)
        place = f"the loop at {line} of {self.name}" if line else f"a loop of {self.name}"
        limit = jaxprs.limit(equation)
        end: Any = Unknown() if limit is None else values[limit]
        if not isinstance(end, Unknown):
            self._note(equation, end)
            self.reads |= self.divides  # where a quotient ends it, a profile makes up a length
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
            [more] = self._jaxpr(loop.condition, [], [*of_condition, *carry])
            if isinstance(more, Unknown):
                return self._open_loop(equation, place, more, of_body, carry)
            if not more:
                return carry
            self.count["rounds", self._loop(equation, place)] += 1
            before = self.stores
            self.looping += 1
            after = self._jaxpr(loop.body, [], [*of_body, *carry])
            self.looping -= 1
            if self.stores == before and all(map(scalars.alike, carry, after)):
                break  # the next round is this one again
            carry = after
        raise EndlessLoop(f"{place} has no end: its condition holds round after round")

    def _again(self, before: Sequence[Counter], times: float) -> None:
        """Take what was counted since so many times."""
        for now, old in zip((self.count, self.slack), before, strict=True):
            for key in now:
                now[key] += (now[key] - old[key]) * (times - 1)  # type: ignore[assignment]

    def _loop(self, equation: Any, place: str) -> str:
        """Which loop this is: two that stand at one place, such as a library's, are told apart."""
        if id(equation) not in self.loops:
            same = sum(other.startswith(place) for other in self.loops.values())
            self.loops[id(equation)] = f"{place}, number {same + 1}" if same else place
            self.lengths[id(equation)] = _own_length(jaxprs.loop(equation)[0])
        return self.loops[id(equation)]

    def _open_loop(
        self, equation: Any, place: str, more: Unknown, constants: list[Any], carry: list[Any]
    ) -> list[Any]:
        """A loop of a length not known counts as often as trips say; else once, or not at all."""
        self.by_data[place] = None
        said = given_trips(self.trips, self.name, _line(equation))
        names = more.names if said is None else frozenset()
        self.depends |= names
        self.open |= said is None
        either = lambda value: Unknown(names | scalars.names_of([value]))
        unsure = [v if isinstance(v, Ref) else either(v) for v in carry]
        if jaxprs.limit(equation) is None:
            self.untold = True
        elif said is not None:
            # The counter is the first of what is carried: a profile counts from where it starts.
            start = carry[0] if carry and isinstance(carry[0], int) else 0
            self.reads = True
            self._note(equation, start + said)
        results, count, slack = self._unsure(
            jaxprs.while_loop(equation).body, [*constants, *unsure]
        )
        times = 1 if said is None else said
        self.count["rounds", self._loop(equation, place)] += times
        for key, value in count.items():
            self.count[key] += value * times
            self.slack[key] += value if said is None else slack[key] * times
        return [either(v) for v in results]

    def _scan(self, equation: Any, values: list[Any]) -> list[Any]:
        parts = jaxprs.scan(equation)
        body, length, carried = parts.body, parts.length, parts.carried
        fixed, carry = values[: parts.fixed], values[parts.fixed : parts.fixed + carried]
        # The value of a row is not looked at.
        rows = values[parts.fixed + carried :]
        rows = [v if isinstance(v, Ref) else scalars.joined([v]) for v in rows]
        # The first rounds of a long one stand for the others.
        run = min(length, max(int(STEPS / 4 / max(_length(body), 1)), 1))
        outer, slack = self.count, self.slack
        self.count, self.slack = Counter(), Counter()
        try:
            for _ in range(run):
                results = self._jaxpr(body, [], [*fixed, *carry, *rows])
                carry = results[:carried]
        finally:
            for total, inside in ((outer, self.count), (slack, self.slack)):
                for key, value in inside.items():
                    total[key] += value * length / max(run, 1)  # type: ignore[assignment]
            self.count, self.slack = outer, slack
        if run < length:
            self.in_order = False
            carry = [v if isinstance(v, Ref) else Unknown() for v in carry]
        stacked = len(jaxprs.outputs(equation)) - carried
        return [*carry, *[Unknown()] * stacked]

    def _scoped(self, equation: Any, values: list[Any]) -> list[Any]:
        inner = jax_refs.scoped(equation)
        return self._jaxpr(inner, values, [self._scratch(v) for v in jaxprs.inputs(inner)])


_HANDLERS: dict[str, Callable[[_Walker, Any, list[Any]], list[Any]]] = {
    "program_id": lambda walker, e, _: [walker.ids[walker.axes[jaxprs.grid_axis(e)]]],
    "num_programs": lambda walker, e, _: [walker.grid[walker.axes[jaxprs.grid_axis(e)]]],
    "axis_index": lambda *_: [0],
    "convert_element_type": _Walker._convert,
    "get": _Walker._get,
    "swap": _Walker._store,
    "addupdate": _Walker._store,
    "masked_load": _Walker._poison,
    "masked_swap": _Walker._poison,
    "dma_start": _Walker._copy,
    "dma_wait": _Walker._wait,
    "dot_general": _Walker._dot,
    "cond": _Walker._cond,
    "while": _Walker._while,
    "scan": _Walker._scan,
    "run_scoped": _Walker._scoped,
}


def _length(jaxpr: Any) -> int:
    """Equations of a jaxpr, those inside it included."""
    return sum(1 for _ in jaxprs.equations(jaxpr))


def _own_length(jaxpr: Any) -> int:
    """Equations of a jaxpr, those inside it included but for those in its loops."""
    length = 0
    for equation in jaxprs.own_equations(jaxpr):
        length += 1
        if jaxprs.operation(equation) not in ("scan", "while"):
            length += sum(map(_own_length, jaxprs.inner_jaxprs(equation)))
    return length


def _line(equation: Any) -> str:
    """FILE:LINE of an equation, in the code that is not a library's; empty where there is none."""
    for file, line in jaxprs.frames(equation):
        if "site-packages" not in file and not file.startswith("<"):
            return f"{file.rpartition('/')[2]}:{line}"
    return ""


def given_trips(trips: Mapping[str, int], kernel: str, line: str = "") -> int | None:
    """How often a loop runs, or how many steps a grid has, as somebody says."""
    return next((trips[key] for key in (line or kernel, kernel, "") if key in trips), None)


def _mean(values: list[float]) -> float:
    """One value for those that a program reads: theirs if they agree, else about their mean."""
    mean = sum(values) / len(values)
    return values[0] if all(v == values[0] for v in values) else round(mean)
