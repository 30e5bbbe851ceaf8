"""A NeuronCore in NumPy: memories that know what was written, and instructions that are recorded.

A tile is a NumPy array with one more array of the same shape that says of each element whether it
was written. Views share both. Whatever touches a tile goes through `read` and `write`, which hold
the core's limits and note the instruction for the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.neuron.chips import CHIPS, PARTITIONS
from kernels.neuron.errors import NeuronError, place, refuse

SBUF, PSUM, HBM, SHARED_HBM = "sbuf", "psum", "private_hbm", "shared_hbm"
ON_CHIP = (SBUF, PSUM)
CORE = CHIPS["inf2"]

# What is known of an element. MASKED: left out by a mask, so anything. SUMMED: written by the
# Tensor engine, which adds to it the next time.
UNWRITTEN, WRITTEN, MASKED, SUMMED = range(4)


@dataclass(frozen=True)
class Access:
    """What an instruction touches of a storage: its number, and the range in each dimension."""

    storage: int
    box: tuple[tuple[int, int], ...]

    def overlaps(self, other: Access) -> bool:
        """Whether the two may share an element."""
        return self.storage == other.storage and all(
            a < d and c < b for (a, b), (c, d) in zip(self.box, other.box)
        )


@dataclass(frozen=True)
class Instruction:
    """One instruction that ran.

    engine: "Vector", … or "DMA". name: of the API. elements: a partition, of the longest operand.
    inputs: tiles that it streams. stride: bytes between neighbours in a partition, the widest of
    all operands. bytes: that a DMA moves. partitions: that it works on. passes: times that it goes
    over its elements. psum: whether it touches PSUM.
    """

    engine: str
    name: str
    elements: int
    inputs: int
    stride: int
    partitions: int
    bytes: int
    passes: int
    psum: bool
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    source: str | None


class Storage:
    """The memory behind a tile and its views."""

    def __init__(self, number: int, data: np.ndarray, buffer: str, name: str, state: int) -> None:
        self.number = number
        self.data = data
        self.buffer = buffer
        self.name = name
        self.state = np.full(data.shape, state, np.uint8)
        self.whole = state == WRITTEN  # nothing is left unwritten, so nobody has to look
        self.stored = False  # whether an instruction wrote to it

    @property
    def partition_bytes(self) -> int:
        """Bytes that it takes of each partition."""
        return math.prod(self.data.shape[1:]) * self.data.itemsize


class View:
    """A tile or a part of one. Subclasses say what a kernel may do with it."""

    def __init__(
        self,
        storage: Storage,
        data: np.ndarray,
        state: np.ndarray,
        box: tuple[tuple[int, int], ...],
        axes: tuple[int | None, ...],
    ) -> None:
        self._storage = storage
        self._data = data
        self._state = state
        self._box = box  # in the storage's dimensions
        self._axes = axes  # dimension → the storage's; None for what a reshape made

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    buffer = property(lambda self: self._storage.buffer)

    @property
    def _on_chip(self) -> bool:
        return self._storage.buffer in ON_CHIP

    @property
    def _start(self) -> int:
        """The first partition."""
        return self._box[0][0] if self._box else 0

    @property
    def _elements(self) -> int:
        """In each partition."""
        return math.prod(self.shape[1:])

    @property
    def _stride(self) -> int:
        """Bytes between neighbours of the innermost dimension that has more than one element."""
        inner = [
            abs(stride) for stride, size in zip(self._data.strides[1:], self.shape[1:]) if size > 1
        ]
        return inner[-1] if inner else self.dtype.itemsize

    def _access(self) -> Access:
        return Access(self._storage.number, self._box)

    def __repr__(self) -> str:
        return f"{self._storage.name} {list(self.shape)} in {self.buffer}"

    def __len__(self) -> int:
        refuse(f"len({self}): a tile has a shape, and no length in a kernel")
        raise AssertionError

    def __iter__(self) -> Iterator[Any]:
        refuse(f"a loop over {self}: loop over a range, and slice the tile")
        raise AssertionError

    def __bool__(self) -> bool:
        refuse(f"the truth of {self}: its numbers are not known before the kernel runs")
        raise AssertionError

    __float__ = __int__ = __index__ = __bool__  # type: ignore[assignment]

    def reshape(self, shape: Sequence[int]) -> View:
        """The same memory in another shape; on chip the partitions stay."""
        if _machine.get() and machine().limits and self._on_chip and shape[0] != self.shape[0]:
            refuse(f"reshape of {self} to {list(shape)}: the partitions cannot change")
        data, state = self._data.view(), self._state.view()
        try:
            data.shape = state.shape = tuple(shape)  # refuses to copy
        except (AttributeError, ValueError):
            refuse(f"reshape of {self} to {list(shape)}: not the same elements in one piece")
        axes = (self._axes[0] if self._on_chip else None, *[None] * (len(shape) - 1))
        return type(self)(self._storage, data, state, self._box, axes)


class Machine:
    """One run of a kernel on the simulated core.

    limits: whether the core's limits are held. order: seed of the order in which independent
    iterations run; None is the written one.
    """

    def __init__(self, limits: bool = True, order: int | None = None) -> None:
        self.limits = limits
        self.order = order
        self.rng = np.random.default_rng(order)
        self.instructions: list[Instruction] = []
        self.storages: list[Storage] = []
        self._names: dict[str, int] = {}

    # --- memory ----------------------------------------------------------------------------------

    def allocate(
        self, shape: Sequence[int], dtype: Any, buffer: str, name: str = "", kind: type = View
    ) -> Any:
        """A new tile; nothing in it is written."""
        shape = tuple(shape)
        if not shape or any(isinstance(n, bool) or not _whole(n) or n < 1 for n in shape):
            refuse(f"ndarray of shape {shape}: dimensions are whole numbers of at least 1")
        dtype = np.dtype(dtype)
        if self.limits and buffer in ON_CHIP:
            _check_tile(shape, dtype, buffer, name or "a tile")
        data = np.zeros(shape, dtype)
        if self.limits and dtype.kind == "f":
            data.fill(np.nan)
        return self._enter(data, buffer, name, UNWRITTEN, kind)

    def given(self, array: np.ndarray, name: str, kind: type) -> Any:
        """An argument of the kernel, in HBM."""
        return self._enter(array, SHARED_HBM, name, WRITTEN, kind)

    def _enter(self, data: np.ndarray, buffer: str, name: str, state: int, kind: type) -> Any:
        name = name or self._name(buffer)
        storage = Storage(len(self.storages), data, buffer, name, state)
        self.storages.append(storage)
        return whole(storage, kind)

    def _name(self, buffer: str) -> str:
        kind = "tile" if buffer in ON_CHIP else "tensor"
        self._names[kind] = self._names.get(kind, 0) + 1
        return f"{kind} {self._names[kind]}"

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
        return iter(steps)

    # --- instructions ----------------------------------------------------------------------------

    def compute(
        self,
        engine: str,
        name: str,
        function: Callable[..., np.ndarray],
        dst: View,
        *sources: View,
        inputs: int | None = None,
        passes: int = 1,
        extra: Sequence[View] = (),
    ) -> None:
        """dst = function(*sources), element by element, in float32.

        inputs: tiles that it streams, by default all sources. extra: operands of one number a
        partition, passed to `function` as they are, after the sources.
        """
        if self.limits:
            for operand in (dst, *sources, *extra):
                _check_operand(name, engine, operand)
            for operand in sources:
                same = operand.shape[0] == dst.shape[0] and operand._elements == dst._elements
                if not same:
                    refuse(
                        f"{name}: {operand} and dst {dst} differ; nothing is broadcast, so all "
                        "have the same partitions and as many elements in each"
                    )
            for operand in extra:
                if operand.shape[0] != dst.shape[0] or operand._elements != 1:
                    refuse(
                        f"{name}: {operand} is no number for each of dst's {dst.shape[0]} "
                        f"partitions; accepted: [{dst.shape[0]}, 1]"
                    )
        values = [self.read(name, each) for each in sources]
        if all(v.size == dst.size for v in values):
            values = [v.reshape(dst.shape) for v in values]
        ones = (1,) * (dst.ndim - 1)
        vectors = [self.read(name, each).reshape(each.shape[0], *ones) for each in extra]
        with np.errstate(all="ignore"):
            result = function(*values, *vectors)
        self.write(name, dst, result)
        self.note(
            engine,
            name,
            dst,
            (*sources, *extra),
            inputs=len(sources) if inputs is None else inputs,
            passes=passes,
        )

    def copy(self, name: str, dst: View, src: View) -> None:
        """A DMA between HBM and SBUF."""
        if self.limits:
            for operand in (dst, src):
                if operand.buffer == PSUM:
                    refuse(f"{name}: {operand}; a DMA does not reach PSUM, go through SBUF")
            if dst.shape != src.shape:
                refuse(f"{name}: src {src} and dst {dst} differ in shape")
        self.write(name, dst, self.read(name, src, wide=False), once=True)
        self.note("DMA", name, dst, (src,), bytes_moved=dst.size * dst.dtype.itemsize)

    def read(self, name: str, view: View, wide: bool = True) -> np.ndarray:
        """The numbers of a view; what was never written is refused."""
        if self.limits and not view._storage.whole:
            missing = int((view._state == UNWRITTEN).sum())
            if missing:
                refuse(f"{name} reads {missing} elements of {view} that were never written")
        return _float32(name, view) if wide else view._data

    def write(
        self,
        name: str,
        dst: View,
        values: np.ndarray,
        once: bool = False,
        state: int = WRITTEN,
    ) -> None:
        """Store `values`. once: an element of HBM is written one time only. state: what the
        elements are from now on."""
        storage = dst._storage
        if self.limits and once and not dst._on_chip:
            again = int((dst._state == WRITTEN).sum()) if storage.stored else 0
            if again:
                refuse(
                    f"{name} writes {again} elements of {dst} a second time: which write comes "
                    "last is left to the DMA queues"
                )
        if not storage.stored and storage.whole:  # an argument: from now on it is an output
            storage.whole = False
            storage.state.fill(UNWRITTEN)
        storage.stored = True
        if values.size == dst.size:
            values = values.reshape(dst.shape)
        try:
            with np.errstate(all="ignore"):
                dst._data[...] = values
        except ValueError:
            refuse(f"{name}: a result of shape {list(values.shape)} does not fit into dst {dst}")
        dst._state[...] = state
        if dst.size == storage.data.size:
            storage.whole = True

    def note(
        self,
        engine: str,
        name: str,
        dst: View,
        sources: Sequence[View],
        inputs: int = 1,
        passes: int = 1,
        bytes_moved: int = 0,
        elements: int | None = None,
        stride: int | None = None,
        accesses: Sequence[Access] | None = None,
    ) -> None:
        """Record an instruction that has run. elements, stride, accesses: where the operands do not
        say it; accesses has dst's first."""
        operands = (dst, *sources)
        chip = [o for o in operands if o._on_chip]
        self.instructions.append(
            Instruction(
                engine,
                name,
                max(o._elements for o in operands) if elements is None else elements,
                inputs,
                max((o._stride for o in chip), default=0) if stride is None else stride,
                max((o.shape[0] for o in chip), default=1),
                bytes_moved,
                passes,
                any(o.buffer == PSUM for o in operands),
                tuple(accesses[1:] if accesses else (o._access() for o in sources)),
                (accesses[0] if accesses else dst._access(),),
                place(),
            )
        )

    # --- at the end ------------------------------------------------------------------------------

    def finish(self, outputs: Sequence[View]) -> None:
        """What can only be judged when the kernel has ended: outputs and room."""
        if not self.limits:
            return
        for output in outputs:
            missing = int((output._state != WRITTEN).sum())
            if missing:
                raise NeuronError(
                    f"{missing} of {output.size} elements of the output {output} were never written"
                )
        for buffer, limit in ((SBUF, CORE.sbuf_bytes), (PSUM, CORE.psum_bytes)):
            peak, at, held = self.peak(buffer)
            if peak > limit:
                instruction = self.instructions[at]
                largest = max(held, key=lambda s: s.partition_bytes)
                raise NeuronError(
                    f"{instruction.name}: {len(held)} live tiles take {peak / 1024:.1f} KiB of "
                    f"each partition of {buffer.upper()}, which has {limit // 1024} KiB; the "
                    f"largest is {whole(largest, View)}",
                    instruction.source,
                )

    def peak(self, buffer: str) -> tuple[int, int, list[Storage]]:
        """The most bytes of a partition that are live at once, at which instruction, and who.

        A tile is live from the first instruction that touches it to the last: no allocator can do
        with less, if it keeps the order.
        """
        lives = self.lives(buffer)
        change: dict[int, int] = {}
        for number, (first, last) in lives.items():
            size = room(self.storages[number])
            change[first] = change.get(first, 0) + size
            change[last + 1] = change.get(last + 1, 0) - size
        held = most = peak = 0
        for at in sorted(change):
            held += change[at]
            if held > most:
                most, peak = held, at
        who = [self.storages[n] for n, (first, last) in lives.items() if first <= peak <= last]
        return most, peak, who if most else []

    def lives(self, buffer: str) -> dict[int, tuple[int, int]]:
        """Storage → the first and the last instruction that touch it."""
        found: dict[int, tuple[int, int]] = {}
        for at, instruction in enumerate(self.instructions):
            for access in (*instruction.reads, *instruction.writes):
                if self.storages[access.storage].buffer == buffer:
                    first, _ = found.get(access.storage, (at, at))
                    found[access.storage] = (first, at)
        return found


