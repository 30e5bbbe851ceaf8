"""Count the multiplications of a traced program, inside its kernels too.

A kernel's work may depend on which program runs: only the last step writes, only the blocks below
the diagonal are multiplied. Conditions on program ids are evaluated over the whole grid, as index
maps are.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.pallas.calls import MAX_PROGRAMS, Call


def matmul_flops(jaxpr: Any, calls: Sequence[Call] = ()) -> dict[str, float]:
    """The operands' dtype → operations of all matrix products, a multiply-add counting two. Loops
    count as often as they run where that is known (a `while` counts once); of a condition on data,
    the more expensive branch counts. `calls` are the kernels, as calls_in gives them."""
    return dict(_flops(jaxpr, {}, (), {id(call.equation): call for call in calls}))


def _flops(
    jaxpr: Any,
    known: dict[Any, np.ndarray],
    grid: tuple[int, ...],
    calls: Mapping[int, Call] | None = None,
) -> Counter:
    """known: scalars of this jaxpr whose value at each program is known, [programs] each."""
    calls = calls or {}
    total: Counter = Counter()
    for equation in jaxprs.own_equations(jaxpr):
        name = jaxprs.operation(equation)
        if name == "dot_general":
            total[jaxprs.dtype(jaxprs.inputs(equation)[0])] += jaxprs.dot_flops(equation)
        elif name == "conv_general_dilated":
            [out], kernel = jaxprs.outputs(equation), jaxprs.inputs(equation)[1]
            taps = math.prod(jaxprs.shape(kernel)) // jaxprs.output_features(equation)
            total[jaxprs.dtype(kernel)] += 2 * math.prod(jaxprs.shape(out)) * taps
        elif name == "ragged_dot_general":
            # Each element of the left operand meets each column of one group's right operand.
            left, [out] = jaxprs.inputs(equation)[0], jaxprs.outputs(equation)
            total[jaxprs.dtype(left)] += 2 * math.prod(jaxprs.shape(left)) * jaxprs.shape(out)[-1]
        elif name == "pallas_call":
            call = calls.get(id(equation))
            total.update(kernel_flops(call) if call else _of_kernel(equation))
        elif name == "cond":
            total.update(_cond(equation, known, grid, calls))
        elif name in ("scan", "while"):
            body, times = jaxprs.loop(equation)
            _add(total, _flops(body, {}, grid, calls), times or 1)
        else:
            for inner in jaxprs.called(equation):
                operands, inputs = jaxprs.inputs(equation), jaxprs.inputs(inner)
                handed = _known(inputs, operands, known) if len(inputs) == len(operands) else {}
                total.update(_flops(inner, handed, grid, calls))
            _evaluate(equation, known, grid)
    return total


def kernel_flops(call: Call, *, least: bool = False) -> dict[str, float]:
    """The same for one kernel, over its whole grid; with `least`, where values that are not known
    decide, the least, and not the most."""
    if call.walk:
        return dict(call.walk.least_flops if least else call.walk.flops)
    return _of_kernel(call.equation)


def share_of_branches(call: Call) -> float:
    """Of the products that stand in a kernel's conditions, the share that runs in a program, the
    mean over the grid; 1 where a loop of unknown length holds products, or no condition does."""
    outside, inside = _standing(jax_pallas.kernel(call.equation))
    if not inside or math.isinf(outside + inside):
        return 1.0
    ran = sum(kernel_flops(call).values()) / max(math.prod(call.grid), 1)
    return min(max((ran - outside) / inside, 0.0), 1.0)


def shares_of_branches(call: Call) -> list[float]:
    """How often each condition with products in it runs them, in the order of the kernel's text: 0
    to 1 each, the mean over the programs run; nothing where what decides was not followed."""
    taken = call.walk.read if call.walk else {}
    shares = []
    for equation in jaxprs.own_equations(jax_pallas.kernel(call.equation)):
        if jaxprs.operation(equation) != "cond":
            continue
        multiplies = [any(_standing(branch)) for branch in jaxprs.branches(equation)]
        if any(multiplies):
            ran = [multiplies[int(branch)] for branch in taken.get(id(equation), {}).values()]
            if not ran:
                return []
            shares.append(sum(ran) / len(ran))
    return shares


def _standing(jaxpr: Any) -> tuple[float, float]:
    """Operations of the products of a jaxpr outside its conditions, and of all branches in them;
    infinite where a loop has no length."""
    outside = inside = 0.0
    for equation in jaxprs.own_equations(jaxpr):
        name = jaxprs.operation(equation)
        if name == "dot_general":
            outside += jaxprs.dot_flops(equation)
        elif name == "cond":
            inside += sum(sum(_standing(branch)) for branch in jaxprs.branches(equation))
        elif name in ("scan", "while"):
            body, times = jaxprs.loop(equation)
            plain, branched = _standing(body)
            outside += plain and plain * (times or math.inf)
            inside += branched and branched * (times or math.inf)
        else:
            for plain, branched in map(_standing, jaxprs.called(equation)):
                outside, inside = outside + plain, inside + branched
    return outside, inside


def _of_kernel(equation: Any) -> dict[str, float]:
    """Of a pallas_call whose program ids alone decide what it does."""
    grid = jax_pallas.grid(equation)
    programs = math.prod(grid)
    own = tuple(grid[axis] for axis in jax_pallas.own_axes(equation))
    seen = own if programs <= MAX_PROGRAMS else ()
    flops = _flops(jax_pallas.kernel(equation), {}, seen)
    return {dtype: count * programs for dtype, count in flops.items()}


def _cond(
    equation: Any, known: dict[Any, np.ndarray], grid: tuple[int, ...], calls: Mapping[int, Call]
) -> Counter:
    index, *operands = jaxprs.inputs(equation)
    branches = [
        _flops(branch, _known(jaxprs.inputs(branch), operands, known), grid, calls)
        for branch in jaxprs.branches(equation)
    ]
    chosen = _value(index, known)
    if chosen is None:
        return max(branches, key=lambda b: sum(b.values()))
    chosen = np.clip(chosen.astype(int), 0, len(branches) - 1).reshape(-1)
    total: Counter = Counter()
    for i, branch in enumerate(branches):
        _add(total, branch, float(np.mean(chosen == i)))
    return total


def _known(
    inputs: list[Any], operands: list[Any], known: dict[Any, np.ndarray]
) -> dict[Any, np.ndarray]:
    """What a jaxpr knows of its inputs, for which these operands are handed in."""
    values = ((inner, _value(outer, known)) for inner, outer in zip(inputs, operands))
    return {inner: value for inner, value in values if value is not None}


def _value(variable: Any, known: dict[Any, np.ndarray]) -> np.ndarray | None:
    """A scalar's value at each program, [programs] or [1]; None where only the run knows it."""
    value = jaxprs.literal(variable)
    return known.get(variable) if value is None else np.asarray(value)


