"""How long a kernel would take, by the documented cost of each instruction. An estimate, always.

The kernel runs in the simulator, which notes every instruction. Then a list schedule puts them on
the engines: each engine takes its instructions in program order, and an instruction starts when its
operands, its engine and the memory port it shares are free. The DMA queues together are one more
engine, which takes copies as they are ready. A tile takes its room in SBUF when it is first
written, so copies run ahead of the engines only as far as there is room.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.checks import fail
from kernels.neuron.chips import ENGINES, Chip
from kernels.neuron.chips import chip as find_chip
from kernels.neuron.kernel import function_of
from kernels.neuron.machine import PSUM, SBUF, Access, Instruction, Machine, room
from kernels.neuron.simulator import InterpretParams, run_recorded

DMA = "DMA"


@dataclass(frozen=True)
class EngineUse:
    """What one engine does. instructions: how many. cycles: of its clock; for the DMA queues none.
    seconds: that it is busy. by_name: cycles of each kind of instruction."""

    instructions: int
    cycles: float
    seconds: float
    by_name: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Slot:
    """One instruction on the time line. number: in program order. start, end: seconds. source: the
    kernel's line. after: the numbers of the instructions that it had to wait for."""

    engine: str
    instruction: str
    number: int
    start: float
    end: float
    source: str | None
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """An estimate of one kernel, launch and synchronisation not counted.

    seconds: from the first instruction to the last. bound: the engine that is busy the longest.
    engines: "Tensor", "Vector", "Scalar", "GpSimd" and "DMA". dma_bytes: that are moved.
    sbuf_bytes, psum_bytes: the most that is live in a partition, in program order. timeline: every
    instruction. method: how it came about, in words.
    """

    kernel: str
    chip: str
    seconds: float
    bound: str
    engines: Mapping[str, EngineUse]
    dma_bytes: int
    sbuf_bytes: int
    psum_bytes: int
    timeline: tuple[Slot, ...] = field(repr=False)
    method: str = field(repr=False)

    @property
    def busy(self) -> dict[str, float]:
        """The share of the time that each engine works."""
        return {name: use.seconds / self.seconds for name, use in self.engines.items()}


def estimate(
    kernel: Any,
    *arrays: Any,
    chip: str = "inf2",
    dma_bytes_per_second: float | None = None,
    **options: Any,
) -> Estimate:
    """Estimate the run time of `kernel` on one NeuronCore-v2.

    kernel, arrays, options: as `simulate` takes them; a ShapeDtypeStruct does for an array.
    chip: "inf2" or "trn1". dma_bytes_per_second: of all DMA queues of the core together; the
    documents disagree, and by default it is the chip's lower figure. NeuronError for a kernel that
    the simulator refuses, ValueError for another chip or rate.

    Costs are those of AWS's architecture guide: N cycles for N elements a partition and one input,
    2 N for two, 8 N for a reciprocal on the Vector engine, at least 64; half the rate for a stride
    above 16 bytes; 100 cycles more for what is short or waits for the instruction before it. The
    guide gives no rule for the GpSimd engine; here it has the Vector engine's. Not counted: the
    launch, the engines' signals to each other, and what a compiler does better or worse.
    """
    found = find_chip(chip)
    share = found.hbm_bytes_per_second / found.cores
    asked = found.dma_bytes_per_second if dma_bytes_per_second is None else dma_bytes_per_second
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not asked > 0:
        fail("dma_bytes_per_second", repr(asked), "a number above 0, or None")
    rate = min(asked, share)
    _, core = run_recorded(kernel, arrays, options, InterpretParams())
    slots = _Schedule(core, found, rate).slots()
    engines = _engines(slots, core.instructions, found)
    return Estimate(
        function_of(kernel).__name__,
        found.name,
        max((slot.end for slot in slots), default=0.0),
        max(engines, key=lambda name: engines[name].seconds),
        engines,
        sum(instruction.bytes for instruction in core.instructions),
        core.peak(SBUF)[0],
        core.peak(PSUM)[0],
        tuple(slots),
        "list schedule of the instructions that the simulator ran, at the costs of AWS's "
        f"architecture guide; DMA at {rate / 1e9:.0f} GB/s; launch and signals not counted",
    )


def cycles(instruction: Instruction, chip: Chip, waits: bool) -> float:
    """Of the engine's clock. waits: whether it reads what the engine wrote just before."""
    work = instruction.elements * instruction.inputs * instruction.passes
    if instruction.stride > chip.wide_stride_bytes:
        work *= 2
    if instruction.engine == "Tensor":  # pipelined, and no figure is given for what waits
        return max(chip.least_cycles, work)
    more = waits or instruction.elements < chip.short
    return max(chip.least_cycles, work) + chip.dependent_cycles * more


