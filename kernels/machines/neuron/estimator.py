"""How long a kernel would take, by the documented cost of each instruction. An estimate, always.

The kernel runs in the simulator, which notes every instruction and computes nothing, unless the
kernel steers by numbers. Then a list schedule puts the instructions on the engines: each engine
takes its own in program order, and an instruction starts when its operands, its engine and the
memory port it shares are free. Each DMA engine takes copies as they are ready, and of a copy
8 partitions. A tile takes its room in SBUF when it is first written, so copies run ahead of the
engines only as far as there is room. What beta 1's compiler moves out of a loop, because no
iteration changes it, is counted once.

Of a long kernel, loops run six iterations only: the first four, one in the middle, the last. What
the others do is made of the third and the fourth: the same instructions, on tiles and places that
move by the same steps. The one in the middle has to agree, or the loop runs whole.
"""

import bisect
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels.machines.base import Seconds
from kernels.machines.checks import fail, positive
from kernels.machines.neuron.chips import ENGINES, PARTITIONS, NeuronChip
from kernels.machines.neuron.chips import chip as find_chip
from kernels.machines.neuron.kernel import function_of
from kernels.machines.neuron.loops import Sample
from kernels.machines.neuron.machine import NeedsNumbers, NeuronMachine, lives
from kernels.machines.neuron.memory import PSUM, SBUF, Access, EngineInstruction
from kernels.machines.neuron.simulator import InterpretParams, run_recorded

DMA = "DMA"
LONG = 10_000  # instructions; a kernel of more is not run whole, where its loops allow that
# What a latency has and a schedule has not, and between what errors four in five of such sums lie
# of AWS's unit tests that nothing was fitted to: validation.trn1_units, with chips of GENERATION.
START_SECONDS, ERRORS, GENERATION = 8.9e-6, (-0.307, 0.313), 2


@dataclass(frozen=True)
class EngineUse:
    """What one engine does.

    Args:
        instructions: how many.
        cycles: of its clock; for the DMA queues none.
        seconds: that it is busy.
        by_name: cycles of each kind of instruction.
    """

    instructions: int
    cycles: float
    seconds: float
    by_name: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineSlot:
    """One instruction on the time line.

    Args:
        engine, instruction: their names.
        number: in program order.
        start, end: seconds.
        source: the kernel's line.
        after: the numbers of the instructions that it had to wait for.
    """

    engine: str
    instruction: str
    number: int
    start: float
    end: float
    source: str | None
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class NeuronEstimate:
    """An estimate of one kernel, launch and synchronisation not counted.

    Args:
        seconds: from the first instruction to the last.
        bound: the engine that is busy the longest.
        engines: "Tensor", "Vector", "Scalar", "GpSimd" and "DMA".
        dma_bytes: that are moved.
        sbuf_bytes, psum_bytes: the most that is live in a partition, in program order.
        kernel, chip: their names.
        timeline: every instruction.
        method: how it came about, in words.
        extrapolated: the share of the instructions that never ran, but were made from those
            of loops' first iterations.
    """

    kernel: str
    chip: str
    seconds: Seconds
    bound: str
    engines: Mapping[str, EngineUse]
    dma_bytes: int
    sbuf_bytes: int
    psum_bytes: int
    timeline: tuple[EngineSlot, ...] = field(repr=False)
    method: str = field(repr=False)
    extrapolated: float = 0.0

    @property
    def busy(self) -> dict[str, float]:
        """The share of the time that each engine works."""
        return {name: use.seconds / self.seconds for name, use in self.engines.items()}

    @property
    def band_text(self) -> str:
        """How far such estimates are off once a launch is added, in words, or why nobody knows."""
        from kernels.machines.tpu.estimate.bands import Band, none

        if find_chip(self.chip).generation != GENERATION:
            return none(0)
        return f"{Band(self.chip, '', *ERRORS, 9).text}, and {START_SECONDS * 1e6:.0f} µs to start"