def _evaluate(equation: Any, known: dict[Any, np.ndarray], grid: tuple[int, ...]) -> None:
    """Learn the value of an equation's scalar result at every program, if it has one."""
    results = jaxprs.outputs(equation)
    if len(results) != 1 or jaxprs.shape(results[0]) != () or not grid:
        return
    name = jaxprs.operation(equation)
    values = [_value(operand, known) for operand in jaxprs.inputs(equation)]
    if any(value is None for value in values):
        return
    inner = jaxprs.called(equation)
    result: Any = None
    if name == "program_id":
        result = np.indices(grid)[jaxprs.grid_axis(equation)]
    elif name == "num_programs":
        result = grid[jaxprs.grid_axis(equation)]
    elif not inner:
        result = jaxprs.evaluate(equation, [v for v in values if v is not None]) if values else None
    elif jaxprs.passes_on(equation):
        learned = dict(zip(jaxprs.inputs(inner[0]), values, strict=True))
        for step in jaxprs.own_equations(inner[0]):
            _evaluate(step, learned, grid)
        result = _value(jaxprs.outputs(inner[0])[0], learned)
    # Of a loop or a condition, what it gives counts as data.
    if result is not None:
        known[results[0]] = np.asarray(result).reshape(-1)


def _add(total: Counter, counts: Mapping[str, float], factor: float) -> None:
    for key, value in counts.items():
        total[key] += value * factor  # type: ignore[assignment]  # half an operation is one too
