"""Tiles as the kernel sees them: slices for both generations, operators for beta 1 only."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.neuron.errors import refuse
from kernels.neuron.machine import View, machine

ARITHMETIC = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def sliced(view: View, key: Any) -> View:
    """view[key] for whole numbers, slices and an ellipsis.

    On chip a tile keeps its partitions and at least one dimension more.
    """
    keys = _spread(view, key)
    limits = machine().limits
    box, axes = list(view._box), []
    parts: list[slice] = []
    dropped: list[int] = []
    for axis, one in enumerate(keys):
        size = view.shape[axis]
        if isinstance(one, slice):
            start, stop, step = _bounds(view, axis, one, limits)
            parts.append(slice(start, stop, step))
        else:
            if limits and not 0 <= one < size:
                refuse(f"index {one} of {view} is out of bounds: dimension {axis} has {size}")
            start = int(one) + size * (one < 0)
            stop, step = start + 1, 1
            parts.append(slice(start, stop, 1))
            if axis or not view._on_chip:
                dropped.append(axis)
        if limits and axis == 0 and step != 1 and view._on_chip:
            refuse(
                f"slice of {view} with step {step} along the partitions: an operand lies in "
                "neighbouring partitions"
            )
        own = view._axes[axis]
        if own is not None and view._box[own][1] - view._box[own][0] == size:
            # Else the view takes steps already, and the box that it has is large enough.
            first, length = view._box[own][0], len(range(*parts[-1].indices(size)))
            box[own] = (first + start, first + start + max(length - 1, 0) * abs(step) + 1)
        axes.append(own)
    data, state = view._data[tuple(parts)], view._state[tuple(parts)]
    while view._on_chip and dropped and data.ndim - len(dropped) < 2:
        dropped.pop(0)
    squeeze = tuple(0 if axis in dropped else slice(None) for axis in range(data.ndim))
    kept = tuple(own for axis, own in enumerate(axes) if axis not in dropped)
    return type(view)(view._storage, data[squeeze], state[squeeze], tuple(box), kept)


def _spread(view: View, key: Any) -> list[Any]:
    """The key, one for each dimension."""
    keys = list(key) if isinstance(key, tuple) else [key]
    for one in keys:
        if isinstance(one, (bool, View)) or not isinstance(
            one, (int, np.integer, slice, type(Ellipsis))
        ):
            refuse(
                f"{view} is indexed with a {type(one).__name__}; accepted: whole numbers, slices "
                "and an ellipsis"
            )
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (view.ndim - len(keys) + 1)
    keys += [slice(None)] * (view.ndim - len(keys))
    if len(keys) > view.ndim:
        refuse(f"{view} is indexed in {len(keys)} dimensions, and has {view.ndim}")
    return keys


def _bounds(view: View, axis: int, one: slice, limits: bool) -> tuple[int, int, int]:
    size = view.shape[axis]
    if limits:
        start = 0 if one.start is None else one.start
        stop = size if one.stop is None else one.stop
        step = 1 if one.step is None else one.step
        # The end of a strided slice may lie beyond its last element.
        last = start + (stop - start - 1) // step * step if step > 0 else size
        if step < 1 or start < 0 or stop <= start or last >= size:
            text = f"{start}:{stop}" + (f":{step}" if step != 1 else "")
            refuse(f"slice {text} of {view} is out of bounds: dimension {axis} has {size} elements")
    return one.indices(size)


class Tensor(View):
    """A tile of modern NKI: it is sliced and handed to instructions, and has no operators."""

    def __getitem__(self, key: Any) -> Tensor:
        return sliced(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        refuse(f"assignment into {self}: instructions write into dst, as in nisa.tensor_copy")

    __hash__ = object.__hash__


def _operator(name: str, sign: str) -> Any:
    def refused(self: Tensor, other: Any) -> Any:
        function = getattr(np.ndarray, f"__{name}__")
        if machine().limits:
            other = "a tile" if isinstance(other, View) else other
            refuse(
                f"the operator {sign} on {self} and {other}: a tile has no operators, call an "
                "instruction such as nisa.tensor_tensor"
            )
        values = other._data if isinstance(other, View) else other
        with np.errstate(all="ignore"):
            return _fresh(function(self._data, np.asarray(values, self.dtype)))

    return refused


def _fresh(values: np.ndarray) -> Tensor:
    tile = machine().allocate(values.shape, values.dtype, "sbuf", kind=Tensor)
    machine().write("operator", tile, values)
    return tile


for _name, _sign in {**ARITHMETIC, **COMPARISONS}.items():
    for _each in (_name, f"r{_name}") if _name in ARITHMETIC else (_name,):
        setattr(Tensor, f"__{_each}__", _operator(_each, _sign))