def estimate(
    kernel,
    *arrays,
    chip: str = "inf2",
    dma_bytes_per_second: float | None = None,
    reciprocal_cycles: float | None = None,
    whole: bool | None = None,
    **options,
) -> NeuronEstimate:
    """Estimate the run time of `kernel` on one NeuronCore.

    Costs are those of AWS's architecture guides and of nki.isa: N cycles for N elements a
    partition and one input, 2 N for two in SBUF, 8 N for a reciprocal on the Vector engine, at
    least 64; half the rate for a stride above 16 bytes; 100 cycles more for what is short or
    waits for the instruction before it; 150 for the start of a GpSimd program. Programs of
    kernel[grid] follow each other in beta 1; in the modern API each is a core, and the slowest
    counts. Not counted: the launch, the engines' signals to each other, and what a compiler does
    better or worse.

    Args:
        kernel: as `simulate` takes it.
        *arrays: as `simulate` takes them; a ShapeDtypeStruct does for an array, where the kernel
            does not steer by its numbers.
        **options: as `simulate` takes them.
        chip: "inf2", "trn1", "trn2" or "trn3".
        dma_bytes_per_second: of all DMA queues of the core together; the documents
            disagree, and by default it is the chip's lower figure.
        reciprocal_cycles: of the Vector engine, for an element; by default the documents'
            8, but kernels of 2025 say at most 2.8 (validation.trn1_kernels).
        whole: True runs every iteration of loops, False leaves those out that are like the
            ones before them, and None does so where the kernel has more than 10,000
            instructions; then nothing holds that what is read or returned was written in
            full.

    Raises:
        NeuronError: for a kernel that the simulator refuses.
        ValueError: for another chip, rate or number of cycles.
    """
    core_chip = find_chip(chip)
    asked, price = core_chip.dma_bytes_per_second, core_chip.reciprocal_cycles
    if dma_bytes_per_second is not None:
        positive("dma_bytes_per_second", asked := dma_bytes_per_second)
    if reciprocal_cycles is not None:
        positive("reciprocal_cycles", price := reciprocal_cycles)
    rate = min(asked, core_chip.hbm_bytes_per_second / core_chip.cores)
    core_chip = dataclasses.replace(core_chip, reciprocal_cycles=price)
    if whole not in (None, True, False):
        fail("whole", repr(whole), "None, True or False")
    core = _recorded(kernel, arrays, options, InterpretParams(chip=chip), whole)
    left_out = core.sample.extrapolated if core.sample else 0
    share = left_out / len(core.instructions) if left_out else 0.0
    slots = _programs(core, core_chip, rate)
    engines = _engines(slots, core_chip)
    return NeuronEstimate(
        function_of(kernel).__name__,
        core_chip.name,
        Seconds(max((slot.end for slot in slots), default=0.0)),
        max(engines, key=lambda name: engines[name].seconds),
        engines,
        sum(instruction.bytes for instruction in core.instructions if not instruction.hoisted),
        core.peak(SBUF)[0],
        core.peak(PSUM)[0],
        tuple(slots),
        "list schedule of the instructions that the simulator ran"
        + (f", {share:.1%} of them made from loops' first iterations" if share else "")
        + f", at the costs of AWS's architecture guide; DMA at {rate / 1e9:.0f} GB/s; "
        + (f"reciprocals at {price:g} cycles; " if reciprocal_cycles is not None else "")
        + "launch and signals not counted",
        share,
    )


def _recorded(
    kernel,
    arrays: tuple[Any, ...],
    options: dict[str, Any],
    params: InterpretParams,
    whole: bool | None,
) -> NeuronMachine:
    """A run of the kernel, with or without all iterations of its loops."""
    try:
        core = None if whole else _sampled(kernel, arrays, options, params)
        if core is None or (whole is None and len(core.instructions) <= LONG):
            core = run_recorded(kernel, arrays, options, params, numbers=False)[1]
        return core
    except NeedsNumbers as error:
        if not all(hasattr(a, "__array__") for a in arrays if hasattr(a, "shape")):
            fail("arrays", "shapes alone", f"arrays: the kernel steers by numbers ({error})")
        return run_recorded(kernel, arrays, options, params)[1]


def _sampled(
    kernel, arrays: tuple[Any, ...], options: dict[str, Any], params: InterpretParams
) -> NeuronMachine | None:
    """A run whose loops leave iterations out, except those whose tiles are used later on; None
    where the kernel does not bear that: then a whole run says what is wrong."""
    known: set[str | None] = set()
    while True:
        sample, core = Sample(), None
        sample.whole |= known
        try:
            core = run_recorded(kernel, arrays, options, params, False, sample)[1]
        except NeedsNumbers:
            raise
        except Exception:  # of any type: a loop is unsteady, or a list of tiles too short
            if sample.leaks | sample.whole == known:
                return None
        if sample.leaks <= known and core is not None:
            return core
        known |= sample.whole | sample.leaks


