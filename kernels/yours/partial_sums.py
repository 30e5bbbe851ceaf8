"""How often a kernel rounds what it has added up so far to a narrow float, read from its jaxpr."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels.machines.compat import jax_pallas, jax_refs, jaxprs

MOST = 3  # rounded partial sums that are nobody's fault: five terms have one more
NARROW = ("bfloat16", "float16")
SUMS = ("add", "sub", "add_any", "addupdate")
# What a sum stays a sum through; of any other operation the result is a term.
SAME = (
    *("mul", "div", "neg", "select_n", "max", "min", "broadcast_in_dim", "reshape", "squeeze"),
    *("transpose", "slice", "dynamic_slice", "concatenate", "pad", "convert_element_type"),
)
ROUNDS = 4  # of a loop or a grid that are gone through: by then a sum shows that it grows


@dataclass(frozen=True)
class PartialSum:
    """What was rounded on the way to a value."""

    count: int = 0  # partial sums that were rounded to a narrow float, the value's own included
    wide: bool = False  # whether something was added since, in a wide float
    lines: tuple[tuple[str, int], ...] = ()  # files and lines where the last one was rounded


@dataclass
class _Memory:
    """What was stored last in a reference."""

    sum: PartialSum = PartialSum()


def most_rounded(jaxpr: Any) -> PartialSum:
    """Of all that the kernels of a program store, what holds the most rounded partial sums. What a
    DMA copies counts as a term."""
    stored = [PartialSum()]
    for equation in filter(jax_pallas.is_kernel, jax_pallas.outside_kernels(jaxpr)):
        body = jax_pallas.kernel(equation)
        memories = [_Memory() for _ in jaxprs.inputs(body)]
        _settled(ROUNDS, memories, functools.partial(_run, body, memories, stored))
    return _joined(stored)


def _joined(sums: Sequence[PartialSum]) -> PartialSum:
    """The one that was rounded most often."""
    most = max(sums, key=lambda one: one.count, default=PartialSum())
    return replace(most, wide=any(one.wide for one in sums))


def _run(jaxpr: Any, operands: Sequence[Any], stored: list[PartialSum]) -> list[Any]:
    """What a jaxpr gives of operands, sums or memories; to `stored` it adds what it stores."""
    places, _ = jaxprs.constants(jaxpr)
    variables = [*jaxprs.inputs(jaxpr), *places]
    known: dict[Any, Any] = {}
    # What a region brings along are constants of its own, in order.
    named = variables if len(operands) == len(jaxprs.inputs(jaxpr)) else places
    known |= dict(zip(named, operands))

    def read(variable: Any) -> Any:
        if jaxprs.literal(variable) is not None:
            return PartialSum()
        new: Any = _Memory() if jax_refs.is_ref(variable) else PartialSum()
        return known.setdefault(variable, new)

    for equation in jaxprs.own_equations(jaxpr):
        values = [read(variable) for variable in jaxprs.inputs(equation)]
        known |= dict(zip(jaxprs.outputs(equation), _results(equation, values, stored)))
    return [read(variable) for variable in jaxprs.outputs(jaxpr)]


def _results(equation: Any, values: list[Any], stored: list[PartialSum]) -> list[Any]:
    name = jaxprs.operation(equation)
    memory = next((value for value in values if isinstance(value, _Memory)), None)
    if name == "get" and memory:
        return [memory.sum]
    if name in ("swap", "addupdate") and memory:
        before, new = memory.sum, values[1]
        memory.sum = _added(equation, [before, new]) if name == "addupdate" else new
        stored.append(memory.sum)
        return [before]
    if name == "cond":
        return _of_branches(equation, values, stored)
    if name in ("scan", "while"):
        return _of_loop(equation, values, stored)
    if bodies := jaxprs.called(equation):
        return _run(bodies[0], values, stored)
    for value in values:  # a copy, which may write anywhere
        if isinstance(value, _Memory):
            value.sum = PartialSum()
    sums = [value for value in values if isinstance(value, PartialSum)]
    if name in SUMS:
        return [_added(equation, sums)]
    if name in SAME:
        return [_rounded(equation, _joined(sums))]
    return []


def _added(equation: Any, sums: Sequence[PartialSum]) -> PartialSum:
    count = sum(one.count for one in sums)
    return _rounded(equation, replace(_joined(sums), count=count, wide=True))


def _rounded(equation: Any, value: PartialSum) -> PartialSum:
    """A value of an equation's dtype."""
    result = (jaxprs.outputs(equation) or jaxprs.inputs(equation))[0]
    if value.wide and jaxprs.dtype(result) in NARROW:
        return PartialSum(value.count + 1, False, tuple(jaxprs.frames(equation)))
    return value


def _of_branches(equation: Any, values: list[Any], stored: list[PartialSum]) -> list[Any]:
    memories = [value for value in values if isinstance(value, _Memory)]
    before = [memory.sum for memory in memories]
    ends, results = [], []
    for branch in jaxprs.branches(equation):
        for memory, old in zip(memories, before):
            memory.sum = old
        results.append(_run(branch, values[1:], stored))
        ends.append([memory.sum for memory in memories])
    for memory, sums in zip(memories, zip(*ends)):
        memory.sum = _joined(sums)
    return [_joined(sums) for sums in zip(*results)]


def _of_loop(equation: Any, values: list[Any], stored: list[PartialSum]) -> list[Any]:
    if jaxprs.operation(equation) == "scan":
        loop = jaxprs.scan(equation)
        body, fixed, carried, rounds = loop.body, loop.fixed, loop.carried, loop.length
    else:
        whole = jaxprs.while_loop(equation)
        values = values[whole.of_condition :]
        body, fixed, rounds = whole.body, whole.of_body, ROUNDS
        carried = len(values) - fixed
    before, rest, results = values[:fixed], values[fixed + carried :], values[fixed:]

    def go() -> list[Any]:
        results[:] = _run(body, [*before, *results[:carried], *rest], stored)
        return [*results]

    _settled(min(rounds, ROUNDS), values, go)
    return results


def _settled(rounds: int, memories: Sequence[Any], go: Callable[[], Any]) -> None:
    """Go so often, or until nothing changes: from then on nothing would."""
    known: Any = None
    for _ in range(rounds):
        results = go()
        before, known = known, ([getattr(one, "sum", None) for one in memories], results)
        if known == before:
            return
