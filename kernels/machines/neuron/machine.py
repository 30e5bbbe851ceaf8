"""A NeuronCore in NumPy: memories that know what was written, and instructions that are recorded.

A tile is a NumPy array, and one more of the same shape that says of each element whether it was
written, unless all elements are in the same state. Views share both. Whatever touches a tile goes
through `read` and `write`, which hold the core's limits; `note` records the instruction for the
estimate, and for the search for loops whose iterations depend on each other.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.chips import CHIPS, PARTITIONS, Chip
from kernels.machines.neuron.errors import NeuronError, place, refuse

SBUF, PSUM, HBM, SHARED_HBM = "sbuf", "psum", "private_hbm", "shared_hbm"
ON_CHIP = (SBUF, PSUM)

# What is known of an element. UNDEFINED: left out by a mask, or made from what was never written,
# so anything. SUMMED: written by the Tensor engine, which adds to it the next time. READ: in HBM,
# written and read since, so that it may be written again.
UNWRITTEN, WRITTEN, UNDEFINED, SUMMED, READ = range(5)


class Access(NamedTuple):
    """What an instruction touches of a storage.

    Args:
        storage: its number.
        box: the range in each dimension; None where it has none.
        partitions: the range of partitions.
        elements: the range of bytes in each partition (of all, in HBM).
        comb, tooth: where it takes steps, it is within `tooth` bytes from the start on, and
            again every `comb` bytes; comb is 0 where nothing is known of that.
    """

    storage: int
    box: tuple[tuple[int, int], ...] | None
    partitions: tuple[int, int]
    elements: tuple[int, int]
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
        if self.box is None or other.box is None:
            return True
        return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box))

    def covers(self, other: Access) -> bool:
        """Whether every element of the other is one of this."""
        if self.box is None or other.box is None:
            return False
        return all(a <= c and d <= b for (a, b), (c, d) in zip(self.box, other.box))


class Instruction(NamedTuple):
    """One instruction that ran.

    Args:
        engine: "Vector", … or "DMA".
        name: of the API.
        elements: a partition, of the longest operand.
        work: cycles that it streams, by the documents, before the least that any takes.
        extra: cycles on top, such as the start of a GpSimd program.
        stride: bytes between neighbours in a partition, the widest of all operands.
        bytes: that a DMA moves, in pieces of `run` bytes that lie together on both sides.
        partitions: that it works on.
        psum, sbuf: whether it touches them.
        fast: how many times faster it is on a core with a performance mode.
        fresh: whether all that it writes was unwritten.
        program: of the launch grid.
        hoisted: whether the iteration before has made the same, so that a compiler moves it
            out of the loop.
        either: whether it is left to the compiler if the Vector or the Scalar engine does
            it.
    """

    engine: str
    name: str
    elements: int
    work: float
    extra: int
    stride: int
    partitions: int
    bytes: int
    run: int
    psum: bool
    sbuf: bool
    fast: int
    fresh: bool
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    source: str | None
    program: int
    hoisted: bool = False
    either: bool = False


class _Body:
    """What one iteration of a loop does, and how that moves from one to the next: every number of a
    storage, and every bound of what is touched, by a constant step.

    now: the instructions of an iteration. steps: for each, those of its accesses. rooms: of the
    storages that it makes.
    """

    def __init__(
        self, now: list[Instruction], steps: list[list[list[int]]], rooms: list[Room]
    ) -> None:
        self.now, self.steps, self.rooms = now, steps, rooms

    @classmethod
    def of(
        cls,
        instructions: Sequence[Instruction],
        rooms: Sequence[Room],
        starts: Sequence[tuple[int, int]],
    ) -> _Body | None:
        """From two iterations that begin at `starts`; None where they are not alike."""
        (one, room), (two, other), (end, last) = starts
        before, now = list(instructions[one:two]), list(instructions[two:end])
        made = [
            [each._replace(label="") for each in rooms[a:b]]
            for a, b in pairwise((room, other, last))
        ]
        if not now or len(before) != len(now) or made[0] != made[1]:
            return None
        steps = []
        for old, new in zip(before, now):
            if not _alike(old, new):
                return None
            pairs = zip((*old.reads, *old.writes), (*new.reads, *new.writes))
            moved = [_step(a, b) for a, b in pairs]
            if None in moved:
                return None
            steps.append(moved)
        return cls(now, steps, list(rooms[other:last]))  # type: ignore[arg-type]

    def instructions(self, ahead: int) -> list[Instruction]:
        """Those of an iteration so many after the last one known."""
        found = []
        for each, steps in zip(self.now, self.steps):
            reads = len(each.reads)
            moved = [
                _moved(access, step, ahead)
                for access, step in zip((*each.reads, *each.writes), steps)
            ]
            found.append(each._replace(reads=tuple(moved[:reads]), writes=tuple(moved[reads:])))
        return found

    def gives(self, ahead: int, instructions: Sequence[Instruction]) -> bool:
        """Whether these are what that iteration was expected to do."""
        expected = self.instructions(ahead)
        return len(expected) == len(instructions) and all(
            _alike(a, b) and (a.reads, a.writes) == (b.reads, b.writes)
            for a, b in zip(expected, instructions)
        )


def _alike(one: Instruction, other: Instruction) -> bool:
    """Whether two are the same but for what they touch."""
    same = len(one.reads) == len(other.reads) and len(one.writes) == len(other.writes)
    return same and one == other._replace(reads=one.reads, writes=one.writes)


def _flat(access: Access) -> list[int]:
    box = [bound for pair in access.box or () for bound in pair]
    return [access.storage, *access.partitions, *access.elements, *box]


def _step(one: Access, other: Access) -> list[int] | None:
    """How far each number of an access moves; None where the two have different forms."""
    a, b = _flat(one), _flat(other)
    if len(a) != len(b) or (one.box is None) != (other.box is None):
        return None
    return [y - x for x, y in zip(a, b)]


def _moved(access: Access, step: list[int], ahead: int) -> Access:
    """An access so many steps further on."""
    if not any(step):
        return access
    storage, *numbers = [x + ahead * by for x, by in zip(_flat(access), step)]
    pairs = list(zip(numbers[::2], numbers[1::2]))
    return access._replace(
        storage=storage,
        box=None if access.box is None else tuple(pairs[2:]),
        partitions=pairs[0],
        elements=pairs[1],
    )


class Room(NamedTuple):
    """What is remembered of a storage when it is gone: what it, or each of its blocks, took of a
    partition; and how many bytes a block has in all, 0 where there is one."""

    buffer: str
    partition_bytes: int
    label: str
    source: str | None
    block: int = 0


class Storage:
    """The memory behind a tile and its views.

    par: the dimension of the partitions; those before it are blocks. born: the iterations of
    independent loops in which it was made.
    """

    __slots__ = (
        "base",
        "born",
        "buffer",
        "data",
        "name",
        "number",
        "par",
        "scattered",
        "source",
        "state",
        "stored",
        "streamed",
        "uniform",
    )

    def __init__(
        self,
        number: int,
        data: np.ndarray,
        buffer: str,
        name: str,
        state: int,
        par: int = 0,
        source: str | None = None,
        born: tuple[tuple[int, int], ...] = (),
        base: int = 0,
    ) -> None:
        self.number = number
        self.data = data
        self.buffer = buffer
        self.name = name
        self.par = par
        self.state: np.ndarray | None = None
        self.uniform = state  # of all elements, while `state` is None
        self.stored = False  # whether an instruction wrote to it
        self.streamed = False  # whether it stands in PSUM, as far as time goes
        self.scattered = False  # whether numbers have chosen where
        self.source = source
        self.born = born
        self.base = base  # the partition it starts at, where the kernel says so

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


def _dense_box(
    storage: Storage, partitions: tuple[int, int], elements: tuple[int, int]
) -> tuple[tuple[int, int], ...] | None:
    """The range in each dimension of what lies in one piece in each partition; None where it has
    none."""
    low, high = (bound // storage.data.itemsize for bound in elements)
    box: list[tuple[int, int]] = []
    for size in reversed(storage.data.shape[1:]):
        if low % size == high % size == 0:
            box.append((0, size))
            low, high = low // size, high // size
        elif low // size == (high - 1) // size:
            box.append((low % size, (high - 1) % size + 1))
            low, high = low // size, low // size + 1
        else:
            return None
    return (partitions, *reversed(box))


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


class View:
    """A tile or a part of one. Subclasses say what a kernel may do with it."""

    __slots__ = ("_axes", "_box", "_data", "_par", "_seen", "_storage")

    def __init__(
        self,
        storage: Storage,
        data: np.ndarray,
        box: tuple[tuple[int, int], ...] | None,
        axes: tuple[int | None, ...] | None,
        par: int = 0,
    ) -> None:
        self._storage = storage
        self._data = data
        self._box = box  # in the storage's dimensions; None where it has none
        self._axes = axes  # dimension → the storage's; None for what a reshape made
        self._par = par  # the dimension of the partitions, 0 when blocks are chosen
        self._seen: Access | None = None

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    buffer = property(lambda self: self._storage.buffer)
    name = property(lambda self: self._storage.name)
    itemsize = property(lambda self: self._data.itemsize)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours in each dimension."""
        return tuple(stride // self._data.itemsize for stride in self._data.strides)

    @property
    def offset(self) -> int:
        """Elements before the first one, in a partition where it is on the chip."""
        return self._offset // self._data.itemsize

    @property
    def _on_chip(self) -> bool:
        return self._storage.buffer in ON_CHIP

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
        if self._box is not None:
            return self._box[storage.par][0] + storage.base
        step = storage.data.strides[storage.par]
        return (self._offset // step) % storage.data.shape[storage.par] + storage.base

    def _neighbours(self) -> bool:
        """Whether its partitions follow each other."""
        storage = self._storage
        return self._data.strides[0] == storage.data.strides[storage.par]

    @property
    def _elements(self) -> int:
        """In each partition."""
        return math.prod(self._data.shape[1:])

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
        storage, data = self._storage, self._data
        base = storage.data
        span = sum(abs(stride) * (size - 1) for stride, size in zip(data.strides, data.shape))
        if storage.buffer in ON_CHIP and storage.par == 0 and self._par == 0:
            step = base.strides[0]
            rows = data.shape[0]
            first = self._offset
            lane = first // step
            span -= abs(data.strides[0]) * (rows - 1)
            low = first - lane * step
            elements = (low, low + span + data.itemsize)
            box = self._box
            if box is None and rows * (elements[1] - low) == data.nbytes:  # without holes
                box = _dense_box(storage, (lane, lane + rows), elements)
            return Access(storage.number, box, (lane, lane + rows), elements, *_steps(data))
        low = self._offset
        return Access(storage.number, self._box, (0, 1 << 30), (low, low + span + data.itemsize))

    def _label(self) -> str:
        return f"{self._storage.name} {list(self._data.shape)} in {self._storage.buffer}"

    def __repr__(self) -> str:
        return self._label()

    # --- what the machine does with it -----------------------------------------------------------

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
        repeats = any(step == 0 and n > 1 for step, n in zip(data.strides, data.shape))
        if data.nbytes == storage.data.nbytes and not repeats:
            storage.state, storage.uniform = None, state
            return
        if storage.state is None and storage.uniform == state:
            return
        storage.states()
        if self._data.itemsize == storage.data.itemsize:
            seen = self._states()
            assert isinstance(seen, np.ndarray)
            seen[...] = state
        else:
            flat = storage.states().reshape(-1)
            for extra in range(max(1, self._data.itemsize // storage.data.itemsize)):
                flat[self._places() + extra] = state

    def _places(self) -> np.ndarray:
        """Of each element, the number of the storage's element that it starts in."""
        at = np.full((1,) * self.ndim, self._offset)
        for axis, (stride, size) in enumerate(zip(self._data.strides, self.shape)):
            at = at + (np.arange(size) * stride).reshape(
                [-1 if a == axis else 1 for a in range(self.ndim)]
            )
        return at // self._storage.data.itemsize

    # --- what no kernel may do -------------------------------------------------------------------

    def __len__(self) -> int:
        refuse(f"len({self}): a tile has a shape, and no length in a kernel")
        raise AssertionError

    def __iter__(self) -> Iterator[Any]:
        refuse(f"a loop over {self}: loop over a range, and slice the tile")
        raise AssertionError

    def _no_number(self) -> Any:
        refuse(f"the truth of {self}: its numbers are not known before the kernel runs")

    def __bool__(self) -> bool:
        # A tensor is there or is None: kernels ask so for an argument that may be left out.
        whole = self._data.shape == self._storage.data.shape and self._data.size > 1
        if not whole or (self._on_chip and _machine.get() is not None and machine().flat):
            return bool(self._no_number())
        if self._on_chip:
            warnings.warn(
                f"the truth of {self} is that it is there: its numbers are not known before the "
                f"kernel runs ({place()})",
                stacklevel=2,
            )
        return True

    __float__ = __int__ = __index__ = _no_number

    # --- views of it -----------------------------------------------------------------------------

    def _like(
        self,
        data: np.ndarray,
        box: tuple[tuple[int, int], ...] | None = None,
        axes: tuple[int | None, ...] | None = None,
        par: int = 0,
    ) -> Any:
        return type(self)(self._storage, data, box, axes, par)

    def reshape(self, *shape: Any) -> Any:
        """The same memory in another shape; on chip the partitions stay."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in wanted:
            rest = -math.prod(wanted)
            wanted = tuple(self.size // rest if n == -1 else n for n in wanted)
        held = _machine.get() is not None and machine().limits
        if held and self._on_chip and self._par == 0 and wanted[0] != self.shape[0]:
            refuse(f"reshape of {self} to {list(wanted)}: the partitions cannot change")
        data = self._data.view()
        try:
            data.shape = wanted  # refuses to copy
        except (AttributeError, ValueError):
            refuse(f"reshape of {self} to {list(wanted)}: not the same elements in one piece")
        axes = (
            self._axes[0] if self._on_chip and self._axes else None,
            *[None] * (len(wanted) - 1),
        )
        box = self._box
        if not self._on_chip or (box is not None and len(wanted) != self.ndim):
            box = None
        return self._like(data, box, axes if box is not None else None)


class Picked(View):
    """Elements of a tile, one for each of an array of places: indirect access, and index grids.

    places: the number of each element in the storage. taken: where it is taken; None for all.
    """

    __slots__ = ("_flat", "_taken")

    def __init__(
        self, storage: Storage, places: np.ndarray, taken: np.ndarray | None, like: np.ndarray
    ) -> None:
        data = np.broadcast_to(like.reshape(-1)[:1].reshape((1,) * places.ndim), places.shape)
        super().__init__(storage, data, None, None)
        self._flat = places
        self._taken = taken

    def _make_access(self) -> Access:
        storage, flat = self._storage, self._flat
        if self._taken is not None:
            flat = flat[np.broadcast_to(self._taken, flat.shape)]
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
        flat, item = self._flat, self._storage.data.itemsize
        row = flat.reshape(-1, flat.shape[-1])[0]
        broken = np.flatnonzero(np.diff(row) != 1)
        return int(broken[0] + 1 if broken.size else row.size) * item

    def _inside(self) -> np.ndarray:
        return np.clip(self._flat, 0, self._storage.data.size - 1)

    def _values(self) -> np.ndarray:
        return self._storage.data.reshape(-1)[self._inside()]

    def _put(self, values: np.ndarray) -> None:
        flat = self._storage.data.reshape(-1)
        values = np.broadcast_to(values, self._flat.shape)
        if self._taken is None:
            flat[self._flat] = values
        else:
            taken = np.broadcast_to(self._taken, self._flat.shape)
            flat[self._flat[taken]] = values[taken]

    def _states(self) -> np.ndarray | int:
        storage = self._storage
        if storage.state is None and self._taken is None:
            return storage.uniform
        found = storage.states().reshape(-1)[self._inside()]
        if self._taken is None:
            return found
        return np.where(np.broadcast_to(self._taken, found.shape), found, UNDEFINED).astype(
            np.uint8
        )

    def _mark(self, state: int) -> None:
        flat = self._storage.states().reshape(-1)
        flat[
            self._flat
            if self._taken is None
            else self._flat[np.broadcast_to(self._taken, self._flat.shape)]
        ] = state
        if state == WRITTEN and self._flat.size >= flat.size and (flat == state).all():
            self._storage.state, self._storage.uniform = None, state

    def reshape(self, *shape: Any) -> Picked:
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        taken = (
            None
            if self._taken is None
            else np.broadcast_to(self._taken, self._flat.shape).reshape(wanted)
        )
        return self._again(self._flat.reshape(wanted), taken)

    def _again(self, places: np.ndarray, taken: np.ndarray | None) -> Picked:
        return type(self)(self._storage, places, taken, self._storage.data)


class NeedsNumbers(Exception):
    """A run without numbers came to an instruction that steers by one."""


class Unsteady(Exception):
    """A run that leaves iterations out came to one that is not like those before it."""


# Of a loop that leaves iterations out: how many run at its start. Then come one in the middle and
# the last one, and those between are made from the two before them.
SAMPLED = 4
SHORT = SAMPLED + 3  # a loop of fewer iterations runs whole


class Sample:
    """Which loops of a run leave iterations out: all but those at the lines `whole`.

    leaks: lines of loops that a tile made in one of their iterations outlived, so that somebody may
    ask for those of all iterations. made: how many instructions never ran.
    """

    def __init__(self) -> None:
        self.whole: set[str | None] = set()
        self.leaks: set[str | None] = set()
        self.made = 0


class Loop:
    """One run of a loop whose iterations are independent, and who wrote what in it."""

    __slots__ = ("line", "number", "writes")

    def __init__(self, number: int, line: str | None) -> None:
        self.number = number
        self.line = line
        self.writes: dict[int, list[tuple[int, Access, str, str | None]]] = {}


class Contended(NamedTuple):
    """What two iterations of an independent loop wrote, the later one at a line."""

    place: Access
    loop: str | None
    one: int
    other: int
    line: str | None


SEVERAL = 64  # places of a tile that are compared with each other


class Machine:
    """One run of a kernel on the simulated core.

    limits: whether the core's limits are held. order: seed of the order in which independent
    iterations run; None is the written one. chip: whose limits. numbers: whether anything is
    computed; without, instructions are only recorded. sample: where loops leave iterations out that
    are like the others.
    """

    def __init__(
        self,
        limits: bool = True,
        order: int | None = None,
        chip: Chip = CHIPS["inf2"],
        numbers: bool = True,
        grid: tuple[int, ...] = (),
        sample: Sample | None = None,
    ) -> None:
        self.limits = limits
        self.order = order
        self.chip = chip
        self.numbers = numbers
        self.grid = grid
        self.program = 0  # that runs
        self.rng = np.random.default_rng(order)
        self.unchanged: tuple[View, np.ndarray] | None = None  # by the last write in a loop
        self.states: dict[str, tuple[Any, Any]] = {}  # of engines' random numbers, as put there
        self.instructions: list[Instruction] = []
        self.rooms: list[Room] = []
        self.loops: list[tuple[Loop, int]] = []  # that run, and their iterations
        self.iteration: tuple[tuple[int, int], ...] = ()
        self.started = 0
        self.shared: list[Storage] = []  # that all programs of the grid have
        self.seen = 0  # of those, by the program that runs
        self.registers: dict[str, np.ndarray] = {}  # of the engines that accumulate
        self.spoilt: dict[str, np.ndarray] = {}  # whether what is in those is undefined
        self.loose: np.ndarray | None = None  # of the numbers that were computed last
        self.outputs: list[Storage] = []
        self.origins: dict[int, str] = {}  # storage → where what is undefined in it came from
        self.contended: dict[int, Contended] = {}  # storage → what depends on a loop's order
        self.reductions: dict[tuple[Any, ...], Any] = {}  # of nl.loop_reduce: place, loops → tile
        # (pipe, from, to) → numbers and states, in the order in which they were sent
        self.mail: dict[tuple[Any, int, int], deque[tuple[np.ndarray, np.ndarray | None]]] = {}
        self.flat = False  # whether a tile may have partitions only, as in beta 1
        self.hoists = False  # whether a compiler moves what does not change out of loops
        self.versions: dict[int, int] = {}  # storage → a number for what it holds
        self.made: dict[tuple[Any, ...], tuple[int, int]] = {}  # instruction → iteration, version
        self.counted = 0  # versions that there are
        self.turns_of_loops: list[tuple[int, int]] = []  # loops that run, and how often by now
        self.turns: Any = None  # who takes turns, where several programs run at once
        self.sample = sample
        self.lines: dict[int, str | None] = {}  # loop → where it stands
        self.births: dict[int, tuple[tuple[int, int], ...]] = {}  # storage → iterations
        self._names: dict[str, int] = {}

    # --- programs of a launch grid ---------------------------------------------------------------

    @property
    def grid_programs(self) -> range:
        """The numbers of all programs."""
        return range(math.prod(self.grid))

    def enter(self, program: int) -> None:
        """Begin a program."""
        self.program, self.seen = program, 0
        self.loops, self.iteration, self.registers, self.spoilt = [], (), {}, {}

    def leave(self) -> tuple[Any, ...]:
        """What a program has of its own, while another one runs."""
        return self.seen, self.loops, self.iteration, self.registers, self.spoilt

    def come_back(self, program: int, kept: tuple[Any, ...]) -> None:
        """Go on with a program."""
        self.program = program
        self.seen, self.loops, self.iteration, self.registers, self.spoilt = kept

    def meet(self, name: str) -> None:
        """Wait for the other programs."""
        if self.turns is None:
            refuse(f"{name}: there is one core; start the kernel with kernel[2]")
        self.turns.meet(name)

    # --- memory ----------------------------------------------------------------------------------

    def allocate(
        self,
        shape: Any,
        dtype: Any,
        buffer: str,
        name: str = "",
        kind: type = View,
        par: int = 0,
        base: int = 0,
    ) -> Any:
        """A new tile; nothing in it is written."""
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if not shape or any(isinstance(n, bool) or not _whole(n) or n < 1 for n in shape):
            refuse(f"ndarray of shape {shape}: dimensions are whole numbers of at least 1")
        shape = tuple(map(int, shape))
        dtype = dtypes.of(dtype)
        if buffer == SHARED_HBM and self.grid and (found := self._shared(shape, dtype)):
            return whole(found, kind)
        if self.limits and buffer in ON_CHIP:
            self._check_tile(shape, dtype, buffer, name or "a tile", par)
        data = np.zeros(shape, dtype)
        if self.limits and self.numbers and dtype.kind == "f":
            data.fill(np.nan)
        tile = self._enter(data, buffer, name, UNWRITTEN, kind, par, base)
        if buffer == SHARED_HBM and self.grid:
            self.shared.append(tile._storage)
        return tile

    def _shared(self, shape: tuple[int, ...], dtype: np.dtype) -> Storage | None:
        """What another program of the grid made at this place, for all."""
        at, self.seen = self.seen, self.seen + 1
        if at >= len(self.shared):
            return None
        found = self.shared[at]
        if (found.data.shape, found.data.dtype) != (shape, dtype):
            refuse(
                f"ndarray {list(shape)} {dtypes.name(dtype)} in shared_hbm: an earlier program of "
                f"the grid made it {list(found.data.shape)} {dtypes.name(found.data.dtype)}"
            )
        return found

    def given(self, array: np.ndarray, name: str, kind: type) -> Any:
        """An argument of the kernel, in HBM."""
        return self._enter(array, SHARED_HBM, name, WRITTEN, kind)

    def _enter(
        self,
        data: np.ndarray,
        buffer: str,
        name: str,
        state: int,
        kind: type,
        par: int = 0,
        base: int = 0,
    ) -> Any:
        name = name or self._name(buffer)
        storage = Storage(
            len(self.rooms), data, buffer, name, state, par, place(), self.iteration, base
        )
        label = f"{name} {list(data.shape)} in {buffer}"
        if self.sample is not None:
            self.births[storage.number] = tuple(self.turns_of_loops)
        self.rooms.append(
            Room(buffer, storage.partition_bytes, label, storage.source, storage.block_bytes)
        )
        return whole(storage, kind)

    def _name(self, buffer: str) -> str:
        kind = "tile" if buffer in ON_CHIP else "tensor"
        self._names[kind] = self._names.get(kind, 0) + 1
        return f"{kind} {self._names[kind]}"

    def _check_tile(
        self, shape: tuple[int, ...], dtype: np.dtype, buffer: str, name: str, par: int
    ) -> None:
        what = f"ndarray: {name} {list(shape)} {dtypes.name(dtype)} in {buffer}"
        if len(shape) < 2 and not self.flat:
            refuse(f"{what} has one dimension; a tile has partitions and at least one more")
        if shape[par] > PARTITIONS:
            refuse(f"{what} has {shape[par]} partitions; there are {PARTITIONS}")
        size = math.prod(shape[par + 1 :]) * dtype.itemsize
        limit = {SBUF: self.chip.sbuf_bytes, PSUM: self.chip.psum_bytes}[buffer]
        if size > limit:
            refuse(
                f"{what} takes {size / 1024:.1f} KiB of each partition, which has "
                f"{limit // 1024} KiB"
            )

    # --- loops -----------------------------------------------------------------------------------

    def iterations(self, *bounds: int) -> Iterator[int]:
        """A loop whose iterations do not depend on each other, in this run's order.

        Seed 0 goes backwards; others draw an order that is not the written one.
        """
        steps = list(range(*bounds))
        if self.order is not None and len(steps) > 1:
            written = list(steps)
            steps.reverse()
            while self.order:
                self.rng.shuffle(steps)
                if steps != written:
                    break
        return self._watched(steps, place())

    def _watched(self, steps: list[int], line: str | None) -> Iterator[int]:
        self.started += 1
        loop, before = Loop(self.started, line), self.iteration
        depth, outer = len(self.loops), len(self.turns_of_loops)
        self.lines[loop.number] = line
        try:
            for turn, step in self._sampled(steps, line):
                del self.loops[depth:]  # an inner loop that was left early
                self.loops.append((loop, step))
                self.iteration = (*before, (loop.number, step))
                del self.turns_of_loops[outer:]
                self.turns_of_loops.append((loop.number, turn))
                yield step
            self._compare_writes(loop)
        finally:
            del self.loops[depth:]
            del self.turns_of_loops[outer:]
            self.iteration = before

    def dependent(self, *bounds: int) -> Iterator[int]:
        """A loop whose iterations depend on each other, and which a compiler keeps as a loop."""
        self.started += 1
        number, outer, line = self.started, len(self.turns_of_loops), place()
        self.lines[number] = line
        try:
            for turn, step in self._sampled(range(*bounds), line):
                del self.turns_of_loops[outer:]
                self.turns_of_loops.append((number, turn))
                yield step
        finally:
            del self.turns_of_loops[outer:]

    def _sampled(self, steps: Sequence[int], line: str | None) -> Iterator[tuple[int, int]]:
        """The iterations that run, numbered: all, or some where the others are like them."""
        turns = list(enumerate(steps))
        sample = self.sample
        if sample is None or line in sample.whole or len(turns) < SHORT:
            yield from turns
            return
        starts = []  # of each iteration: instructions and storages before it
        for turn in turns[:SAMPLED]:
            starts.append((len(self.instructions), len(self.rooms)))
            yield turn
        starts.append((len(self.instructions), len(self.rooms)))
        body = _Body.of(self.instructions, self.rooms, starts[-3:])
        if body is None:
            yield from turns[SAMPLED:]
            return
        middle = (SAMPLED + len(turns)) // 2
        for number in range(SAMPLED, middle):
            self._make(body, number - SAMPLED + 1)
        first = len(self.instructions)
        yield turns[middle]
        if not body.gives(middle - SAMPLED + 1, self.instructions[first:]):
            sample.whole.add(line)
            raise Unsteady
        for number in range(middle + 1, len(turns) - 1):
            self._make(body, number - SAMPLED + 1)
        yield turns[-1]

    def _make(self, body: _Body, ahead: int) -> None:
        """An iteration as those before it, so many after the last of them."""
        assert self.sample is not None
        self.rooms += body.rooms
        for number in range(len(self.rooms) - len(body.rooms), len(self.rooms)):
            self.births[number] = ()
        made = body.instructions(ahead)
        self.instructions += made
        self.sample.made += len(made)

    def _compare_writes(self, loop: Loop) -> None:
        """At the end of an independent loop: what several iterations wrote, so that it depends on
        their order which one is left. Sums are added up in any order."""
        for number, writes in loop.writes.items():
            if self.rooms[number].buffer != SBUF:  # PSUM adds up, and HBM is written once
                continue
            by_place: dict[Access, tuple[int, str, str | None]] = {}
            for step, access, op, line in writes:
                known = by_place.setdefault(access, (step, op, line))
                if known[0] != step and not (op and op == known[1]):
                    self.contended[number] = Contended(access, loop.line, known[0], step, line)
            places = list(by_place.items()) if len(by_place) <= SEVERAL else []
            for at, (access, (step, op, _)) in enumerate(places):
                for other, (later, how, line) in places[at + 1 :]:
                    if later != step and not (op and op == how) and access.meets(other):
                        self.contended[number] = Contended(other, loop.line, step, later, line)

    def _settle(self, name: str, reads: Sequence[View], writes: Sequence[View]) -> None:
        """Refuse to read what depends on the order of a loop that has ended."""
        for view in reads:
            found = self.contended.get(view._storage.number)
            if found is not None and found.place.meets(view._access()):
                refuse(
                    f"{name} reads {view}, which iterations {found.one} and {found.other} of the "
                    f"nl.affine_range at {found.loop} both wrote ({found.line}): they may run in "
                    "any order, so it is open which is left; write nl.sequential_range, or range"
                )
        for view in writes:
            found = self.contended.get(view._storage.number)
            if found is not None and view._access().covers(found.place):
                del self.contended[view._storage.number]

    def _watch(self, name: str, op: str, reads: Sequence[View], writes: Sequence[View]) -> None:
        """Find an iteration of an independent loop that reads what another one wrote.

        op: what the instruction does to a tile that it both reads and writes. Sums are no
        dependence (nki.language.affine_range: associative reductions are not considered).
        """
        for view in reads:
            sums = bool(op) and any(w._storage is view._storage for w in writes)
            if not sums:
                self._check_carried(name, view)
            for loop, step in self._outside(view):
                self._search(name, op if sums else "", view, loop, step)
        for view in writes:
            access = self._changed(view)
            if access is None:
                continue
            for loop, step in self._outside(view):
                known = loop.writes.setdefault(view._storage.number, [])
                if not known or known[-1][:3] != (step, access, op):
                    known.append((step, access, op, place()))

    def _check_carried(self, name: str, view: View) -> None:
        """Refuse a tile that another iteration of an independent loop has made."""
        for (loop, step), (own, made) in zip(self.iteration, view._storage.born):
            if loop != own:
                return
            if step != made:
                line = next(each.line for each, _ in self.loops if each.number == loop)
                refuse(
                    f"{name}: iteration {step} of the nl.affine_range at {line} reads {view}, "
                    f"which iteration {made} made: its iterations may run in any order; write "
                    "nl.sequential_range, or range"
                )

    def _outside(self, view: View) -> list[tuple[Loop, int]]:
        """The independent loops that run and in whose iteration a tile was not made."""
        born = view._storage.born
        if born == self.iteration:
            return []
        same = 0
        while same < min(len(born), len(self.loops)) and born[same] == self.iteration[same]:
            same += 1
        return self.loops[same:]

    def _search(self, name: str, sums: str, view: View, loop: Loop, step: int) -> None:
        known = loop.writes.get(view._storage.number, ())
        access = view._access()
        for other, written, how, line in known:
            if other == step or not written.meets(access) or (sums and how == sums):
                continue
            # What this iteration wrote itself hides what others had written.
            if any(o == step and w.covers(access) for o, w, _, _ in known):
                continue
            refuse(
                f"{name}: iteration {step} of the nl.affine_range at {loop.line} reads what "
                f"iteration {other} wrote into {view} ({line}): its iterations may run in any "
                "order; write nl.sequential_range, or range"
            )

    # --- instructions ----------------------------------------------------------------------------

    def compute(
        self,
        engine: str,
        name: str,
        function: Callable[..., np.ndarray],
        dst: View,
        *sources: View,
        work: float | None = None,
        extra: int = 0,
        columns: Sequence[View] = (),
        raw: bool = False,
        exact: bool = False,
        fast: int = 1,
        op: str = "",
        shapes: bool = True,
        across: bool = False,
        chosen: Sequence[View] = (),
        detail: tuple[Any, ...] | None = None,
        either: bool = False,
    ) -> np.ndarray | None:
        """dst = function(*sources), element by element, in float32; the numbers, before they are
        cast to the dtype of dst.

        Args:
            work: cycles; by default the elements of a partition times the number of
                sources.
            columns: operands of one number a partition, passed to `function` after the
                sources.
            raw: on the bits of whole numbers, as they are.
            exact: in whole numbers of 64 bits.
            fast: how many times faster a performance mode is.
            op: the operation, where the instruction only adds to what it reads.
            shapes: whether all have as many elements as dst.
            across: whether a result depends on other elements of its partition, as
                where not all have as many elements.
            chosen: sources that the function may leave out of a result, and that make it
                not a number where they are none.
            detail, either: as for `note`.
        """
        if self.limits:
            for operand in (dst, *sources, *columns):
                self.check_operand(name, engine, operand)
            if shapes:
                self.check_shapes(name, dst, sources)
            for operand in columns:
                if operand.shape[0] != dst.shape[0] or operand._elements != 1:
                    refuse(
                        f"{name}: {operand} is no number for each of dst's {dst.shape[0]} "
                        f"partitions; accepted: [{dst.shape[0]}, 1]"
                    )
        operands = (*sources, *columns)
        states = [self.check_written(name, each) for each in operands]
        self.loose = None
        result = None
        if self.numbers:
            read = _whole_numbers if exact else (_bits if raw else _wide)
            numbers = [spoiled(read(name, each), state) for each, state in zip(operands, states)]
            values, vectors = numbers[: len(sources)], numbers[len(sources) :]
            if shapes and all(v.size == dst.size for v in values):
                values = [v.reshape(dst.shape) for v in values]
            ones = (1,) * (dst.ndim - 1)
            vectors = [v.reshape(each.shape[0], *ones) for v, each in zip(vectors, columns)]
            with np.errstate(all="ignore"):
                result = function(*values, *vectors)
        fresh = self.write(name, dst, result)
        if any(state is not None for state in states):
            self.loosen(name, dst, operands, states, across or not shapes, chosen, result)
        n = max([dst._elements, *(s._elements for s in sources)])
        self.note(
            engine,
            name,
            dst,
            (*sources, *columns),
            work=n * max(1, len(sources)) if work is None else work,
            elements=n,
            extra=extra,
            fast=fast,
            op=op,
            fresh=fresh,
            detail=detail,
            either=either,
        )
        return result

    def loosen(
        self,
        name: str,
        dst: View,
        sources: Sequence[View],
        states: Sequence[np.ndarray | None],
        across: bool = False,
        chosen: Sequence[View] = (),
        result: np.ndarray | None = None,
    ) -> None:
        """What comes from something undefined is undefined in dst too.

        Args:
            states: of the sources' elements; None where all are defined.
            across, chosen: as for `compute`.
            result: the numbers of dst.
        """
        loose = np.zeros(dst.shape, bool)
        for source, state in zip(sources, states):
            if state is None:
                continue
            bad = is_undefined(state)
            if source.size == dst.size and not across:
                found = bad.reshape(dst.shape)
            elif source.shape[0] == dst.shape[0]:
                rows = bad.reshape(source.shape[0], -1).any(axis=1)
                found = rows.reshape(-1, *[1] * (dst.ndim - 1))
            else:
                found = np.ones(dst.shape, bool)
            left = any(source is each for each in chosen) and _has_nan(source.dtype)
            if left and result is not None and _has_nan(result.dtype):
                found = found & np.isnan(result).reshape(dst.shape)
            loose |= found
        self.loose = loose
        self.mark_undefined(name, dst, loose, sources, states)

    def mark_undefined(
        self,
        name: str,
        dst: View,
        loose: np.ndarray,
        sources: Sequence[View],
        states: Sequence[np.ndarray | None],
    ) -> None:
        """Elements of dst become undefined, by reading these sources."""
        if not loose.any():
            return
        dst._storage.states()
        if isinstance(dst, Picked):
            if dst._taken is not None:
                loose = loose & np.broadcast_to(dst._taken, loose.shape)
            dst._storage.states().reshape(-1)[dst._flat[loose]] = UNDEFINED
        else:
            seen = dst._states()
            assert isinstance(seen, np.ndarray)
            seen[loose] = UNDEFINED
        for source, state in zip(sources, states):
            if state is None:
                continue
            origin = self.origins.get(source._storage.number)
            missing = int(np.count_nonzero(state == UNWRITTEN))
            if missing and origin is None:
                origin = (
                    f"{name} reads {missing} elements of {source} that were never written "
                    f"({place()})"
                )
            if origin is not None:
                self.origins.setdefault(dst._storage.number, origin)

    def check_shapes(self, name: str, dst: View, sources: Sequence[View]) -> None:
        """Nothing is broadcast."""
        for operand in sources:
            if operand.shape[0] != dst.shape[0] or operand._elements != dst._elements:
                refuse(
                    f"{name}: {operand} and dst {dst} differ; nothing is broadcast, so all "
                    "have the same partitions and as many elements in each"
                )

    def check_operand(self, name: str, engine: str, operand: View) -> None:
        """What every engine asks of an operand."""
        storage = operand._storage
        if storage.buffer not in ON_CHIP:
            refuse(
                f"{name}: {operand}; an engine reaches SBUF and PSUM only, copy it with a DMA first"
            )
        if operand._par:
            refuse(f"{name}: {operand} is a list of blocks; choose one, as in tile[0]")
        if operand.shape[0] > 1 and not operand._neighbours():
            refuse(f"{name}: {operand} takes partitions with a step; they must be neighbours")
        accepted = starts(operand.shape[0])
        start = operand._start
        if start not in accepted:
            refuse(
                f"{name}: {operand} starts at partition {start}; "
                f"{operand.shape[0]} partitions may start at {', '.join(map(str, accepted))}"
            )
        if engine == "GpSimd" and storage.buffer == PSUM:
            refuse(f"{name}: {operand}; the GpSimd engine does not reach PSUM")

    def copy(self, name: str, dst: View, src: View, work: int | None = None) -> None:
        """A DMA between HBM and SBUF: as many elements, in any shape."""
        if self.limits:
            for operand in (dst, src):
                if operand.buffer == PSUM:
                    refuse(f"{name}: {operand}; a DMA does not reach PSUM, go through SBUF")
            if dst.size != src.size:
                refuse(
                    f"{name}: src {src} and dst {dst} differ in shape, and in their number of "
                    "elements"
                )
        states = self.check_written(name, src)
        values = None
        if self.numbers:
            values = spoiled(src._values(), states)
            if values.dtype != dst.dtype and not self._same_bits(values.dtype, dst.dtype):
                values = dtypes.wide(values)
            if values.size == dst.size:
                values = values.reshape(dst.shape)
        self.read_from(src)  # before, since a tensor may be copied onto itself: a fence
        fresh = self.write(name, dst, values, once=True)
        if states is not None and src.size == dst.size:
            self.loosen(name, dst, (src,), (states,))
        moved = dst.size * dst.dtype.itemsize
        runs = min(dst._run, src._run)
        self.note("DMA", name, dst, (src,), bytes_moved=moved, run=runs, fresh=fresh, detail=())

    def _same_bits(self, one: np.dtype, other: np.dtype) -> bool:
        return one.itemsize == other.itemsize and one.kind in "iub" and other.kind in "iub"

    def check_written(self, name: str, view: View, whole: bool = False) -> np.ndarray | None:
        """Refuse to read what was never written; the states, where some element is undefined.

        Where only a part was never written, as the padding of a tile, an instruction may move it or
        compute with it, and what it makes of it is undefined: only outputs are held to be defined.

        Args:
            whole: whether each element must be defined here, since it steers something or
                the instruction does not say which results depend on it.
        """
        states = view._states()
        if self.sample is not None and self.sample.made:
            return None  # perhaps by an iteration that was left out
        if isinstance(states, int):
            if states not in (UNWRITTEN, UNDEFINED) or (states == UNWRITTEN and not self.limits):
                return None
            states = np.full(view.shape, states, np.uint8)
        undefined = int(np.count_nonzero(states == UNDEFINED))
        if not self.limits:
            return states if undefined else None
        missing = int(np.count_nonzero(states == UNWRITTEN))
        if missing and (whole or missing == states.size):
            refuse(f"{name} reads {missing} elements of {view} that were never written")
        if undefined and whole:
            refuse(f"{name} reads {undefined} undefined elements of {view}{self.origin(view)}")
        return states if missing or undefined else None

    def origin(self, view: View) -> str:
        """Where what is undefined in a tile came from, in words."""
        found = self.origins.get(view._storage.number)
        return "" if found is None else f": {found}"

    def read_from(self, view: View) -> None:
        """Elements of HBM that were read may be written again."""
        storage = view._storage
        if storage.stored and storage.buffer not in ON_CHIP and self.limits:
            view._mark(READ)

    def read(self, name: str, view: View, wide: bool = True) -> np.ndarray:
        """The numbers of a view; what was never written is refused."""
        self.check_written(name, view, whole=True)
        return _wide(name, view) if wide else view._values()

    def write(
        self,
        name: str,
        dst: View,
        values: np.ndarray | None,
        once: bool = False,
        state: int = WRITTEN,
    ) -> bool:
        """Store `values`, None where nothing is computed; whether all of it was unwritten.

        Args:
            once: an element of HBM is written one time only, unless it was read since.
            state: what the elements are from now on.
        """
        storage = dst._storage
        if not storage.stored and storage.buffer not in ON_CHIP and storage.uniform == WRITTEN:
            # An argument: now it is an output, and keeps what is not written; of beta 1 all is.
            storage.uniform, storage.state = UNWRITTEN if self.flat else READ, None
            self.outputs.append(storage)
        elif not storage.stored and storage.buffer not in ON_CHIP:
            self.outputs.append(storage)
        storage.stored = True
        old = self._numbers_before(dst, values)
        before = dst._states()
        before = before if old is None or isinstance(before, int) else before.copy()
        fresh = before == UNWRITTEN if isinstance(before, int) else not before.any()
        chosen = getattr(dst, "_bad", None) is not None or getattr(dst, "_dynamic", False)
        storage.scattered |= chosen
        if self.limits and once and not fresh and storage.buffer not in ON_CHIP and not chosen:
            twice = np.broadcast_to(before == WRITTEN, dst.shape)
            again = int(np.count_nonzero(twice))
            if again and not self._agree(dst, values, twice):
                refuse(
                    f"{name} writes {again} elements of {dst} a second time: which write comes "
                    "last is left to the DMA engines"
                )
        repeats = any(step == 0 and n > 1 for step, n in zip(dst._data.strides, dst.shape))
        if repeats and not isinstance(dst, Picked):
            # A place to throw results away that only go into a sum: which one stays is open.
            if storage.buffer not in ON_CHIP:
                refuse(f"{name}: dst {dst} is broadcast: several elements are one in memory")
            state = UNDEFINED
        if values is not None:
            if values.size == dst.size and values.shape != dst.shape:
                values = values.reshape(dst.shape)
            try:
                with np.errstate(all="ignore"):
                    dst._put(dtypes.narrow(np.asarray(values), dst.dtype))
            except ValueError:
                refuse(
                    f"{name}: a result of shape {list(values.shape)} does not fit into dst {dst}"
                )
        dst._mark(state)
        if old is not None:
            known = np.broadcast_to(before == WRITTEN, dst.shape).reshape(dst.shape[0], -1)
            self.unchanged = (dst, self._same_rows(dst, old) & known.all(axis=1))
        return fresh

    def _numbers_before(self, dst: View, values: np.ndarray | None) -> np.ndarray | None:
        """What a tile holds before it is written again in a loop whose iterations are independent:
        a number that is replaced by itself depends on no order."""
        self.unchanged = None
        if not self.loops or values is None or isinstance(dst, Picked) or not dst._on_chip:
            return None
        if not self._outside(dst) or (isinstance(dst._states(), int) and dst._states() != WRITTEN):
            return None
        return np.array(dst._values())

    def _same_rows(self, dst: View, old: np.ndarray) -> np.ndarray:
        """Which partitions hold the same bits as before."""
        one, other = (np.ascontiguousarray(x).view(np.uint8) for x in (dst._values(), old))
        rows = dst.shape[0]
        return (one.reshape(rows, -1) == other.reshape(rows, -1)).all(axis=1)

    def _changed(self, view: View) -> Access | None:
        """What the last write to a tile changed, in a loop; None where it changed nothing."""
        access = view._access()
        if self.unchanged is None or self.unchanged[0] is not view:
            return access
        rows = np.flatnonzero(~self.unchanged[1])
        if not rows.size:
            return None
        first = access.partitions[0]
        partitions = (first + int(rows[0]), first + int(rows[-1]) + 1)
        box = access.box
        if box is not None and view._storage.par == 0:
            box = (partitions, *box[1:])
        return access._replace(partitions=partitions, box=box)

    def _agree(self, dst: View, values: np.ndarray | None, twice: np.ndarray) -> bool:
        """Whether several programs write the same numbers, so that either may come last."""
        if len(self.grid_programs) < 2:
            return False
        if values is None or not self.numbers:
            return True
        new = dtypes.narrow(np.asarray(values).reshape(dst.shape), dst.dtype)
        bits = f"V{dst.dtype.itemsize}"
        one, other = (np.ascontiguousarray(x).view(bits)[twice] for x in (new, dst._values()))
        return bool((one == other).all())

    def note(
        self,
        engine: str,
        name: str,
        dst: View,
        sources: Sequence[View],
        work: float = 0,
        elements: int | None = None,
        extra: int = 0,
        bytes_moved: int = 0,
        run: int = 0,
        fast: int = 1,
        op: str = "",
        fresh: bool = False,
        also: Sequence[View] = (),
        summed: bool = False,
        detail: tuple[Any, ...] | None = None,
        either: bool = False,
    ) -> None:
        """Record an instruction that has run.

        Args:
            also: what it writes beside dst.
            summed: whether it adds to dst in PSUM.
            detail: the instruction's own numbers, where they and its operands say all that
                it does.
            either: whether a compiler may choose Scalar instead of Vector.
        """
        writes = (dst, *also)
        operands = (*writes, *sources)
        if self.sample is not None:
            self._find_leaks(operands)
        if self.contended and self.limits:
            self._settle(name, sources, writes)
        if self.loops and self.limits:
            self._watch(name, op or ("sum" if summed else ""), sources, writes)
        chip = [o for o in operands if o._storage.buffer in ON_CHIP]
        self.instructions.append(
            Instruction(
                engine,
                name,
                max(o._elements for o in operands) if elements is None else elements,
                work,
                extra,
                max((o._stride for o in chip), default=0),
                max((o._data.shape[0] for o in chip), default=1),
                bytes_moved,
                run,
                any(o._storage.buffer == PSUM for o in chip),
                any(o._storage.buffer == SBUF for o in chip),
                fast,
                fresh,
                tuple([o._access() for o in sources]),
                tuple([o._access() for o in writes]),
                place(),
                self.program,
                self._hoisted(name, dst, sources, fresh, detail) if self.hoists else False,
                either,
            )
        )

    def _find_leaks(self, operands: Sequence[View]) -> None:
        """Remember loops of which a tile is used in another iteration than its own, or later."""
        now = self.turns_of_loops
        assert self.sample is not None
        for view in operands:
            born = self.births[view._storage.number]
            for depth, turn in enumerate(born):
                if depth >= len(now) or now[depth] != turn:
                    self.sample.leaks.update(self.lines[loop] for loop, _ in born[depth:])
                    break

    def _hoisted(
        self,
        name: str,
        dst: View,
        sources: Sequence[View],
        fresh: bool,
        detail: tuple[Any, ...] | None,
    ) -> bool:
        """Whether the iteration before made the same of the same, in the innermost loop."""
        self.counted += 1
        number, versions = self.counted, self.versions
        before = versions.get(dst._storage.number)
        versions[dst._storage.number] = number
        if detail is None or not fresh or before is not None or not self.turns_of_loops:
            return False
        loop, turn = self.turns_of_loops[-1]
        key = (
            loop,
            place(),
            name,
            detail,
            dst.shape,
            *[
                (versions.get(s._storage.number, -s._storage.number), *s._access()[2:])
                for s in sources
            ],
        )
        known = self.made.get(key)
        if known is not None and known[0] < turn:
            self.made[key] = (turn, known[1])
            versions[dst._storage.number] = known[1]
            return True
        self.made[key] = (turn, number)
        return False

    # --- at the end ------------------------------------------------------------------------------

    def finish(self, outputs: Sequence[View]) -> None:
        """What can only be judged when the kernel has ended: outputs and room."""
        if not self.limits:
            return
        made = self.sample is not None and self.sample.made
        for output in [] if made else outputs:
            states = output._states()
            missing = (
                output.size * (states == UNWRITTEN)
                if isinstance(states, int)
                else int(np.count_nonzero((states == UNWRITTEN) | (states == UNDEFINED)))
            )
            if not missing:
                continue
            message = (
                f"{missing} of {output.size} elements of the output {output} were never written"
            )
            if output._storage.number in self.origins:
                message = (
                    f"{missing} of {output.size} elements of the output {output} are undefined"
                    + self.origin(output)
                )
            if output._storage.scattered:  # which ones depends on the numbers: perhaps as meant
                warnings.warn(f"{message} ({output._storage.source})", stacklevel=2)
            else:
                raise NeuronError(message, output._storage.source)
        for buffer, limit in ((SBUF, self.chip.sbuf_bytes), (PSUM, self.chip.psum_bytes)):
            peak, at, held = self.peak(buffer)
            if peak > limit:
                instruction = self.instructions[at]
                largest = max(held, key=lambda room: room.partition_bytes)
                raise NeuronError(
                    f"{instruction.name}: {len(held)} live tiles take {peak / 1024:.1f} KiB of "
                    f"each partition of {buffer.upper()}, which has {limit // 1024} KiB; the "
                    f"largest is {largest.label}",
                    instruction.source,
                )

    def peak(self, buffer: str) -> tuple[int, int, list[Room]]:
        """The most bytes of a partition that are live at once, at which instruction, and who.

        A tile is live from the first instruction that touches it to the last: no allocator can do
        with less, if it keeps the order.
        """
        lives = self.lives(buffer)
        change: dict[int, int] = {}
        for (number, _), (first, last) in lives.items():
            size = self.room(number)
            change[first] = change.get(first, 0) + size
            change[last + 1] = change.get(last + 1, 0) - size
        held = most = peak = 0
        for at in sorted(change):
            held += change[at]
            if held > most:
                most, peak = held, at
        who = [self.rooms[n] for (n, _), (first, last) in lives.items() if first <= peak <= last]
        return most, peak, who if most else []

    def lives(self, buffer: str) -> dict[tuple[int, int], tuple[int, int]]:
        """Storage and its block → the first and the last instruction that touch it."""
        return lives(self.rooms, self.instructions, buffer)

    def room(self, number: int) -> int:
        """Bytes of a partition that a storage takes: in PSUM whole banks."""
        room = self.rooms[number]
        if room.buffer != PSUM:
            return room.partition_bytes
        bank = self.chip.psum_bank_bytes
        return -(-room.partition_bytes // bank) * bank


def lives(
    rooms: Sequence[Room], instructions: Sequence[Instruction], buffer: str
) -> dict[tuple[int, int], tuple[int, int]]:
    """Storage and its block → the first and the last instruction that touch it."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for at, instruction in enumerate(instructions):
        for access in (*instruction.reads, *instruction.writes):
            number = access.storage
            room = rooms[number]
            if room.buffer != buffer:
                continue
            blocks = range(1)
            if room.block:
                low, high = access.elements
                blocks = range(low // room.block, -(-high // room.block))
            for block in blocks:
                known = found.get((number, block))
                found[number, block] = (known[0] if known else at, at)
    return found


def whole(storage: Storage, kind: type) -> Any:
    """The view of all of a storage."""
    shape = storage.data.shape
    box = tuple([(0, n) for n in shape])
    return kind(storage, storage.data, box, tuple(range(len(shape))), storage.par)


_machine: ContextVar[Machine | None] = ContextVar("machine", default=None)


def machine() -> Machine:
    """The run that is going on; NeuronError outside of one."""
    found = _machine.get()
    if found is None:
        raise NeuronError(
            "an instruction was called outside a kernel: call the kernel with neuron.simulate",
            place(),
        )
    return found


def is_sampled() -> bool:
    """Whether a run is going on that leaves iterations of loops out."""
    found = _machine.get()
    return found is not None and found.sample is not None


def _address(data: np.ndarray) -> int:
    return data.__array_interface__["data"][0]


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _wide(name: str, view: View) -> np.ndarray:
    """As the engines cast what they stream."""
    if dtypes.is_packed(view.dtype):
        refuse(
            f"{name}: {view} is {dtypes.name(view.dtype)}, four numbers in an element; accepted by "
            "nc_matmul_mx, quantize_mx and copies"
        )
    return dtypes.wide(view._values())


def _has_nan(dtype: np.dtype) -> bool:
    return dtype.fields is None and dtype.kind not in "iub"


def is_undefined(states: np.ndarray) -> np.ndarray:
    """Where an element is anything."""
    found: np.ndarray = (states == UNDEFINED) | (states == UNWRITTEN)
    return found


def spoiled(values: np.ndarray, states: np.ndarray | None) -> np.ndarray:
    """The numbers with "not a number" where they are undefined, if their type has it."""
    if states is None or not _has_nan(values.dtype):
        return values
    return np.where(is_undefined(states), np.array(np.nan, values.dtype), values)


def _bits(name: str, view: View) -> np.ndarray:
    return view._values()


def _whole_numbers(name: str, view: View) -> np.ndarray:
    return view._values().astype(np.int64)


def starts(partitions: int) -> tuple[int, ...]:
    """The partitions at which an operand of so many may start (architecture guide)."""
    if partitions > 64:
        return (0,)
    return (0, 64) if partitions > 32 else (0, 32, 64, 96)