def _programs(core: NeuronMachine, chip: NeuronChip, rate: float) -> list[EngineSlot]:
    """The time line; of several cores that of the slowest."""
    cores = [core.instructions]
    if core.turns is not None:
        cores = [
            [instruction for instruction in core.instructions if instruction.program == program]
            for program in core.grid_programs
        ]
    lines = [_Schedule(core, chip, rate, own).slots() for own in cores]
    return max(lines, key=lambda slots: max((slot.end for slot in slots), default=0.0))


def cycles(instruction: EngineInstruction, chip: NeuronChip, waits: bool) -> float:
    """Of the engine's clock; it `waits` where it reads what the engine wrote just before."""
    work = instruction.work
    if instruction.name == "reciprocal" and instruction.engine == "Vector":
        work = chip.reciprocal_cycles * instruction.elements
    if instruction.engine == "Tensor":  # pipelined, and no figure is given for what waits
        return max(chip.least_cycles, work)
    if instruction.stride > chip.wide_stride_bytes:
        work *= 2
    if chip.fast_vector and instruction.engine == "Vector":
        work /= instruction.fast
    if instruction.extra:  # a GpSimd program's start, which the documents give for itself
        return instruction.extra + work
    more = waits or instruction.elements < chip.short
    return max(chip.least_cycles, work) + chip.dependent_cycles * more


def _engines(slots: Sequence[EngineSlot], chip: NeuronChip) -> dict[str, EngineUse]:
    uses = {}
    for name in (*ENGINES, DMA):
        own = [slot for slot in slots if slot.engine == name]
        seconds = until = 0.0  # copies that lie side by side count once
        for slot in sorted(own, key=lambda slot: slot.start):
            seconds += max(slot.end - max(slot.start, until), 0.0)
            until = max(until, slot.end)
        clock = chip.clock_hz.get(name, 0)
        kinds: Counter[str] = Counter()
        for slot in own:
            kinds[slot.instruction] += round((slot.end - slot.start) * clock)
        uses[name] = EngineUse(len(own), sum(kinds.values()), seconds, dict(kinds))
    return uses


