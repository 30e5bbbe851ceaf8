"""What a Taichi kernel does, counted: its source runs as plain Python, on arrays that keep count.

The compiler may do with less, or do it several times at once; this counts what the source asks
for, which is the same on every machine. What threads would share is refused, and so is a kernel
that leaves most of its work to one of them.
"""

import ast
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.proof.ladder import Refused

SERIAL = r"serialize=True|parallelize=1\b"  # of a loop that threads do not share
AT_ONCE = "turns of the outermost loop run at the same time, and"


class Count:
    """What a kernel did: loads and stores of elements, divisions and remainders."""

    def __init__(self) -> None:
        self.loads = self.stores = self.divisions = 0
        self.turn = self.first = 0  # of an outermost loop: the turn that runs, the first beside it
        self.spread, self.longest = 0, 0  # loads and stores of its turns, and the most of one

    @property
    def accesses(self) -> int:
        """Loads and stores together."""
        return self.loads + self.stores

    def divided(self, divisor: Any) -> Any:
        """Count a division by this number."""
        self.divisions += 1
        return divisor

    def parallel(self, loop: Iterable[Any], *changed: str) -> Iterator[Any]:
        """An outermost loop, with the variables from before it that it changes."""
        if changed:
            raise Refused(f"{AT_ONCE} all of them change the variable {changed[0]}")
        self.first = self.turn + 1
        for value in loop:
            self.turn, before = self.turn + 1, self.accesses
            yield value
            self.spread += self.accesses - before
            self.longest = max(self.longest, self.accesses - before)
        self.turn = self.first = self.turn + 1  # what follows waits for all of them


class _Array:
    """An array that counts what is read and written, and knows by which turn."""

    def __init__(self, name: str, array: np.ndarray, count: Count):
        self.name, self.array, self.shape, self.count = name, array.copy(), array.shape, count
        self.reader, self.writer = (np.full(array.shape, -1) for _ in range(2))

    def _place(self, place: Any, *users: np.ndarray) -> tuple[int, ...]:
        place = tuple(int(i) for i in (place if isinstance(place, tuple) else (place,)))
        if not all(0 <= i < n for i, n in zip(place, self.shape, strict=True)):
            raise Refused(f"element {list(place)} is outside of {list(self.shape)}")
        turn, first = self.count.turn, self.count.first
        for other in (user[place] for user in users):
            if first <= other != turn:
                where = f"element {list(place)} of {self.name}"
                raise Refused(f"{AT_ONCE} {other - first} and {turn - first} share {where}")
        return place

    def __getitem__(self, place: Any) -> Any:
        self.count.loads += 1
        place = self._place(place, self.writer)
        if self.reader[place] < self.count.first:  # of several readers the first will do
            self.reader[place] = self.count.turn
        return self.array[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.count.stores += 1
        place = self._place(place, self.writer, self.reader)
        self.array[place], self.writer[place] = value, self.count.turn


# As much of Taichi as a kernel of these exercises needs.
TAICHI = SimpleNamespace(
    **dict.fromkeys(("kernel", "func", "static"), lambda value: value),
    **dict.fromkeys(("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"), int),
    **dict.fromkeys(("f16", "f32", "f64"), float),
    **{name: getattr(math, name) for name in ("ceil", "exp", "floor", "log", "pow", "sqrt")},
    **{function.__name__: function for function in (abs, max, min, round)},
    types=SimpleNamespace(ndarray=lambda *_, **__: None),
    template=lambda: None,
    ndrange=lambda *ends: itertools.product(
        *(range(*(end if isinstance(end, tuple) else (end,))) for end in ends)
    ),
    loop_config=lambda **_: None,
    Vector=lambda numbers, *_, **__: np.array(numbers, np.float64),
    cast=lambda value, kind: kind(value),
)


class _Counted(ast.NodeTransformer):
    """Asks the count at each division, and for the turns of each loop that threads share."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        before: set[str] = set()
        for line, above in zip(node.body, [node, *node.body]):
            serial = isinstance(above, ast.Expr) and re.search(SERIAL, ast.unparse(above))
            if isinstance(line, ast.For) and not serial and "static(" not in ast.unparse(line.iter):
                changed = map(ast.Constant, sorted(before & _bound(*line.body)))
                line.iter = _asked("parallel", line.iter, *changed)
            else:
                before |= _bound(line)
        return self.generic_visit(node)

    def visit_BinOp(self, node: Any) -> ast.AST:
        if isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)):
            part = "right" if isinstance(node, ast.BinOp) else "value"
            setattr(node, part, _asked("divided", getattr(node, part)))
        return self.generic_visit(node)

    visit_AugAssign = visit_BinOp


def _asked(method: str, *arguments: Any) -> ast.Call:
    attribute = ast.Attribute(ast.Name("__count__", ast.Load()), method, ast.Load())
    return ast.Call(attribute, [*arguments], [])


def _bound(*nodes: ast.AST) -> set[str]:
    names = [n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def counted(kernel: Any, *arguments: Any) -> Count:
    """Run a kernel's source on copies of its arguments, and count.

    Raises:
        Refused: where the kernel uses something of Taichi that is not counted, where turns of an
            outermost loop meet, and where one of them has more than half of the work.
    """
    count = Count()
    tree = ast.fix_missing_locations(_Counted().visit(ast.parse(kernel.text)))
    scope: dict[str, Any] = {"np": np, "ti": TAICHI, "__count__": count}
    exec(compile(tree, f"<{kernel.name}>", "exec"), scope)
    run = scope[kernel.name]
    pairs = zip(run.__code__.co_varnames, arguments)
    try:
        run(*(_Array(n, a, count) if isinstance(a, np.ndarray) else a for n, a in pairs))
    except AttributeError as error:
        raise Refused(f"this cannot be counted: {error}") from error
    alone = max(count.longest, count.accesses - count.spread)
    if 2 * alone > count.accesses:
        raise Refused(f"one thread does {alone / count.accesses:.0%} of the work")
    return count
