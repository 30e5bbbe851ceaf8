"""Values of a kernel's scalar code: a Python number, what is Unknown, or the memory behind a Ref.

Arithmetic is Python's, wrapped as the dtype holds it. What an unknown value goes into is unknown
too, and says of which operands it comes, but for what needs no such value: 0 times it is 0.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machines.compat import jax_refs, jaxprs


@dataclass(frozen=True)
class Unknown:
    """A value that only the run knows, and the names of the operands that it comes from."""

    names: frozenset[str] = frozenset()


UNKNOWN = Unknown()


@dataclass
class Ref:
    """Memory that a kernel sees."""

    number: int  # among the kernel's operands, −1 of scratch
    memory: str  # such as "vmem"
    names: frozenset[str]  # what its contents come from
    cells: np.ndarray | None = None  # its scalars, where they are kept track of
    from_outside: bool = False  # whether those do


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)  # XLA's rounds towards zero
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


# What scalar operations give, of Python's own numbers.
SCALARS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "xor", "pow")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "div": _divide,
    "rem": lambda a, b: a - b * _divide(a, b) if isinstance(a, int) else math.fmod(a, b),
    "sign": lambda a: (a > 0) - (a < 0),
    "abs": abs,
    "max": max,
    "min": min,
    "and": operator.and_,
    "or": operator.or_,
    "not": lambda a: not a if isinstance(a, bool) else ~a,
    "select_n": lambda which, *cases: cases[int(which)],
    "clamp": lambda low, value, high: min(max(value, low), high),
    "shift_left": operator.lshift,
    "shift_right_arithmetic": operator.rshift,
    "floor": math.floor,
    "ceil": math.ceil,
    **dict.fromkeys(("copy", "copy_p", "reshape", "squeeze", "broadcast_in_dim"), lambda a: a),
    **dict.fromkeys(("multiple_of", "optimization_barrier", "stop_gradient"), lambda a: a),
}

# What is known although an operand is not.
SHORT: dict[str, Callable[[list[Any]], Any]] = {
    "and": lambda v: False if any(value is False for value in v) else None,
    "or": lambda v: True if any(value is True for value in v) else None,
    "mul": lambda v: 0 if any(value == 0 and isinstance(value, int) for value in v) else None,
    "select_n": lambda v: (
        v[1 + int(v[0])]
        if not isinstance(v[0], (Unknown, Ref))
        else v[1]
        if all(same(v[1], value) for value in v[2:])
        else None
    ),
}


def wrapped(value: Any, kind: str, size: int) -> Any:
    """A result as a dtype of that kind and so many bits holds it."""
    if isinstance(value, bool) or not isinstance(value, int) or kind not in ("b", "i", "u"):
        return value
    if kind == "b":
        return bool(value)
    if kind == "u":
        return value & ((1 << size) - 1)
    half = 1 << (size - 1)
    return value if -half <= value < half else (value + half) % (1 << size) - half


def scalar(value: Any) -> Any:
    """A Python scalar of an array without dimensions; what has some is not known."""
    if isinstance(value, (Unknown, Ref, bool, int, float)):
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype == object:
        return Unknown()
    return array.item()


def source(variable: Any) -> tuple[Any, Any]:
    """Where a value comes from: a variable and None, or None and the scalar of a literal."""
    literal = jaxprs.literal(variable)
    return (variable, None) if literal is None else (None, scalar(literal))


def read(sources: Iterable[tuple[Any, Any]], env: Mapping[Any, Any]) -> list[Any]:
    return [held if variable is None else env.get(variable, UNKNOWN) for variable, held in sources]


def names_of(values: Iterable[Any]) -> frozenset[str]:
    """The operands that values come from."""
    unknown = [value.names for value in values if isinstance(value, (Unknown, Ref))]
    return frozenset().union(*unknown)


def joined(values: Sequence[Any]) -> Unknown:
    return Unknown(names_of(values))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Ref) or isinstance(other, Ref):
        return one is other
    return not isinstance(one, Unknown) and not isinstance(other, Unknown) and one == other


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same as far as is known."""
    return same(one, other) or (isinstance(one, Unknown) and isinstance(other, Unknown))


def resolved(size: Any, values: Sequence[Any]) -> Any:
    if isinstance(size, jax_refs.OperandSlot):
        return values[size.number]
    return scalar(size) if not isinstance(size, int) else size


def indices_of(part: jax_refs.Part, values: Sequence[Any]) -> list[tuple[Any, ...]] | None:
    """NumPy's indices of a part, one after another; None where they are not known."""
    indices = []
    for step in part.steps:
        if step is None:
            return None
        index: list[Any] = []
        for entry in step:
            if isinstance(entry, tuple):
                start, size, stride = (resolved(e, values) for e in entry)
                if isinstance(start, Unknown) or isinstance(size, Unknown):
                    return None
                index.append(slice(start, start + size * stride, stride))
            else:
                at = resolved(entry, values)
                if isinstance(at, (Unknown, Ref)):
                    return None
                index.append(int(at))
        indices.append(tuple(index))
    return indices


def selected(part: jax_refs.Part, ref: Any, values: Sequence[Any]) -> Any:
    """The scalars of a part of a ref; Unknown where they are not kept or it is not known which."""
    if not isinstance(ref, Ref) or ref.cells is None:
        return Unknown()
    if (indices := indices_of(part, values)) is None:
        return Unknown()
    cells: Any = ref.cells
    try:
        for index in indices:
            cells = cells[index]
    except IndexError:
        return Unknown()
    return cells


def bytes_of(part: jax_refs.Part, values: Sequence[Any]) -> Any:
    """Bytes of a part; Unknown where a size is data."""
    count = 1
    for size in part.sizes:
        known = resolved(size, values)
        if isinstance(known, (Unknown, Ref)):
            return Unknown(names_of([known]))
        count *= known
    return count * jaxprs.bits(part.dtype) // 8


def most_bytes(part: jax_refs.Part) -> int:
    """Bytes of a part whose unknown sizes are as large as the ref's."""
    steps = [step for step in part.steps if step is not None]
    if not steps:
        return math.prod(part.shape) * jaxprs.bits(part.dtype) // 8
    sizes = [
        (entry[1] if isinstance(entry[1], int) else whole)
        for entry, whole in zip(steps[-1], part.shape)
        if isinstance(entry, tuple)
    ]
    return math.prod(sizes) * jaxprs.bits(part.dtype) // 8