def room(storage: Storage) -> int:
    """Bytes of a partition that a tile takes: in PSUM whole banks."""
    size = storage.partition_bytes
    bank = CORE.psum_bank_bytes
    return -(-size // bank) * bank if storage.buffer == PSUM else size


def whole(storage: Storage, kind: type) -> Any:
    """The view of all of a storage."""
    shape = storage.data.shape
    box = tuple((0, n) for n in shape)
    return kind(storage, storage.data, storage.state, box, tuple(range(len(shape))))


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


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _float32(name: str, view: View) -> np.ndarray:
    """As the engines cast what they stream; arithmetic on integers is not in the subset."""
    if view.dtype == np.float32:
        return view._data
    if view.dtype.kind in "iub":
        refuse(f"{name}: {view} is {view.dtype}; the simulator computes with float dtypes only")
    return view._data.astype(np.float32)


def _check_tile(shape: tuple[int, ...], dtype: np.dtype, buffer: str, name: str) -> None:
    what = f"ndarray: {name} {list(shape)} {dtype} in {buffer}"
    if len(shape) < 2:
        refuse(f"{what} has one dimension; a tile has partitions and at least one dimension more")
    if shape[0] > PARTITIONS:
        refuse(f"{what} has {shape[0]} partitions; there are {PARTITIONS}")
    size = math.prod(shape[1:]) * dtype.itemsize
    limit = {SBUF: CORE.sbuf_bytes, PSUM: CORE.psum_bytes}[buffer]
    if size > limit:
        refuse(
            f"{what} takes {size / 1024:.1f} KiB of each partition, which has {limit // 1024} KiB"
        )


def starts(partitions: int) -> tuple[int, ...]:
    """The partitions at which an operand of so many may start (architecture guide)."""
    if partitions > 64:
        return (0,)
    return (0, 64) if partitions > 32 else (0, 32, 64, 96)


def _check_operand(name: str, engine: str, operand: View) -> None:
    if not operand._on_chip:
        refuse(f"{name}: {operand}; an engine reaches SBUF and PSUM only, copy it with a DMA first")
    accepted = starts(operand.shape[0])
    if operand._start not in accepted:
        refuse(
            f"{name}: {operand} starts at partition {operand._start}; "
            f"{operand.shape[0]} partitions may start at {', '.join(map(str, accepted))}"
        )
    if engine == "GpSimd" and operand.buffer == PSUM:
        refuse(f"{name}: {operand}; the GpSimd engine does not reach PSUM")
