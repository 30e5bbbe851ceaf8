"""Memories that know what was written: storages, and the views of them that a kernel holds.

A tile is a NumPy array, and one more of the same shape that says of each element whether it was
written, unless all elements are in the same state. Views share both.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kernels.machines.neuron.chips import CHIPS, NeuronChip, target
from kernels.machines.neuron.errors import place, refuse

SBUF, PSUM, HBM, SHARED_HBM = "sbuf", "psum", "private_hbm", "shared_hbm"
ON_CHIP = (SBUF, PSUM)

# What is known of an element. UNDEFINED: left out by a mask, or made from what was never written,
# so anything. SUMMED: written by the Tensor engine, which adds to it the next time. READ: in HBM,
# written and read since, so that it may be written again.
UNWRITTEN, WRITTEN, UNDEFINED, SUMMED, READ = range(5)

# The NeuronMachine of the run that is going on.
running: ContextVar[Any] = ContextVar("machine", default=None)


class Access(NamedTuple):
    """What an instruction touches of a storage."""

    storage: int  # its number
    box: tuple[tuple[int, int], ...] | None  # the range in each dimension; None where it has none
    partitions: tuple[int, int]  # the range of partitions
    elements: tuple[int, int]  # the range of bytes in each partition (of all, in HBM)
    # Where it takes steps, it is within `tooth` bytes from the start on, and again every `comb`
    # bytes; comb is 0 where nothing is known of that.
    comb: int = 0
    tooth: int = 0

    def meets(self, other: Access) -> bool:
        """Whether the two share an element, as far as their ranges and steps say."""
        comb = math.gcd(self.comb, other.comb)
        if self.comb and other.comb:
            ahead = (other.elements[0] - self.elements[0]) % comb
            if ahead >= self.tooth and comb - ahead >= other.tooth:
                return False
        return self.overlaps(other)

    def overlaps(self, other: Access) -> bool:
        """Whether the two may share an element."""
        (a, b), (c, d) = self.elements, other.elements
        if not (a < d and c < b):
            return False
        (a, b), (c, d) = self.partitions, other.partitions
        if not (a < d and c < b):
            return False
        return all(a < d and c < b for (a, b), (c, d) in zip(self.box or (), other.box or ()))

    def covers(self, other: Access) -> bool:
        """Whether every element of the other is one of this."""
        if self.box is None or other.box is None:
            return False
        return all(a <= c and d <= b for (a, b), (c, d) in zip(self.box, other.box))


class EngineInstruction(NamedTuple):
    """One instruction that ran."""

    engine: str  # "Vector", … or "DMA"
    name: str  # of the API
    elements: int  # a partition, of the longest operand
    stride: int  # bytes between neighbours in a partition, the widest of all operands
    partitions: int  # that it works on
    psum: bool  # whether it touches PSUM
    sbuf: bool  # whether it touches SBUF
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    source: str | None
    program: int  # of the launch grid
    # Whether the iteration before has made the same, so that a compiler moves it out of the loop.
    hoisted: bool
    work: float = 0  # cycles that it streams, by the documents, before the least that any takes
    extra: int = 0  # cycles on top, such as the start of a GpSimd program
    bytes: int = 0  # that a DMA moves, in pieces of `run` bytes that lie together on both sides
    run: int = 0
    fast: int = 1  # how many times faster it is on a core with a performance mode
    fresh: bool = False  # whether all that it writes was unwritten
    # Whether it is left to the compiler if the Vector or the Scalar engine does it.
    either: bool = False


class Room(NamedTuple):
    """What is remembered of a storage when it is gone: what it, or each of its blocks, took of a
    partition; and how many bytes a block has in all, 0 where there is one."""

    buffer: str
    partition_bytes: int
    label: str
    source: str | None
    block: int = 0


@dataclass(eq=False, slots=True)
class Storage:
    """The memory behind a tile and its views."""

    number: int
    data: np.ndarray
    buffer: str
    name: str
    uniform: int  # the state of all elements, while `state` is None
    par: int  # the dimension of the partitions; those before it are blocks
    source: str | None
    born: tuple[tuple[int, int], ...]  # the iterations of independent loops in which it was made
    base: int  # the partition it starts at, where the kernel says so
    state: np.ndarray | None = None
    stored: bool = False  # whether an instruction wrote to it
    streamed: bool = False  # whether it stands in PSUM, as far as time goes
    scattered: bool = False  # whether numbers have chosen where
    left: np.ndarray | None = None  # what the mask of the instruction that made it left out

    @property
    def partition_bytes(self) -> int:
        """Bytes that it takes of each partition; of several blocks, each."""
        return math.prod(self.data.shape[self.par + 1 :]) * self.data.itemsize

    @property
    def block_bytes(self) -> int:
        """Bytes of a block, where there are several."""
        return math.prod(self.data.shape[self.par :]) * self.data.itemsize if self.par else 0

    def states(self) -> np.ndarray:
        """The state of each element, in an array of its own."""
        if self.state is None:
            self.state = np.full(self.data.shape, self.uniform, np.uint8)
        return self.state


def _box(whole: np.ndarray, part: np.ndarray, offset: int) -> tuple[tuple[int, int], ...] | None:
    """The range in each dimension of an array in one piece that a view of it, so many bytes from
    its start, takes whole or in steps; None where it takes no such ranges."""
    strides, sizes = (*whole.strides, 1), (*whole.shape, whole.itemsize)
    firsts = []
    for stride in strides:
        firsts.append(offset // stride)
        offset %= stride
    box = [(first, first + n) for first, n in zip(firsts, part.shape)]
    alike = part.strides == whole.strides and part.itemsize == whole.itemsize
    if alike and all(end <= n for (_, end), n in zip(box, sizes)):
        return tuple(box)  # a slice without steps, as most are
    box = [(first, first + 1) for first in firsts]
    runs = [(1, part.itemsize)]  # step and number, in bytes: first what lies in one piece
    for step, n in sorted(zip(part.strides, part.shape)):
        if step < 1 < n:
            return None
        if runs == [(1, step)]:
            runs = [(1, step * n)]
        elif n > 1:
            runs.append((step, n))
    for step, n in runs:
        at = next(at for at, stride in enumerate(strides) if step % stride == 0)
        step //= strides[at]
        # What fills a dimension goes on in the one before it.
        while n > sizes[at] and (step, *box[at]) == (1, 0, 1) and at and n % sizes[at] == 0:
            box[at] = (0, sizes[at])
            n, at = n // sizes[at], at - 1
        (first, end), last = box[at], box[at][0] + step * (n - 1)
        if end - first > 1 or last >= sizes[at]:
            return None
        box[at] = (first, last + 1)
    *box, inside = box
    return tuple(box) if inside == (0, whole.itemsize) else None


def _steps(data: np.ndarray) -> tuple[int, int]:
    """How far apart the pieces of a partition lie, in bytes, and how long one is."""
    tooth, comb = data.itemsize, 0
    for stride, size in zip(reversed(data.strides[1:]), reversed(data.shape[1:])):
        if size == 1:
            continue
        if stride == tooth and not comb:
            tooth *= size
        else:
            comb = math.gcd(comb, stride)
    return (comb, tooth) if comb > tooth else (0, 0)


@dataclass(eq=False, repr=False, slots=True)
class View:
    """A tile or a part of one. Subclasses say what a kernel may do with it."""

    _storage: Storage
    _data: np.ndarray
    _par: int = 0  # the dimension of the partitions, 0 when blocks are chosen
    _seen: Access | None = field(default=None, init=False)

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    buffer = property(lambda self: self._storage.buffer)
    name = property(lambda self: self._storage.name)
    itemsize = property(lambda self: self._data.itemsize)
    _on_chip = property(lambda self: self._storage.buffer in ON_CHIP)
    _elements = property(lambda self: math.prod(self._data.shape[1:]))  # in each partition

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours in each dimension."""
        return tuple(stride // self._data.itemsize for stride in self._data.strides)

    @property
    def offset(self) -> int:
        """Elements before the first one, in a partition where it is on the chip."""
        return self._offset // self._data.itemsize

    @property
    def _offset(self) -> int:
        """Bytes from the start of the storage."""
        return _address(self._data) - _address(self._storage.data)

    @property
    def _start(self) -> int:
        """The first partition."""
        storage = self._storage
        if storage.buffer not in ON_CHIP:
            return 0
        step = storage.data.strides[storage.par]
        return (self._offset // step) % storage.data.shape[storage.par] + storage.base

    def _neighbours(self) -> bool:
        """Whether its partitions follow each other."""
        storage = self._storage
        return self._data.strides[0] == storage.data.strides[storage.par]

    @property
    def _stride(self) -> int:
        """Bytes between neighbours of the innermost dimension that has more than one element."""
        data = self._data
        for stride, size in zip(reversed(data.strides[1:]), reversed(data.shape[1:])):
            if size > 1:
                return abs(stride)
        return data.itemsize

    @property
    def _run(self) -> int:
        """Bytes that lie together, of each partition on the chip."""
        data, run = self._data, self._data.itemsize
        first = 1 if self._on_chip else 0
        for stride, size in zip(reversed(data.strides[first:]), reversed(data.shape[first:])):
            if size > 1 and stride != run:
                break
            run *= size
        return run

    def _access(self) -> Access:
        if self._seen is None:
            self._seen = self._make_access()
        return self._seen

    def _make_access(self) -> Access:
        storage, data, low = self._storage, self._data, self._offset
        span = sum(abs(stride) * (size - 1) for stride, size in zip(data.strides, data.shape))
        box = _box(storage.data, data, low)
        if storage.buffer in ON_CHIP and storage.par == 0 and self._par == 0:
            rows = data.shape[0]
            lane, low = divmod(low, storage.data.strides[0])
            span -= abs(data.strides[0]) * (rows - 1)
            elements = (low, low + span + data.itemsize)
            return Access(storage.number, box, (lane, lane + rows), elements, *_steps(data))
        return Access(storage.number, box, (0, 1 << 30), (low, low + span + data.itemsize))

    def __repr__(self) -> str:
        return f"{self._storage.name} {list(self._data.shape)} in {self._storage.buffer}"

    def _values(self) -> np.ndarray:
        return self._data

    def _put(self, values: np.ndarray) -> None:
        self._data[...] = values

    def _states(self) -> np.ndarray | int:
        """The state of each element, or the one of all. An array may be written to."""
        storage = self._storage
        if storage.state is None:
            return storage.uniform
        item, data = storage.data.itemsize, self._data
        if data.itemsize == item:
            strides = [stride // item for stride in data.strides]
            return np.ndarray(data.shape, np.uint8, storage.state, self._offset // item, strides)
        return storage.state.reshape(-1)[self._places()]

    def _mark(self, state: int) -> None:
        storage = self._storage
        data = self._data
        if data.nbytes == storage.data.nbytes and not self._repeats():
            storage.state, storage.uniform = None, state
        elif storage.state is not None or storage.uniform != state:
            if data.itemsize == storage.data.itemsize:
                self._change(..., state)
            else:
                flat = storage.states().reshape(-1)
                for extra in range(max(1, data.itemsize // storage.data.itemsize)):
                    flat[self._places() + extra] = state

    def _change(self, where, state) -> None:
        self._storage.states()
        seen = self._states()
        assert isinstance(seen, np.ndarray)
        seen[where] = state

    def _repeats(self) -> bool:
        """Whether several elements are one in memory."""
        return any(step == 0 and n > 1 for step, n in zip(self._data.strides, self.shape))

    def _places(self) -> np.ndarray:
        """Of each element, the number of the storage's element that it starts in."""
        lines = [np.arange(n) * stride for stride, n in zip(self._data.strides, self.shape)]
        return lattice(self._offset, lines) // self._storage.data.itemsize

    def __len__(self) -> int:
        refuse(f"len({self}): a tile has a shape, and no length in a kernel")

    def __iter__(self) -> Iterator[Any]:
        refuse(f"a loop over {self}: loop over a range, and slice the tile")

    def _no_number(self) -> Any:
        refuse(f"the truth of {self}: its numbers are not known before the kernel runs")

    def __bool__(self) -> bool:
        # A tensor is there or is None: kernels ask so for an argument that may be left out.
        whole = self._data.shape == self._storage.data.shape and self._data.size > 1
        if not whole or (self._on_chip and running.get() is not None and running.get().beta1):
            return bool(self._no_number())
        if self._on_chip:
            warnings.warn(
                f"the truth of {self} is that it is there: its numbers are not known before the "
                f"kernel runs ({place()})",
                stacklevel=2,
            )
        return True

    __float__ = __int__ = __index__ = _no_number

    def _like(self, data: np.ndarray, par: int = 0) -> Any:
        return type(self)(self._storage, data, par)

    def reshape(self, *sizes, shape=None) -> Any:
        """The same memory in another shape; on chip the partitions stay."""
        sizes = sizes if shape is None else (shape,)
        wanted = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        data = self._data.view()
        try:
            data.shape = wanted  # refuses to copy
        except (AttributeError, ValueError):
            refuse(f"reshape of {self} to {list(wanted)}: not the same elements in one piece")
        held = running.get() is not None and running.get().limits
        if held and self._on_chip and self._par == 0 and data.shape[0] != self.shape[0]:
            refuse(f"reshape of {self} to {list(wanted)}: the partitions cannot change")
        return self._like(data)


class Picked(View):
    """Elements of a tile, one for each of an array of places, its number in the storage: indirect
    access, and index grids. `taken` says where it is taken; None for all."""

    __slots__ = ("_flat", "_taken")

    def __init__(
        self, storage: Storage, places: np.ndarray, taken: np.ndarray | None, like: np.ndarray
    ) -> None:
        data = np.broadcast_to(like.reshape(-1)[:1].reshape((1,) * places.ndim), places.shape)
        super().__init__(storage, data)
        self._flat = places
        self._taken = taken

    def _make_access(self) -> Access:
        storage, flat = self._storage, self._chosen()
        item = storage.data.itemsize
        low, high = (int(flat.min()), int(flat.max()) + 1) if flat.size else (0, 0)
        if storage.buffer in ON_CHIP and storage.par == 0:
            row = storage.data.strides[0] // item
            lanes = (low // row, (high - 1) // row + 1) if flat.size else (0, 0)
            inside = flat % row
            low, high = (int(inside.min()), int(inside.max()) + 1) if flat.size else (0, 0)
            return Access(storage.number, None, lanes, (low * item, high * item))
        return Access(storage.number, None, (0, 1 << 30), (low * item, high * item))

    @property
    def _start(self) -> int:
        storage = self._storage
        row = storage.data.strides[storage.par] // storage.data.itemsize
        return int(self._flat.flat[0] // row) % storage.data.shape[storage.par] + storage.base

    def _neighbours(self) -> bool:
        storage = self._storage
        row = storage.data.strides[storage.par] // storage.data.itemsize
        lanes = self._flat.reshape(self.shape[0], -1) // row
        return bool((np.diff(lanes[:, 0]) == 1).all() and (lanes == lanes[:, :1]).all())

    @property
    def _stride(self) -> int:
        flat = self._flat
        if self._on_chip and flat.shape[-1] > 1:
            step = abs(int(flat[(0,) * (flat.ndim - 1) + (1,)]) - int(flat[(0,) * flat.ndim]))
            return step * self._storage.data.itemsize
        return self._storage.data.itemsize

    @property
    def _run(self) -> int:
        row = self._flat.reshape(-1, self._flat.shape[-1])[0]
        broken = np.flatnonzero(np.diff(row) != 1)
        return int(broken[0] + 1 if broken.size else row.size) * self._storage.data.itemsize

    def _places(self) -> np.ndarray:
        return self._flat

    def _inside(self) -> np.ndarray:
        return np.clip(self._flat, 0, self._storage.data.size - 1)

    def _values(self) -> np.ndarray:
        return self._storage.data.reshape(-1)[self._inside()]

    def _put(self, values: np.ndarray) -> None:
        flat = self._storage.data.reshape(-1)
        flat[self._chosen()] = self._chosen(np.broadcast_to(values, self._flat.shape))

    def _states(self) -> np.ndarray | int:
        storage = self._storage
        if storage.state is None and self._taken is None:
            return storage.uniform
        states = storage.states().reshape(-1)[self._inside()]
        if self._taken is None:
            return states
        return np.where(self._taken, states, np.uint8(UNDEFINED))

    def _chosen(self, of_each: np.ndarray | None = None) -> np.ndarray:
        """Of the places, or of what is there for each of them, those that are taken."""
        of_each = self._flat if of_each is None else of_each
        if self._taken is None:
            return of_each
        return of_each[np.broadcast_to(self._taken, self._flat.shape)]

    def _mark(self, state: int) -> None:
        flat = self._storage.states().reshape(-1)
        flat[self._chosen()] = state
        if state == WRITTEN and self._flat.size >= flat.size and (flat == state).all():
            self._storage.state, self._storage.uniform = None, state

    def _change(self, where, state) -> None:
        states = self._storage.states().reshape(-1)
        kept = np.broadcast_to(True if self._taken is None else self._taken, self.shape)[where]
        states[self._flat[where][kept]] = np.broadcast_to(state, kept.shape)[kept]

    def reshape(self, *sizes, shape=None) -> Picked:
        taken, sizes = self._taken, sizes if shape is None else (shape,)
        if taken is not None:
            taken = np.broadcast_to(taken, self._flat.shape).reshape(*sizes)
        return self._again(self._flat.reshape(*sizes), taken)

    def _again(self, places: np.ndarray, taken: np.ndarray | None) -> Picked:
        return type(self)(self._storage, places, taken, self._storage.data)


def whole(storage: Storage, kind: type) -> Any:
    """The view of all of a storage."""
    return kind(storage, storage.data, storage.par)


def lattice(first: int, lines: list[np.ndarray]) -> np.ndarray:
    """first + a number of each line, for each combination of them."""
    return functools.reduce(np.add.outer, lines, np.asarray(first))


def _address(data: np.ndarray) -> int:
    return data.__array_interface__["data"][0]


def has_nan(dtype: np.dtype) -> bool:
    return dtype.fields is None and dtype.kind not in "iub"


def is_undefined(states) -> np.ndarray:
    """Where an element is anything."""
    marks: np.ndarray = (states == UNDEFINED) | (states == UNWRITTEN)
    return marks


def spoiled(values: np.ndarray, states: np.ndarray | None) -> np.ndarray:
    """The numbers with "not a number" where they are undefined, if their type has it."""
    if states is None or not has_nan(values.dtype):
        return values
    return np.where(is_undefined(states), np.array(np.nan, values.dtype), values)


class TileSize:
    """nl.tile_size: what a tile may have. Outside a kernel, of the chip simulated by default."""

    @property
    def _chip(self) -> NeuronChip:
        core = running.get()
        return CHIPS[target()] if core is None else core.chip

    pmax = property(lambda self: self._chip.lanes, doc="Partitions of a tile.")
    psum_bank_fmax = property(
        lambda self: self._chip.psum_bank_bytes // 4, doc="float32 in a PSUM bank."
    )
    psum_fmax = psum_bank_fmax  # until NKI 0.3
    gemm_stationary_fmax = property(lambda self: 128, doc="Columns of a stationary tile.")
    gemm_moving_fmax = property(lambda self: 512, doc="Columns of a moving tile.")
    bn_stats_fmax = property(lambda self: 512, doc="Elements of bn_stats.")
    total_available_sbuf_size = property(
        lambda self: self._chip.sbuf_bytes, doc="Bytes of a partition; until NKI 0.3."
    )
