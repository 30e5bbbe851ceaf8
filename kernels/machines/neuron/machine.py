"""A NeuronCore in NumPy: memories that know what was written, and instructions that are recorded.

A tile is a NumPy array, and one more of the same shape that says of each element whether it was
written, unless all elements are in the same state. Views share both. Whatever touches a tile goes
through `read` and `write`, which hold the core's limits; `note` records the instruction for the
estimate, and for the search for loops whose iterations depend on each other.

Over 600 lines because reading, computing, writing and recording share what a run knows.
"""

import math
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.chips import CHIPS, PARTITIONS, NeuronChip
from kernels.machines.neuron.errors import NeuronError, place, refuse
from kernels.machines.neuron.loops import Loops, Sample
from kernels.machines.neuron.memory import (
    HBM,
    ON_CHIP,
    PSUM,
    READ,
    SBUF,
    SHARED_HBM,
    UNDEFINED,
    UNWRITTEN,
    WRITTEN,
    EngineInstruction,
    Picked,
    Room,
    Storage,
    View,
    has_nan,
    is_undefined,
    running,
    spoiled,
    whole,
)

BEFORE = "before"  # a result that depends on the elements of its partition up to its own


class NeedsNumbers(Exception):
    """A run without numbers came to an instruction that steers by one."""


