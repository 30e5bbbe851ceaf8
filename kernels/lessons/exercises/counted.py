"""What a Taichi kernel does, counted: its source runs as plain Python, on numbers that keep count.

The compiler may do with less, or do it several times at once; this counts what the source asks
for, which is the same on every machine.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.proof.ladder import Refused


class Count(SimpleNamespace):
    """What a loop did: loads and stores of elements, divisions of whole numbers and remainders."""

    loads: int = 0
    stores: int = 0
    divisions: int = 0


class _Whole(int):
    """A whole number that counts divisions by it and of it."""

    count: Count


def _counting(act: Callable[[Any, Any], Any], swapped: bool) -> Callable[[_Whole, Any], Any]:
    def operate(self: _Whole, other: Any) -> Any:
        self.count.divisions += act in (operator.floordiv, operator.mod)
        pair = int(self), int(other) if isinstance(other, _Whole) else other
        return _like(self.count, act(*(reversed(pair) if swapped else pair)))

    return operate


for _act in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod):
    for _swapped in (False, True):
        setattr(_Whole, f"__{'r' * _swapped}{_act.__name__}__", _counting(_act, _swapped))


def _like(count: Count, number: Any) -> Any:
    if not isinstance(number, (int, np.integer)):
        return number
    whole = _Whole(number)
    whole.count = count
    return whole


class _Array:
    """An array that counts what is read and written."""

    def __init__(self, array: np.ndarray, count: Count):
        self.array, self.count = array, count
        self.shape = tuple(_like(count, n) for n in array.shape)

    def _place(self, place: Any) -> tuple[int, ...]:
        place = tuple(int(i) for i in (place if isinstance(place, tuple) else (place,)))
        if not all(0 <= i < n for i, n in zip(place, self.array.shape, strict=True)):
            raise Refused(f"element {list(place)} is outside of {list(self.array.shape)}")
        return place

    def __getitem__(self, place: Any) -> Any:
        self.count.loads += 1
        return self.array[self._place(place)]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.count.stores += 1
        self.array[self._place(place)] = value


def _same(value: Any) -> Any:
    return value


# As much of Taichi as a kernel of these exercises needs.
TAICHI = SimpleNamespace(
    kernel=_same,
    func=_same,
    static=_same,
    types=SimpleNamespace(ndarray=lambda *_, **__: None),
    template=lambda: None,
    ndrange=lambda *ends: np.ndindex(*map(int, ends)),
    loop_config=lambda **_: None,
    Vector=lambda numbers, *_, **__: np.array(numbers, np.float64),
    cast=lambda value, _: value,
    min=min,
    max=max,
    i32=int,
    f32=float,
    f64=float,
)


def counted(kernel: Any, *arguments: Any) -> Count:
    """Run a kernel's source on copies of its arguments, and count.

    Raises:
        Refused: where the kernel uses something of Taichi that is not counted.
    """
    count = Count()
    scope: dict[str, Any] = {"np": np, "ti": TAICHI}
    exec(compile(kernel.text, f"<{kernel.name}>", "exec"), scope)
    counting = [
        _Array(a.copy(), count) if isinstance(a, np.ndarray) else _like(count, a) for a in arguments
    ]
    try:
        scope[kernel.name](*counting)
    except AttributeError as error:
        raise Refused(f"this cannot be counted: {error}") from error
    return count