def _engines(
    slots: Sequence[Slot], instructions: Sequence[Instruction], chip: Chip
) -> dict[str, EngineUse]:
    found = {}
    for name in (*ENGINES, DMA):
        own = [slot for slot in slots if slot.engine == name]
        seconds = sum(slot.end - slot.start for slot in own)
        clock = chip.clock_hz.get(name, 0)
        kinds: Counter[str] = Counter()
        for slot in own:
            kinds[slot.instruction] += round((slot.end - slot.start) * clock)
        found[name] = EngineUse(len(own), sum(kinds.values()), seconds, dict(kinds))
    return found


class _Schedule:
    """The list schedule."""

    def __init__(self, core: Machine, chip: Chip, rate: float) -> None:
        self.core, self.chip, self.rate = core, chip, rate
        self.free: dict[str, float] = {}  # engine or port → when
        self.copies: list[tuple[float, float]] = []  # when the DMA queues are busy, sorted
        self.last: dict[str, int] = {}  # engine → its latest instruction
        self.touched: dict[int, list[tuple[Access, bool, int]]] = {}  # storage → by whom
        self.ends: list[float] = []
        self.born: dict[int, list[int]] = {}  # instruction → tiles that it touches first
        self.dies: dict[int, list[int]] = {}  # instruction → tiles that it touches last
        for storage, (first, last) in core.lives(SBUF).items():
            self.born.setdefault(first, []).append(storage)
            self.dies.setdefault(last, []).append(storage)
        self.released: list[tuple[float, int]] = []  # when a dead tile's room is free, and bytes
        self.held = 0  # bytes of live tiles

    def slots(self) -> list[Slot]:
        return [self._slot(number, each) for number, each in enumerate(self.core.instructions)]

    def _slot(self, number: int, instruction: Instruction) -> Slot:
        engine = instruction.engine
        after = self._conflicts(instruction)
        ready = max((self.ends[n] for n in after), default=0.0)
        ready = max(ready, self._room(number))
        if engine == DMA:
            # The start of one copy hides behind the bytes of another.
            lanes = min(instruction.partitions, self.chip.dma_queues) / self.chip.dma_queues
            length = instruction.bytes / (self.rate * lanes)
            start = self._gap(ready + self.chip.dma_start_seconds, length)
            end = start + length
        else:
            before = self.last.get(engine)
            waits = before is not None and before in after
            start = max([ready, *(self.free.get(p, 0.0) for p in _ports(instruction))])
            end = start + cycles(instruction, self.chip, waits) / self.chip.clock_hz[engine]
            for port in _ports(instruction):
                self.free[port] = end
        self.last[engine] = number
        self.ends.append(end)
        self._touch(number, instruction)
        self._release(number)
        return Slot(
            engine, instruction.name, number, start, end, instruction.source, tuple(sorted(after))
        )

    def _gap(self, ready: float, length: float) -> float:
        """When the queues have time for a copy; one that is ready overtakes one that waits."""
        start = ready
        for begin, end in self.copies:
            if start + length <= begin:
                break
            start = max(start, end)
        bisect.insort(self.copies, (start, start + length))
        return start

    def _conflicts(self, instruction: Instruction) -> set[int]:
        """Earlier instructions that wrote what it reads, or touched what it writes."""
        found = set()
        for access, writes in _accesses(instruction):
            for other, wrote, number in self.touched.get(access.storage, ()):
                if (writes or wrote) and access.overlaps(other):
                    found.add(number)
        return found

    def _touch(self, number: int, instruction: Instruction) -> None:
        for access, writes in _accesses(instruction):
            known = self.touched.setdefault(access.storage, [])
            if writes:  # whoever waits for this one has waited for those
                known[:] = [k for k in known if not _covers(access, k[0])]
            known.append((access, writes, number))

    def _room(self, number: int) -> float:
        """When SBUF has room for the tiles that this instruction touches first."""
        new = sum(room(self.core.storages[storage]) for storage in self.born.get(number, ()))
        if not new:
            return 0.0
        self.held += new
        over = self.held + sum(size for _, size in self.released) - self.chip.sbuf_bytes
        at = 0.0
        for when, size in sorted(self.released):
            if over <= 0:
                break
            over -= size
            at = when
            self.released.remove((when, size))
        return at

    def _release(self, number: int) -> None:
        for storage in self.dies.get(number, ()):
            size = room(self.core.storages[storage])
            self.held -= size
            done = max(self.ends[n] for _, _, n in self.touched[storage])
            self.released.append((done, size))


def _accesses(instruction: Instruction) -> list[tuple[Access, bool]]:
    return [(a, False) for a in instruction.reads] + [(a, True) for a in instruction.writes]


def _covers(outer: Access, inner: Access) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer.box, inner.box))


def _ports(instruction: Instruction) -> list[str]:
    """The engine, and the ports to memory that another engine shares (architecture guide)."""
    engine = instruction.engine
    found = [engine]
    if engine in ("Vector", "GpSimd"):
        found.append("SBUF port")
    if engine in ("Vector", "Scalar") and instruction.psum:
        found.append("PSUM port")
    return found
