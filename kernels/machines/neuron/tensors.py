"""Tiles as the kernel sees them: slices and views; a modern tile has no operators."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import NeuronError, absent, place, refuse
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import ON_CHIP, Picked, View, lattice

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
    "lshift": "<<",
    "rshift": ">>",
}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
UNARY = {"neg": "-", "pos": "+", "invert": "~", "abs": "abs"}


class Span(NamedTuple):
    """nl.ds(start, size): so many elements from a start on."""

    start: Any
    size: int


class Register:
    """A number that an engine holds; the language guide calls it a virtual register."""

    def __init__(self, value: int | None = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "a register"

    def number(self) -> int:
        """What it holds."""
        if self.value is None:
            refuse("a register is read that nothing was moved into")
        return self.value

    def __bool__(self) -> bool:
        return self.number() != 0

    __int__ = __index__ = number


def sliced(view: View, key) -> Any:
    """view[key] for whole numbers, slices, nl.ds and an ellipsis. On chip a tile keeps its
    partitions and at least one dimension more."""
    keys = _spread(view, key)
    limits = machine().limits
    parts: list[slice] = []
    dropped: list[int] = []
    par, data, on_chip = view._par, view._data, view._on_chip
    for axis, one in enumerate(keys):
        size = data.shape[axis]
        if isinstance(one, slice):
            start, stop, step = _bounds(view, axis, one, limits)
        else:
            if limits and not -size <= one < size:
                refuse(f"index {one} of {view} is out of bounds: dimension {axis} has {size}")
            start = int(one) + size * (one < 0)
            stop, step = start + 1, 1
            if axis != par or not on_chip:
                dropped.append(axis)
        if limits and axis == par and step != 1 and on_chip:
            refuse(
                f"slice of {view} with step {step} along the partitions: an operand lies in "
                "neighbouring partitions"
            )
        parts.append(slice(start, stop, step))
    part = data[tuple(parts)]
    blocks = sum(axis < par for axis in dropped)
    while on_chip and len(dropped) > blocks and part.ndim - len(dropped) < 2:
        dropped.remove(next(axis for axis in dropped if axis > par))
    if dropped:
        part = part[tuple([0 if axis in dropped else slice(None) for axis in range(part.ndim)])]
    return view._like(part, par - blocks)


def _spread(view: View, key) -> list[Any]:
    """The key, one for each dimension."""
    keys = list(key) if isinstance(key, tuple) and not isinstance(key, Span) else [key]
    for at, one in enumerate(keys):
        if isinstance(one, Span):
            start = one.start.number() if isinstance(one.start, Register) else one.start
            keys[at] = slice(start, start + one.size, 1)
        elif isinstance(one, Register):
            keys[at] = one.number()
        elif isinstance(one, (bool, View)) or not isinstance(
            one, (int, np.integer, slice, type(Ellipsis))
        ):
            refuse(
                f"{view} is indexed with a {type(one).__name__}; accepted: whole numbers, slices, "
                "nl.ds and an ellipsis"
            )
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (view.ndim - len(keys) + 1)
    keys += [slice(None)] * (view.ndim - len(keys))
    if len(keys) > view.ndim:
        refuse(f"{view} is indexed in {len(keys)} dimensions, and has {view.ndim}")
    return keys


def _bounds(view: View, axis: int, one: slice, limits: bool) -> tuple[int, int, int]:
    size = view._data.shape[axis]
    if limits:
        start = 0 if one.start is None else one.start
        stop = size if one.stop is None else one.stop
        step = 1 if one.step is None else one.step
        if start < 0:
            start += size
        if stop < 0:
            stop += size
        # The end of a strided slice may lie beyond its last element.
        last = start + (stop - start - 1) // step * step if step > 0 else size
        if start == stop <= size and step > 0 and not view._on_chip:
            return start, stop, step  # of no elements: no instruction takes it
        if step < 1 or start < 0 or stop <= start or last >= size:
            text = f"{one.start or 0}:{size if one.stop is None else one.stop}"
            text += f":{step}" if step != 1 else ""
            refuse(f"slice {text} of {view} is out of bounds: dimension {axis} has {size} elements")
        return start, min(stop, size), step
    return one.indices(size)


def offsets(name: str, index) -> np.ndarray:
    """The numbers of a tile that steers an access."""
    if isinstance(index, Register):
        return np.array([index.number()])
    if not isinstance(index, View):
        refuse(f"{name}: the offset is a {type(index).__name__}; accepted: a tile or a register")
    core = machine()
    if not core.numbers:
        return np.zeros(index.shape[0] if index.size > 1 else 1, np.int64)
    core.check_written(name, index, whole=True)
    if not dtypes.is_integer(index.dtype):
        refuse(f"{name}: offsets {index} are {dtypes.name(index.dtype)}; accepted: whole numbers")
    return index._values().reshape(-1).astype(np.int64)


class Viewable(View):
    """A tile with the view methods of NkiTensor; all share its memory."""

    __slots__ = ()

    def __getitem__(self, key) -> Any:
        return sliced(self, key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return absent("a tile", name, [known for known in dir(type(self)) if known[0] != "_"])

    def _strided(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        first: int | None = None,
        dtype: np.dtype | None = None,
    ) -> Any:
        """Elements by a pattern, in bytes: NumPy's own does not take ml_dtypes."""
        raw = self._storage.data.reshape(-1).view(np.uint8)
        first = self._offset if first is None else first
        return self._like(np.ndarray(shape, dtype or self.dtype, raw, first, strides))

    def _keeps(self, method: str, dim: int) -> int:
        """A dimension that is none of the partitions."""
        at = dim + self.ndim if dim < 0 else dim
        if not 0 <= at < self.ndim:
            refuse(f"{method} of {self}: there is no dimension {dim}")
        if self._on_chip and at == 0:
            refuse(f"{method} of {self}: dimension 0 is the partitions, and stays")
        return at

    def permute(self, dims: Sequence[int]) -> Any:
        """Its dimensions in another order; on the chip the partitions stay first."""
        if sorted(dims) != list(range(self.ndim)):
            refuse(f"permute of {self} by {tuple(dims)}: no order of its dimensions")
        if self._on_chip and dims[0] != 0:
            refuse(f"permute of {self} by {tuple(dims)}: the partitions stay first")
        return self._like(self._data.transpose(dims))

    def broadcast(self, dim: int, size: int) -> Any:
        """A dimension of size 1 repeated."""
        at = self._keeps("broadcast", dim)
        return self.broadcast_to((*self.shape[:at], size, *self.shape[at + 1 :]))

    def broadcast_to(self, shape: Sequence[int]) -> Any:
        """Dimensions of size 1 repeated, all but the partitions."""
        wanted = tuple(shape)
        same = len(wanted) == self.ndim and all(n in (1, w) for n, w in zip(self.shape, wanted))
        if not same or (self._on_chip and wanted[0] != self.shape[0]):
            refuse(f"broadcast_to of {self} to {list(wanted)}: only dimensions of size 1 repeat")
        strides = [
            0 if n == 1 != w else s for n, w, s in zip(self.shape, wanted, self._data.strides)
        ]
        return self._strided(wanted, strides)

    def expand_dim(self, dim: int) -> Any:
        """A new dimension of size 1."""
        at = dim + self.ndim + 1 if dim < 0 else dim
        if self._on_chip and at == 0:
            refuse(f"expand_dim of {self}: dimension 0 is the partitions, and stays")
        return self._like(np.expand_dims(self._data, at))

    def squeeze_dim(self, dim: int) -> Any:
        """Without a dimension of size 1."""
        at = self._keeps("squeeze_dim", dim)
        if self.shape[at] != 1:
            refuse(f"squeeze_dim of {self}: dimension {dim} has {self.shape[at]} elements, not 1")
        return self._like(self._data.squeeze(at))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> Any:
        """One dimension split."""
        at = self._keeps("reshape_dim", dim) if len(shape) > 1 else dim
        return self.reshape((*self.shape[:at], *shape, *self.shape[at + 1 :]))

    def flatten_dims(self, start_dim: int, end_dim: int) -> Any:
        """Neighbouring dimensions merged."""
        at = self._keeps("flatten_dims", start_dim)
        end = end_dim + self.ndim if end_dim < 0 else end_dim
        return self.reshape((*self.shape[:at], -1, *self.shape[end + 1 :]))

    def rearrange(
        self,
        src_pattern: Sequence[Any],
        dst_pattern: Sequence[Any],
        fixed_sizes: Mapping[str, int] | None = None,
    ) -> Any:
        """Dimensions split, put in another order and merged, by names: ("b", ("h", "w")) to
        ("b", "w", "h") with {"h": 4}."""
        source, wanted = [
            [(one,) if isinstance(one, str) else tuple(one) for one in pattern]
            for pattern in (src_pattern, dst_pattern)
        ]
        names = [name for group in source for name in group]
        other = [name for group in wanted for name in group]
        what = f"rearrange of {self} from {src_pattern} to {dst_pattern}"
        if len(source) != self.ndim or sorted(names) != sorted(other) or len({*names}) < len(names):
            refuse(f"{what}: accepted: each dimension once on either side, as the tile has them")
        sizes = dict(fixed_sizes or {})
        for group, size in zip(source, self.shape):
            open_ = [name for name in group if name not in sizes]
            known = math.prod(sizes[name] for name in group if name in sizes)
            if len(open_) > 1 or size % known or (not open_ and size != known):
                refuse(f"{what}: {group} of {size} elements needs all sizes but one, and they fit")
            sizes.update(dict.fromkeys(open_, size // known))
        view = self
        for at in range(self.ndim - 1, -1, -1):
            if len(source[at]) > 1:
                view = view.reshape_dim(at, [sizes[name] for name in source[at]])
        view = view.permute([names.index(name) for name in other])
        for at, group in enumerate(wanted):
            if len(group) > 1:
                view = view.flatten_dims(at, at + len(group) - 1)
        return view

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> Any:
        """A range of one dimension."""
        keys = [slice(None)] * self.ndim
        keys[dim] = slice(start, end, step)
        return self[tuple(keys)]

    def select(self, dim: int, index) -> Any:
        """One element of a dimension, which goes away; index may be a tile of one number."""
        if isinstance(index, (View, Register)):
            (at,) = offsets("select", index)[:1]
            if machine().limits and not 0 <= at < self.shape[dim]:
                refuse(
                    f"select: index {at} of {self} is out of bounds: there are {self.shape[dim]}"
                )
            index = int(at)
        keys: list[Any] = [slice(None)] * self.ndim
        keys[dim] = index
        return self[tuple(keys)]

    @property
    def base_tensor(self) -> Any:
        """The tensor itself, where it is no view: kernels of AWS's library ask so."""
        if self._data.shape != self._storage.data.shape:
            refuse(f"not simulated: base_tensor of {self}, which is a part of a tensor")
        return self

    def view(self, dtype) -> Any:
        """The same bits as another dtype."""
        wanted = dtypes.of(dtype)
        data = self._data
        if data.strides[-1] != data.itemsize and wanted.itemsize != data.itemsize:
            refuse(
                f"view of {self} as {dtypes.name(wanted)}: its last dimension is not in one piece"
            )
        if (data.shape[-1] * data.itemsize) % wanted.itemsize:
            refuse(f"view of {self} as {dtypes.name(wanted)}: its rows are no multiple of that")
        return self._like(data.view(wanted), self._par if wanted.itemsize == data.itemsize else 0)

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset=None,
        vector_offset=None,
        indirect_dim: int = 0,
        dtype=None,
    ) -> Any:
        """Any pattern of [stride, size], of elements of the storage; offset counts from this view.
        scalar_offset and vector_offset are tiles (or a register) of numbers that count in steps of
        dimension `indirect_dim`, one for all or one for each of the pattern's first dimension."""
        storage = self._storage
        wanted = self.dtype if dtype is None else dtypes.of(dtype)
        item = wanted.itemsize
        elements = storage.data.nbytes // item
        first = self._offset // item + (offset or 0)
        shape = [int(size) for _, size in pattern]
        strides = [int(stride) for stride, _ in pattern]
        core = machine()
        if scalar_offset is None and vector_offset is None:
            reach = [s * (n - 1) for s, n in zip(strides, shape)]
            low, high = (first + sum(f(0, far) for far in reach) for f in (min, max))
            if low < 0 or high >= elements:
                beyond = high if high >= elements else low
                return Beyond(
                    f"ap of {self}: the pattern reaches element {beyond} of {elements}", place()
                )
            if core.limits and storage.buffer in ON_CHIP:
                row = storage.data.strides[0] // item
                if shape[0] > 1 and strides[0] != row:
                    refuse(
                        f"ap of {self}: the first step is {strides[0]} elements; a partition has "
                        f"{row}, and an operand lies in neighbouring partitions"
                    )
                low, high = (first % row + sum(f(0, far) for far in reach[1:]) for f in (min, max))
                if low < 0 or high >= row:
                    return Beyond(
                        f"ap of {self}: the pattern takes elements {low} to {high} of a partition, "
                        f"which has {row}: nothing reaches from one into the next",
                        place(),
                    )
            return self._strided(shape, [s * item for s in strides], first * item, wanted)
        step = self.strides[indirect_dim]
        numbers = offsets("ap", vector_offset if scalar_offset is None else scalar_offset)
        outside = (numbers < 0) | (numbers >= self.shape[indirect_dim])
        lines = [np.arange(size) * stride for stride, size in zip(strides, shape)]
        if vector_offset is None:
            places = lattice(first + int(numbers[0]) * step, lines)
            return indirect(self, places, np.broadcast_to(outside[:1], shape[:1]))
        if numbers.size < shape[0]:
            refuse(f"ap of {self}: {numbers.size} offsets for {shape[0]} partitions")
        places = lattice(first, [numbers[: shape[0]] * step, *lines[1:]])
        return indirect(self, places, outside[: shape[0]])


class Beyond:
    """A pattern that reaches out of its tile: a kernel may make it, and must not use it."""

    def __init__(self, message: str, source: str | None) -> None:
        self._error = NeuronError(message, source)

    def __getattr__(self, name: str) -> Any:
        raise self._error

    def __getitem__(self, key) -> Any:
        raise self._error


def indirect(view: Viewable, places: np.ndarray, bad: np.ndarray) -> Any:
    """Elements that numbers choose, `bad` where one of the first dimension is out of bounds."""
    kind = _INDIRECT.setdefault(
        type(view), type("Indirect", (Picked, type(view)), {"__slots__": ("_bad",)})
    )
    picked = kind(view._storage, places, None, view._storage.data)
    picked._bad = bad
    return picked


_INDIRECT: dict[type, type] = {}


class Tensor(Viewable):
    """A tile of modern NKI: it is sliced and handed to instructions, and has no operators."""

    __slots__ = ()

    def __setitem__(self, key, value) -> None:
        refuse(f"assignment into {self}: instructions write into dst, as in nisa.tensor_copy")

    def __array_ufunc__(self, ufunc, method: str, *inputs, **options) -> Any:
        refuse(f"np.{ufunc.__name__} of {self}: NumPy knows no tile, call an instruction")

    def __array_function__(self, function, types, args, kwargs) -> Any:
        refuse(f"np.{function.__name__} of {self}: NumPy knows no tile, call an instruction")

    __hash__ = object.__hash__


def _operator(name: str, sign: str) -> Any:
    def refused(self: Tensor, other=None) -> Any:
        if other is None and sign in ("==", "!="):
            return sign == "!="
        if machine().limits:
            other = "a tile" if isinstance(other, View) else other
            what = f"the operator {sign} on {self}" + ("" if name in UNARY else f" and {other}")
            refuse(
                f"{what}: a tile has no operators, call an instruction such as nisa.tensor_tensor"
            )
        function = getattr(np.ndarray, f"__{name}__")
        values = other._data if isinstance(other, View) else other
        with np.errstate(all="ignore"):
            more = () if name in UNARY else (np.asarray(values, self.dtype),)
            result = function(self._data, *more)
        tile = machine().allocate(result.shape, result.dtype, "sbuf", kind=Tensor)
        machine().write("operator", tile, result)
        return tile

    return refused


for _name, _sign in {**COMPARISONS, **UNARY}.items():
    setattr(Tensor, f"__{_name}__", _operator(_name, _sign))
for _name, _sign in ARITHMETIC.items():
    for _each in (_name, f"r{_name}"):
        setattr(Tensor, f"__{_each}__", _operator(_each, _sign))
    setattr(Tensor, f"__i{_name}__", _operator(_name, _sign))
