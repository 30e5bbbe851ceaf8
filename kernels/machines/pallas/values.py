"""Which values a program hands to its kernels, as far as they follow from constants and from given
arguments: the sizes of dynamic grids, prefetched scalars, what lies in scalar memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas, jaxprs

MOST = 1 << 24  # elements of a value that is computed


@dataclass(eq=False)
class Value:
    """A value of a program, computed when it is asked for.

    Args:
        unknown: the arguments, and what else, that it depends on and that are not given.
        made_by: the equation whose result it is.
        place: among its results.
        operands: of that equation, the same object for all its results.
        known: the value, where it is known from the start or was computed.
        tried: whether it was tried to compute it.
    """

    unknown: frozenset[str] = frozenset()
    made_by: Any = None
    place: int = 0
    operands: Sequence[Value] = ()
    known: Any = None
    tried: bool = False

    def get(self) -> np.ndarray | None:
        """The value; None where it is not known."""
        if self.known is None and not self.unknown and not self.tried:
            self.tried = True
            self.known = _computed(self)
        return None if self.known is None else np.asarray(self.known)


def _computed(value: Value) -> Any:
    """The value of what equations make, all that it needs in one program on the CPU."""
    order: list[Value] = []
    seen: set[int] = set()
    waiting = [(value, False)]
    while waiting:
        each, ready = waiting.pop()
        if ready:
            order.append(each)
        elif id(each) not in seen and each.known is None:
            seen.add(id(each))
            if each.made_by is None:
                return None
            if any(math.prod(jaxprs.shape(v) or ()) > MOST for v in jaxprs.outputs(each.made_by)):
                return None
            waiting.append((each, True))
            waiting += [(operand, False) for operand in each.operands]

    def run() -> Any:
        results: dict[int, list[Any]] = {}
        found: dict[int, Any] = {}

        def look(each: Value) -> Any:
            return found[id(each)] if each.known is None else each.known

        for each in order:
            equation = each.made_by
            if id(each.operands) not in results:
                taken = [look(operand) for operand in each.operands]
                results[id(each.operands)] = jaxprs.results(equation, taken)
            found[id(each)] = results[id(each.operands)][each.place]
        return found[id(value)]

    return jaxprs.on_cpu(run)


def handed(
    jaxpr: Any, given: Mapping[int, Any], names: Sequence[str]
) -> Iterator[tuple[Any, list[Value]]]:
    """Each pallas_call of a program with the values of its operands, in the order of `calls_in`.

    Args:
        jaxpr: The program, closed.
        given: The number of an argument → its value.
        names: Of the arguments.

    Yields:
        The equation, and a Value for each of its operands.
    """
    inner = jaxprs.opened(jaxpr)
    inputs = [
        Value(known=np.asarray(given[i]))
        if i in given
        else Value(frozenset([names[i] if i < len(names) else f"argument {i}"]))
        for i, _ in enumerate(jaxprs.inputs(inner))
    ]
    yield from _within(jaxpr, inputs, [])


def _within(
    jaxpr: Any, inputs: Sequence[Value], outputs: list[Value]
) -> Iterator[tuple[Any, list[Value]]]:
    """Of one jaxpr; what it gives is appended to `outputs`."""
    inner = jaxprs.opened(jaxpr)
    env: dict[Any, Value] = dict(zip(jaxprs.inputs(inner), inputs))
    for variable, constant in zip(*jaxprs.constants(jaxpr)):
        env[variable] = Value(known=constant)

    def value(variable: Any) -> Value:
        literal = jaxprs.literal(variable)
        if literal is not None:
            return Value(known=np.asarray(literal))
        return env.get(variable) or Value(frozenset(["what a part of the program computes"]))

    for each in jaxprs.own_equations(inner):
        operands = [value(v) for v in jaxprs.inputs(each)]
        unknown = frozenset().union(*[v.unknown for v in operands])
        results: list[Value] = []
        if jax_pallas.is_pallas_call(each):
            yield each, operands
            unknown |= {f"what {jax_pallas.name(each)} computes"}
            results = [Value(unknown) for _ in jaxprs.outputs(each)]
        elif jaxprs.passes_on(each):
            yield from _within(jaxprs.called_closed(each), operands, results)
        else:
            for jaxpr_inside, taken in jaxprs.handed_inside(each):
                first = [operands[i] if i is not None else None for i in taken]
                varying = unknown | {"which round of a loop it is"}
                yield from _within(jaxpr_inside, [v or Value(varying) for v in first], [])
            results = [
                Value(unknown, each, place, operands)
                for place, _ in enumerate(jaxprs.outputs(each))
            ]
        env.update(zip(jaxprs.outputs(each), results))
    outputs += [value(v) for v in jaxprs.outputs(inner)]
