"""Count the multiplications of a traced program, inside its kernels too.

A kernel's work may depend on which program runs: only the last step writes, only the blocks below
the diagonal are multiplied. Conditions on program ids are evaluated over the whole grid, as index
maps are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.pallas.calls import MAX_PROGRAMS, inner_jaxprs


def matmul_flops(jaxpr: Any) -> dict[str, float]:
    """Operations of all matrix products, a multiply-add counting two, by the operands' dtype.

    jaxpr: a traced program. Loops count as often as they run where that is known (a `while` counts
    once); of a condition on data, the more expensive branch counts.
    """
    return dict(_flops(jaxpr, {}, ()))


def _flops(jaxpr: Any, known: dict[Any, np.ndarray], grid: tuple[int, ...]) -> Counter:
    """known: scalars of this jaxpr whose value at each program is known, [programs] each."""
    total: Counter = Counter()
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "dot_general":
            total[str(eqn.invars[0].aval.dtype)] += _dot(eqn)
        elif name == "conv_general_dilated":
            out, kernel = eqn.outvars[0].aval, eqn.invars[1].aval
            features = eqn.params["dimension_numbers"].rhs_spec[0]
            taps = math.prod(kernel.shape) // kernel.shape[features]
            total[str(kernel.dtype)] += 2 * math.prod(out.shape) * taps
        elif name == "pallas_call":
            _add(total, kernel_flops(eqn), 1)
        elif name == "cond":
            _add(total, _cond(eqn, known, grid), 1)
        elif name == "scan":
            inner = eqn.params["jaxpr"].jaxpr
            _add(total, _flops(inner, {}, grid), eqn.params["length"])
        elif name == "while":
            _add(total, _flops(eqn.params["body_jaxpr"].jaxpr, {}, grid), 1)
        else:
            for inner in _called(eqn):
                _add(total, _flops(inner, _pass(eqn, inner, known), grid), 1)
            _evaluate(eqn, known, grid)
    return total


def kernel_flops(eqn: Any) -> dict[str, float]:
    """The same for one pallas_call, over its whole grid."""
    grid = tuple(int(g) for g in eqn.params["grid_mapping"].grid)
    programs = math.prod(grid)
    seen = grid if programs <= MAX_PROGRAMS else ()
    return dict(_scaled(_flops(eqn.params["jaxpr"], {}, seen), programs))


def _called(eqn: Any) -> list[Any]:
    """The jaxpr that an equation runs; custom rules carry others that it does not."""
    for key in ("call_jaxpr", "jaxpr", "fun_jaxpr"):
        inner = eqn.params.get(key)
        inner = getattr(inner, "jaxpr", inner)
        if hasattr(inner, "eqns"):
            return [inner]
    return list(inner_jaxprs(eqn))


def _dot(eqn: Any) -> int:
    (contract, _), _ = eqn.params["dimension_numbers"]
    left = eqn.invars[0].aval
    return 2 * math.prod(eqn.outvars[0].aval.shape) * math.prod(left.shape[i] for i in contract)


def _cond(eqn: Any, known: dict[Any, np.ndarray], grid: tuple[int, ...]) -> Counter:
    index, *operands = eqn.invars
    branches = []
    for branch in eqn.params["branches"]:
        inner = dict(
            (v, known[o])
            for v, o in zip(branch.jaxpr.invars, operands)
            if not hasattr(o, "val") and o in known
        )
        branches.append(_flops(branch.jaxpr, inner, grid))
    chosen = index.val if hasattr(index, "val") else known.get(index)
    if chosen is None:
        return max(branches, key=lambda b: sum(b.values()))
    chosen = np.clip(np.asarray(chosen).astype(int), 0, len(branches) - 1).reshape(-1)
    total: Counter = Counter()
    for i, branch in enumerate(branches):
        _add(total, branch, float(np.mean(chosen == i)))
    return total


def _pass(eqn: Any, inner: Any, known: dict[Any, np.ndarray]) -> dict[Any, np.ndarray]:
    if len(inner.invars) != len(eqn.invars):
        return {}
    return {
        v: known[o]
        for v, o in zip(inner.invars, eqn.invars)
        if not hasattr(o, "val") and o in known
    }


def _evaluate(eqn: Any, known: dict[Any, np.ndarray], grid: tuple[int, ...]) -> None:
    """Learn the value of an equation's scalar result at every program, if it has one."""
    name = eqn.primitive.name
    if len(eqn.outvars) != 1 or getattr(eqn.outvars[0].aval, "shape", None) != () or not grid:
        return
    if name == "program_id":
        known[eqn.outvars[0]] = np.indices(grid)[eqn.params["axis"]].reshape(-1)
        return
    if name == "num_programs":
        known[eqn.outvars[0]] = np.full(1, grid[eqn.params["axis"]])
        return
    values = []
    for variable in eqn.invars:
        value = np.asarray(variable.val) if hasattr(variable, "val") else known.get(variable)
        if value is None:
            return
        values.append(value)
    if not values:
        return
    inner = _called(eqn)
    try:
        if inner:
            learned = dict(zip(inner[0].invars, values))
            for each in inner[0].eqns:
                _evaluate(each, learned, grid)
            out = inner[0].outvars[0]
            result = out.val if hasattr(out, "val") else learned.get(out)
        else:
            import jax.numpy as jnp

            size = max(np.size(v) for v in values)
            wide = [
                jnp.asarray(np.broadcast_to(np.reshape(v, -1), size), variable.aval.dtype)
                for v, variable in zip(values, eqn.invars)
            ]
            result = eqn.primitive.bind(*wide, **eqn.params)
    except Exception:  # what cannot be evaluated stays unknown, and counts as data
        return
    if result is not None:
        known[eqn.outvars[0]] = np.asarray(result).reshape(-1)


def _scaled(counts: Mapping[str, float], factor: float) -> Counter:
    return Counter({key: value * factor for key, value in counts.items()})


def _add(total: Counter, counts: Mapping[str, float], factor: float) -> None:
    for key, value in counts.items():
        total[key] += value * factor  # type: ignore[assignment]  # half an operation is one too
