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
    """A value of a program, computed when it is asked for."""

    # The arguments, and what else, that it depends on and that are not given.
    unknown: frozenset[str] = frozenset()
    made_by: Any = None  # the equation whose result it is
    place: int = 0  # among its results
    operands: Sequence[Value] = ()  # of that equation, the same object for all its results
    known: Any = None  # the value, where it is known from the start or was computed
    tried: bool = False  # whether it was tried to compute it

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
        step, ready = waiting.pop()
        if ready:
            order.append(step)
        elif id(step) not in seen and step.known is None:
            seen.add(id(step))
            if step.made_by is None:
                return None
            if any(math.prod(jaxprs.shape(v) or ()) > MOST for v in jaxprs.outputs(step.made_by)):
                return None
            waiting.append((step, True))
            waiting += [(operand, False) for operand in step.operands]

    def run() -> Any:
        results: dict[int, list[Any]] = {}
        computed: dict[int, Any] = {}

        def look(step: Value) -> Any:
            return computed[id(step)] if step.known is None else step.known

        for step in order:
            equation = step.made_by
            if id(step.operands) not in results:
                taken = [look(operand) for operand in step.operands]
                results[id(step.operands)] = jaxprs.results(equation, taken)
            computed[id(step)] = results[id(step.operands)][step.place]
        return computed[id(value)]

    return jaxprs.on_cpu(run)


def decisive(
    jaxpr: Any, known: Mapping[int, Any], names: Sequence[str]
) -> Iterator[tuple[str, list[Value]]]:
    """What decides how much a program does, operation by operation, each with its operands: of a
    pallas_call the sizes of a dynamic grid, prefetched scalars and what lies in scalar memory, of a
    ragged product the lengths of the groups, of a "while" where its counter starts and ends."""
    for equation, operands in handed(jaxpr, known, names):
        name = jaxprs.operation(equation)
        places: tuple[int, ...] = (2,)
        if name == "pallas_call":
            first = len(jax_pallas.dynamic_axes(equation)) + jax_pallas.num_scalars(equation)
            blocks = jax_pallas.blocks(equation)[: jax_pallas.num_inputs(equation)]
            in_smem = (i for i, block in enumerate(blocks, first) if block.memory == "smem")
            places = *range(first), *in_smem
        elif name == "while":
            places = jaxprs.counted(equation)
        yield name, [operands[place] for place in places]


def handed(
    jaxpr: Any, known: Mapping[int, Any], names: Sequence[str]
) -> Iterator[tuple[Any, list[Value]]]:
    """Each pallas_call, loop and ragged product of a program, in order, with its operands."""
    inner = jaxprs.opened(jaxpr)
    inputs = [
        Value(known=np.asarray(known[i]))
        if i in known
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

    for equation in jaxprs.own_equations(inner):
        operands = [value(v) for v in jaxprs.inputs(equation)]
        unknown = frozenset().union(*[v.unknown for v in operands])
        results: list[Value] = []
        if jaxprs.operation(equation).startswith(("pallas_call", "while", "ragged_dot")):
            yield equation, operands
        if jaxprs.operation(equation) == "pallas_call":
            unknown |= {f"what {jax_pallas.name(equation)} computes"}
            results = [Value(unknown) for _ in jaxprs.outputs(equation)]
        elif jaxprs.operation(equation) == "axis_index":
            results = [Value(known=np.int32(0))]  # of several devices, the first one's program
        elif jaxprs.passes_on(equation):
            yield from _within(jaxprs.called_closed(equation), operands, results)
        else:
            for jaxpr_inside, taken in jaxprs.handed_inside(equation):
                first = [operands[i] if i is not None else None for i in taken]
                varying = unknown | {"which round of a loop it is"}
                yield from _within(jaxpr_inside, [v or Value(varying) for v in first], [])
            results = [
                Value(unknown, equation, place, operands)
                for place, _ in enumerate(jaxprs.outputs(equation))
            ]
        env.update(zip(jaxprs.outputs(equation), results))
    outputs += [value(v) for v in jaxprs.outputs(inner)]