class NeuronMachine(Loops):
    """One run of a kernel on the simulated core.

    limits: whether the core's limits are held. order: seed of the order in which independent
    iterations run; None is the written one. chip: whose limits. numbers: whether anything is
    computed; without, instructions are only recorded. sample: where loops leave iterations out that
    are like the others. beta1: whether that generation's ways hold: a tile may have partitions
    only, NumPy's functions name operations, what does not change moves out of loops.
    """

    def __init__(
        self,
        limits: bool = True,
        order: int | None = None,
        chip: NeuronChip = CHIPS["inf2"],
        numbers: bool = True,
        grid: tuple[int, ...] = (),
        sample: Sample | None = None,
        beta1: bool = False,
    ) -> None:
        super().__init__(order, sample, beta1)
        self.limits = limits
        self.chip = chip
        self.numbers = numbers
        self.grid = grid
        self.program = 0  # that runs
        self.shared: list[Storage] = []  # that all programs of the grid have
        self.seen = 0  # of those, by the program that runs
        # Of the engines that accumulate, and whether what is in those is undefined.
        self.registers: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.loose: np.ndarray | None = None  # of the numbers that were computed last
        self.origins: dict[int, str] = {}  # storage → where what is undefined in it came from
        self.reductions: dict[tuple[Any, ...], Any] = {}  # of nl.loop_reduce: place, loops → tile
        self.totals: set[int] = set()  # their storages
        self.calls: Counter[tuple[Any, ...]] = Counter()  # of it, in an iteration
        # (pipe, from, to) → numbers and states, in the order in which they were sent
        self.mail: dict[tuple[Any, int, int], deque[tuple[np.ndarray, np.ndarray | None]]] = {}
        self.turns: Any = None  # who takes turns, where several programs run at once
        self._names: Counter[str] = Counter()

    @property
    def grid_programs(self) -> range:
        """The numbers of all programs."""
        return range(math.prod(self.grid))

    def enter(self, program: int) -> None:
        """Begin a program."""
        self.program, self.seen = program, 0
        self.loops, self.iteration, self.registers = [], (), {}

    def leave(self) -> tuple[Any, ...]:
        """What a program has of its own, while another one runs."""
        return self.seen, self.loops, self.iteration, self.registers

    def come_back(self, program: int, kept: tuple[Any, ...]) -> None:
        """Go on with a program."""
        self.program = program
        self.seen, self.loops, self.iteration, self.registers = kept

    def meet(self, name: str) -> None:
        """Wait for the other programs."""
        if self.turns is None:
            refuse(f"{name}: there is one core; start the kernel with kernel[2]")
        self.turns.meet(name)

    def allocate(
        self,
        shape,
        dtype,
        buffer: str,
        name: str = "",
        kind: type = View,
        par: int = 0,
        base: int = 0,
    ) -> Any:
        """A new tile; nothing in it is written."""
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        whole_numbers = all(isinstance(n, (int, np.integer)) for n in shape)
        if not shape or not whole_numbers or bool in map(type, shape) or min(shape) < 1:
            refuse(f"ndarray of shape {shape}: dimensions are whole numbers of at least 1")
        shape = tuple(map(int, shape))
        dtype = dtypes.of(dtype)
        if buffer == SHARED_HBM and self.grid and (storage := self._shared(shape, dtype)):
            return whole(storage, kind)
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
        storage = self.shared[at]
        if (storage.data.shape, storage.data.dtype) != (shape, dtype):
            refuse(
                f"ndarray {list(shape)} {dtypes.name(dtype)} in shared_hbm: an earlier program of "
                f"the grid made it {list(storage.data.shape)} {dtypes.name(storage.data.dtype)}"
            )
        return storage

    def argument(self, array: np.ndarray, name: str, kind: type) -> Any:
        """An argument of the kernel, in HBM; shared where there are several cores."""
        return self._enter(array, SHARED_HBM if self.grid else HBM, name, WRITTEN, kind)

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
        if not name:
            kind_of = "tile" if buffer in ON_CHIP else "tensor"
            self._names[kind_of] += 1
            name = f"{kind_of} {self._names[kind_of]}"
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

    def _check_tile(
        self, shape: tuple[int, ...], dtype: np.dtype, buffer: str, name: str, par: int
    ) -> None:
        what = f"ndarray: {name} {list(shape)} {dtypes.name(dtype)} in {buffer}"
        if len(shape) < 2 and not self.beta1:
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

    def compute(
        self,
        engine: str,
        name: str,
        function: Callable[..., np.ndarray],
        dst: View,
        *sources: View,
        work: float | None = None,
        columns: Sequence[View | np.float32] = (),
        raw: bool = False,
        shapes: bool = True,
        across: bool | str | None = None,
        chosen: Sequence[View | np.float32] = (),
        **noted,
    ) -> np.ndarray | None:
        """dst = function(*sources), element by element, in float32; the numbers, before they are
        cast to the dtype of dst.

        Args:
            work: cycles; by default the elements of a partition times the number of sources.
            columns: operands of one number a partition, or one for all, passed to `function` after
                the sources.
            raw: on the numbers as they are, and not in float32.
            shapes: whether all have as many elements as dst.
            across: whether a result depends on other elements of its partition, or on those BEFORE
                it; by default where not all have as many elements.
            chosen: sources that the function may leave out of a result, and that make it not a
                number where they are none.
            **noted: as for `note`.
        """
        vectors = [one for one in columns if isinstance(one, View)]
        operands = (*sources, *vectors)
        if self.limits:
            for operand in (dst, *operands):
                self.check_operand(name, engine, operand)
            for operand in sources if shapes else ():  # nothing is broadcast
                if (operand.shape[0], operand._elements) != (dst.shape[0], dst._elements):
                    refuse(
                        f"{name}: {operand} and dst {dst} differ; nothing is broadcast, so all "
                        "have the same partitions and as many elements in each"
                    )
            for operand in vectors:
                if operand.shape[0] != dst.shape[0] or operand._elements != 1:
                    refuse(
                        f"{name}: {operand} is no number for each of dst's {dst.shape[0]} "
                        f"partitions; accepted: [{dst.shape[0]}, 1]"
                    )
        states = [self.check_written(name, operand) for operand in operands]
        self.loose = None
        result = None
        if self.numbers:
            read = (lambda _, view: view._values()) if raw else _wide
            numbers = [
                spoiled(read(name, operand), state) for operand, state in zip(operands, states)
            ]
            values: list[Any] = numbers[: len(sources)]
            if shapes and all(v.size == dst.size for v in values):
                values = [v.reshape(dst.shape) for v in values]
            ones = (1,) * (dst.ndim - 1)
            lanes = iter([v.reshape(len(v), *ones) for v in numbers[len(sources) :]])
            values += [next(lanes) if isinstance(one, View) else one for one in columns]
            with np.errstate(all="ignore"):
                result = function(*values)
        fresh = self.write(name, dst, result)
        if any(state is not None for state in states):
            across = not shapes if across is None else across
            self.loosen(name, dst, operands, states, across, chosen, result)
        n = max([dst._elements, *(s._elements for s in sources)])
        self.note(
            engine,
            name,
            dst,
            operands,
            work=n * max(1, len(sources)) if work is None else work,
            elements=n,
            fresh=fresh,
            **noted,
        )
        return result

    def loosen(
        self,
        name: str,
        dst: View,
        sources: Sequence[View],
        states: Sequence[np.ndarray | None],
        across: bool | str = False,
        chosen: Sequence[View | np.float32] = (),
        result: np.ndarray | None = None,
    ) -> None:
        """What comes from something undefined is undefined in dst too: `states` are those of the
        sources' elements, None where all are defined, and `result` the numbers of dst; the rest as
        for `compute`."""
        loose = np.zeros(dst.shape, bool)
        for source, state in zip(sources, states):
            if state is None:
                continue
            bad = is_undefined(state)
            if source.size == dst.size and not across:
                marks = bad.reshape(dst.shape)
            elif across == BEFORE and source.size == dst.size:
                rows: Any = bad.reshape(dst.shape[0], -1)
                marks = np.logical_or.accumulate(rows, axis=1).reshape(dst.shape)
            elif source.ndim == dst.ndim and not across:
                marks = np.broadcast_to(bad.reshape(source.shape), dst.shape)
            elif source.shape[0] == dst.shape[0]:
                rows = bad.reshape(source.shape[0], -1).any(axis=1)
                marks = rows.reshape(-1, *[1] * (dst.ndim - 1))
            else:
                marks = np.ones(dst.shape, bool)
            left = any(source is one for one in chosen) and has_nan(source.dtype)
            if left and result is not None and has_nan(result.dtype):
                marks = marks & np.isnan(result).reshape(dst.shape)
            loose |= marks
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
        dst._change(loose, UNDEFINED)
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

    def check_operand(self, name: str, engine: str, operand: View) -> None:
        """What every engine asks of an operand."""
        storage = operand._storage
        if storage.buffer not in ON_CHIP:
            refuse(
                f"{name}: {operand}; an engine reaches SBUF and PSUM only: nl.load it first, or "
                "copy it with a DMA"
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

    def copy(self, name: str, dst: View, src: View, elements: int | None = None) -> None:
        """A DMA between HBM and SBUF: as many elements, in any shape; all without `elements`."""
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
            one, other = values.dtype, dst.dtype
            same_bits = one.itemsize == other.itemsize and {one.kind, other.kind} <= {*"iub"}
            if one != other and not same_bits:
                values = dtypes.wide(values)
            if values.size == dst.size:
                values = values.reshape(dst.shape)
        self.read_from(src)  # before, since a tensor may be copied onto itself: a fence
        fresh = self.write(name, dst, values, once=True)
        if states is not None and src.size == dst.size:
            self.loosen(name, dst, (src,), (states,))
        moved = (dst.size if elements is None else int(elements)) * dst.dtype.itemsize
        runs = min(dst._run, src._run)
        self.note("DMA", name, dst, (src,), bytes=moved, run=runs, fresh=fresh, detail=())

    def check_written(self, name: str, view: View, whole: bool = False) -> np.ndarray | None:
        """Refuse to read what was never written; the states, where some element is undefined.

        Where only a part was never written, as the padding of a tile, an instruction may move it or
        compute with it, and what it makes of it is undefined: only outputs are held to be defined.
        With `whole` each element must be, since it steers something or the instruction does not say
        which results depend on it.
        """
        states = view._states()
        if self.sample is not None and self.sample.extrapolated:
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
        origin = self.origins.get(view._storage.number)
        return "" if origin is None else f": {origin}"

    def read_from(self, view: View) -> None:
        """Elements of HBM that were read may be written again."""
        storage = view._storage
        if storage.stored and storage.buffer not in ON_CHIP and self.limits:
            view._mark(READ)

    def read(self, name: str, view: View) -> np.ndarray:
        """The numbers of a view; what was never written is refused."""
        self.check_written(name, view, whole=True)
        return _wide(name, view)

    def write(
        self,
        name: str,
        dst: View,
        values: np.ndarray | None,
        once: bool = False,
        state: int = WRITTEN,
    ) -> bool:
        """Store `values`, None where nothing is computed, in that state; whether all of it was
        unwritten. With `once` an element of HBM is written one time only, unless it was read since.
        """
        storage = dst._storage
        if not storage.stored and storage.buffer not in ON_CHIP and storage.uniform == WRITTEN:
            # An argument: now it is an output, and keeps what is not written; of beta 1 all is.
            storage.uniform, storage.state = UNWRITTEN if self.beta1 else READ, None
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
                self._in_order(
                    f"{name} writes {again} elements of {dst} a second time: which write comes "
                    "last is left to the DMA engines",
                    len(self.grid_programs) > 1 or (self.beta1 and self._raced(dst)),
                )
        if dst._repeats() and not isinstance(dst, Picked):
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
            kept = dtypes.same(dst._values(), old) & np.broadcast_to(before == WRITTEN, dst.shape)
            self.unchanged = (dst, kept.reshape(dst.shape[0], -1).all(axis=1))
        return fresh

    def _agree(self, dst: View, values: np.ndarray | None, twice: np.ndarray) -> bool:
        """Whether several programs write the same numbers, so that either may come last."""
        if len(self.grid_programs) < 2:
            return False
        if values is None or not self.numbers:
            return True
        new = dtypes.narrow(np.asarray(values).reshape(dst.shape), dst.dtype)
        return bool(dtypes.same(new, dst._values())[twice].all())

    def note(
        self,
        engine: str,
        name: str,
        dst: View,
        sources: Sequence[View],
        elements: int | None = None,
        op: str = "",
        also: Sequence[View] = (),
        fresh: bool = False,
        detail: tuple[Any, ...] | None = None,
        **fields,
    ) -> None:
        """Record an instruction that has run: `op` is the operation, where it only adds to what it
        reads or to dst in PSUM, `also` what it writes beside dst, `detail` its own numbers, where
        they and its operands say all that it does, and `fields` those of an EngineInstruction."""
        writes = (dst, *also)
        operands = (*writes, *sources)
        if self.sample is not None:
            self._find_leaks(operands)
        if self.contended and self.limits:
            self._settle(name, sources, writes)
        if self.loops and self.limits:
            self._watch(name, op, sources, writes)
        chip = [o for o in operands if o._storage.buffer in ON_CHIP]
        self.instructions.append(
            EngineInstruction(
                engine,
                name,
                max(o._elements for o in operands) if elements is None else elements,
                max((o._stride for o in chip), default=0),
                max((o._data.shape[o._par] for o in chip), default=1),
                any(o._storage.buffer == PSUM for o in chip),
                any(o._storage.buffer == SBUF for o in chip),
                tuple([o._access() for o in sources]),
                tuple([o._access() for o in writes]),
                place(),
                self.program,
                self._hoisted(name, dst, sources, fresh, detail) if self.beta1 else False,
                fresh=fresh,
                **fields,
            )
        )

    def finish(self, outputs: Sequence[View]) -> None:
        """What can only be judged when the kernel has ended: outputs and room."""
        if not self.limits:
            return
        partial = self.sample is not None and self.sample.extrapolated
        for output in [] if partial else outputs:
            states = output._states()
            missing = int(np.count_nonzero(np.broadcast_to(is_undefined(states), output.shape)))
            if not missing:
                continue
            origin = self.origin(output)
            message = f"{missing} of {output.size} elements of the output {output} " + (
                f"are undefined{origin}" if origin else "were never written"
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
        """The most bytes of a partition that are live at once, at which instruction, and who. A
        tile is live from the first instruction that touches it to the last: no allocator can do
        with less, if it keeps the order."""
        spans = lives(self.rooms, self.instructions, buffer)
        change: Counter[int] = Counter()
        for (number, _), (first, last) in spans.items():
            change[first] += self.room(number)
            change[last + 1] -= self.room(number)
        held = most = peak = 0
        for at in sorted(change):
            held += change[at]
            if held > most:
                most, peak = held, at
        who = [self.rooms[n] for (n, _), (first, last) in spans.items() if first <= peak <= last]
        return most, peak, who if most else []

    def room(self, number: int) -> int:
        """Bytes of a partition that a storage takes: in PSUM whole banks."""
        room = self.rooms[number]
        if room.buffer != PSUM:
            return room.partition_bytes
        bank = self.chip.psum_bank_bytes
        return -(-room.partition_bytes // bank) * bank


def lives(
    rooms: Sequence[Room], instructions: Sequence[EngineInstruction], buffer: str
) -> dict[tuple[int, int], tuple[int, int]]:
    """Storage and its block → the first and the last instruction that touch it."""
    spans: dict[tuple[int, int], tuple[int, int]] = {}
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
                first, _ = spans.get((number, block), (at, at))
                spans[number, block] = (first, at)
    return spans


def machine() -> NeuronMachine:
    """The run that is going on; NeuronError outside of one."""
    core = running.get()
    if core is None:
        raise NeuronError(
            "an instruction was called outside a kernel: call the kernel with neuron.simulate",
            place(),
        )
    return core


def _wide(name: str, view: View) -> np.ndarray:
    """As the engines cast what they stream."""
    if dtypes.is_packed(view.dtype):
        refuse(
            f"{name}: {view} is {dtypes.name(view.dtype)}, four numbers in an element; accepted by "
            "nc_matmul_mx, quantize_mx and copies"
        )
    return dtypes.wide(view._values())


def starts(partitions: int) -> tuple[int, ...]:
    """The partitions at which an operand of so many may start (architecture guide)."""
    if partitions > 64:
        return (0,)
    return (0, 64) if partitions > 32 else (0, 32, 64, 96)