class _Schedule:
    """The list schedule."""

    def __init__(
        self,
        core: NeuronMachine,
        chip: NeuronChip,
        rate: float,
        instructions: Sequence[EngineInstruction],
    ) -> None:
        self.core, self.chip, self.rate = core, chip, rate
        self.instructions = instructions
        self.free: dict[str, float] = {}  # engine or port → when
        # When each DMA engine is busy, sorted.
        self.copies: list[list[tuple[float, float]]] = [[] for _ in range(chip.dma_queues)]
        self.last: dict[str, int] = {}  # engine → its latest instruction
        self.wrote: dict[int, list[tuple[Access, int]]] = {}  # storage → by whom
        self.reads: dict[int, list[tuple[Access, int]]] = {}
        # storage → when the last who touched it had ended
        self.done: defaultdict[int, float] = defaultdict(float)
        self.ends: list[float] = []
        # instruction → tiles that it touches first, and last
        self.born, self.dies = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for (storage, _), (first, last) in lives(core.rooms, instructions, SBUF).items():
            self.born[first].append(storage)
            self.dies[last].append(storage)
        self.released: list[tuple[float, int]] = []  # when a dead tile's room is free, and bytes
        self.waiting = 0  # bytes of those
        self.held = 0  # bytes of live tiles

    def slots(self) -> list[EngineSlot]:
        slots = []
        for number, instruction in enumerate(self.instructions):
            slot = self._slot(number, instruction)
            self.ends.append(slot.end)
            self._touch(number, instruction)
            self._release(number)
            if not instruction.hoisted:
                self.last[slot.engine] = number
                slots.append(slot)
        return slots

    def _slot(self, number: int, instruction: EngineInstruction) -> EngineSlot:
        engine = instruction.engine
        after = self._conflicts(instruction)
        ready = max([self._room(number), *[self.ends[n] for n in after]])
        if instruction.hoisted:  # the result is there already
            start = end = ready
        elif engine == DMA:
            # The start of one copy hides behind the bytes of another.
            start, end = self._copied(instruction, ready + self.chip.dma_start_seconds)
        else:
            engines = (engine, "Scalar") if instruction.either else (engine,)
            tried = [self._on(name, instruction, ready, after) for name in engines]
            start, end, engine, ports = min(tried, key=lambda one: one[1])
            self.free.update(dict.fromkeys(ports, end))
        return EngineSlot(
            engine, instruction.name, number, start, end, instruction.source, tuple(sorted(after))
        )

    def _on(
        self, engine: str, instruction: EngineInstruction, ready: float, after: set[int]
    ) -> tuple[float, float, str, list[str]]:
        """When an instruction would start and end on an engine, and what it keeps busy."""
        if engine != instruction.engine:
            instruction = instruction._replace(engine=engine)
        ports = _ports(instruction, self.chip)
        start = max([ready, *[self.free.get(port, 0.0) for port in ports]])
        length = cycles(instruction, self.chip, self.last.get(engine) in after)
        return start, start + length / self.chip.clock_hz[engine], engine, ports

    def _copied(self, instruction: EngineInstruction, ready: float) -> tuple[float, float]:
        """When a copy starts and ends: a DMA engine has the same 8 partitions at all times."""
        engines, rows = self.chip.dma_queues, instruction.partitions
        own = PARTITIONS // engines
        # Of the side in SBUF: in HBM there are none, and they count from 0.
        first = max((a.partitions[0] for a in (*instruction.reads, *instruction.writes)), default=0)
        length = instruction.bytes * min(own / rows, 1) / (self.rate / engines)
        busy = range(first // own, min(-(-(first + rows) // own), engines))
        starts = [self._gap(self.copies[engine], ready, length) for engine in busy]
        return min(starts), max(starts) + length

    def _gap(self, copies: list[tuple[float, float]], ready: float, length: float) -> float:
        """When an engine has time for a copy; one that is ready overtakes one that waits."""
        at = bisect.bisect_right(copies, (ready, float("inf")))
        start = max(ready, copies[at - 1][1]) if at else ready
        while at < len(copies) and start + length > copies[at][0]:
            start = max(start, copies[at][1])
            at += 1
        first, end = start, start + length
        if at and copies[at - 1][1] == start:  # one busy stretch
            at -= 1
            first = copies.pop(at)[0]
        if at < len(copies) and copies[at][0] == end:
            end = copies.pop(at)[1]
        copies.insert(at, (first, end))
        return start

    def _conflicts(self, instruction: EngineInstruction) -> set[int]:
        """Earlier instructions that wrote what it reads, or touched what it writes."""
        pairs = [(access, self.wrote) for access in instruction.reads]
        if not instruction.fresh:  # else nobody has touched it before
            pairs += [(access, self.wrote) for access in instruction.writes]
            pairs += [(access, self.reads) for access in instruction.writes]
        return {
            number
            for access, known in pairs
            for other, number in known.get(access.storage, ())
            if access.overlaps(other)
        }

    def _touch(self, number: int, instruction: EngineInstruction) -> None:
        for access in (*instruction.reads, *instruction.writes):
            self.done[access.storage] = max(self.done[access.storage], self.ends[number])
        for access in instruction.reads:
            if access.storage in self.wrote:  # nobody waits for those who read an argument
                self.reads.setdefault(access.storage, []).append((access, number))
        for access in instruction.writes:
            storage = access.storage
            if not instruction.fresh:  # whoever waits for this one has waited for those
                for known in (self.wrote, self.reads):
                    if storage in known:
                        known[storage] = [k for k in known[storage] if not access.covers(k[0])]
            self.wrote.setdefault(storage, []).append((access, number))

    def _room(self, number: int) -> float:
        """When SBUF has room for the tiles that this instruction touches first."""
        new = sum(map(self.core.room, self.born[number]))
        self.held += new
        over = self.held + self.waiting - self.chip.sbuf_bytes
        at = 0.0
        if new and over > 0:
            self.released.sort(reverse=True)
            while over > 0 and self.released:
                at, size = self.released.pop()
                over -= size
                self.waiting -= size
        return at

    def _release(self, number: int) -> None:
        for storage in self.dies[number]:
            size = self.core.room(storage)
            self.held -= size
            self.waiting += size
            self.released.append((self.done[storage], size))
            if not self.core.rooms[storage].block:
                self.wrote.pop(storage, None)
                self.reads.pop(storage, None)


def _ports(instruction: EngineInstruction, chip: NeuronChip) -> list[str]:
    """The engine, and the ports to memory that another engine shares (architecture guide)."""
    engine = instruction.engine
    ports = [engine]
    if chip.shared_ports and engine in ("Vector", "GpSimd") and instruction.sbuf:
        ports.append("SBUF port")
    if chip.shared_ports and engine in ("Vector", "Scalar") and instruction.psum:
        ports.append("PSUM port")
    return ports
