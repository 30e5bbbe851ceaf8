"""What each operation of a program costs, and all of them together.

No model of the compiler's knows that DMAs share the memory's bandwidth, so no estimate goes below
the time that the bytes need, which come from evaluating the index maps over the grid.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.machines.base import Seconds
from kernels.machines.compat import jaxprs, libtpu
from kernels.machines.exporting import ExportedProgram
from kernels.machines.hlo import Array, HloInstruction
from kernels.machines.pallas.calls import FAST
from kernels.machines.pallas.exchange import duration
from kernels.machines.pallas.work import kernel_flops, matmul_flops
from kernels.machines.tpu import chips, traffic
from kernels.machines.tpu.estimate.profile import KernelProfile, shared
from kernels.machines.tpu.estimate.rates import LARGE, LINKS, WAITS, rates_of, together
from kernels.machines.tpu.estimate.result import COMPUTE, HBM, LATENCY, LINK, Estimate, OpEstimate
from kernels.machines.tpu.plan import vmem_limit
from kernels.machines.tpu.pool import TpuProgram
from kernels.machines.tpu.scheduler import schedule_of

OWN = "XLA's estimated_cycles"


class Cost:
    """Turns what is known of a compiled program into operations and their sum.

    Args:
        compiled: what the compiler made of it.
        kernels, profiled: of each HLO instruction that is one, with its cycles; and the cycles that
            the static profile gave others.
        groups: the lengths of the groups of each ragged product of which they are known.
        trips: how often a loop of XLA's runs whose length its text does not tell; None where nobody
            says.
        unknown: what decides the work of each "ragged_dot" and "while" of which that is not known:
            arguments, in words.
    """

    def __init__(
        self,
        compiled: TpuProgram,
        kernels: dict[str, KernelProfile],
        profiled: dict[str, int],
        groups: Sequence[Sequence[int]] = (),
        trips: int | None = None,
        unknown: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.compiled, self.kernels, self.profiled = compiled, kernels, profiled
        self.unknown = unknown or {}
        self.groups = () if self.unknown.get("ragged_dot") else groups
        self.chip = chips.chip(compiled.chip)
        self.module = compiled.module
        self.run = [
            i if i.counted or trips is None else replace(i, times=i.times * trips, counted=True)
            for i in compiled.module.run
            if i.counted or trips != 0
        ]
        self.rates = rates_of(self.chip.name)
        self.schedules = {kernel.name: kernel for kernel in schedule_of(compiled).kernels}

    def operations(self) -> tuple[OpEstimate, ...]:
        """What the program executes, in order."""
        return tuple(self._expose([self._op(instruction) for instruction in self.run]))

    def total(
        self, program: ExportedProgram, ops: tuple[OpEstimate, ...], notes: Sequence[str]
    ) -> Estimate:
        """The whole program, as exported, of all its operations; `notes` is what has been said."""
        chip, memory = self.chip, self.compiled.memory
        # An argument may be longer than what is read of it.
        read = max(memory.arguments - self._unread(), 0)
        floor = self._hbm(read, max(memory.results - memory.aliased, 0))
        total = sum(op.cycles for op in ops)
        cycles = max(total, floor, 1.0)
        weights: dict[str, float] = defaultdict(float)
        for op in ops:
            weights[op.bound] += op.cycles
        bound = max(weights, key=lambda b: weights[b]) if total > floor else HBM
        ranked = sorted((op for op in ops if op.cycles), key=lambda op: -op.cycles)
        method = "; ".join(dict.fromkeys(op.method for op in ranked))
        if total <= floor:
            method = f"bytes of arguments and results over bandwidth (more than: {method})"
        depends = tuple(sorted({name for op in ops for name in op.depends}))
        dtypes = dict(zip(program.names, map(jaxprs.dtype, jaxprs.inputs(program.jaxpr))))
        asked = [name for name in depends if dtypes.get(name, "").startswith(jaxprs.INTEGERS)]
        words = ["data: pass " + ", ".join(asked)] * bool(asked)
        words = [name for name in depends if name not in asked] + words
        on_data = f"it depends on {', '.join(words)}" if words else ""
        notes = tuple(dict.fromkeys(filter(None, [*notes, on_data, *self._notes()])))
        flops = matmul_flops(program.jaxpr, program.calls)
        seconds = Seconds(cycles / chip.clock_hz)
        if depends:
            open_ops = [op for op in ops if op.depends]
            sure = total - sum(op.cycles for op in open_ops)
            least = sure + sum(op.least_cycles for op in open_ops)
            most = max(sure + sum(op.most_cycles for op in open_ops), floor)
            seconds = Seconds(least / chip.clock_hz, most / chip.clock_hz)
        at_peak = sum(f / chip.peak(dtype) for dtype, f in flops.items())
        return Estimate(
            name=program.name,
            chip=chip.name,
            cycles=cycles,
            seconds=seconds,
            hbm_bytes=max(sum(op.hbm_bytes for op in ops), read + memory.results),
            bound=bound,
            method="; ".join([method, *notes]),
            utilisation=at_peak * chip.clock_hz / cycles,
            ops=ops,
            optimal_seconds=self.compiled.optimal_seconds,
            flops=sum(flops.values()),
            libtpu=self.compiled.libtpu,
            floor_cycles=floor,
            notes=notes,
            compiled=self.compiled,
            depends=depends,
            on_data=on_data,
            rates=self.rates.source,
            cost=self,
        )

    def _notes(self) -> Iterator[str]:
        """What the figures leave out."""
        calls = [kernel.call for kernel in self.kernels.values()]
        operands = [operand for call in calls for operand in call.operands]
        if any(not i.counted for i in self.run):
            yield "a loop whose trip count is not known counts once"
        if any(call.unbounded for call in calls):
            yield "a kernel's loop or grid of unknown length counts once"
        if any(not operand.known for operand in operands):
            yield "blocks chosen by prefetched scalars: each step fetches another"
        if any(call.walk and call.walk.sent for call in calls):
            link = LINKS[self.chip.name]
            yield f"links: {link.source}; a link to each neighbour, beside work that hides in it"
            if link.hop_seconds is None:
                yield f"how long a hop takes on a {self.chip.name} nobody published: it counts 0"
        for walk in (call.walk for call in calls if call.walk):
            if walk.programs[0] < walk.programs[1]:
                ran, whole = walk.programs
                yield f"copies by hand and conditions counted over {ran:,} of {whole:,} programs"
            if walk.cut:
                ran, whole = walk.cut
                yield f"copies by hand and conditions counted over {ran:,} of {whole:,} rounds"

    def _expose(self, ops: list[OpEstimate]) -> list[OpEstimate]:
        """Charge each copy beside other operations with the time that they do not hide.

        HBM serves one after another: the copies get what the operations beside them leave, in the
        order in which they start. An argument that the program before fetches (XLA's cross-program
        prefetch) is free.
        """
        rate = self.chip.hbm_bytes_per_cycle * self.rates.read
        waiting: dict[str, float] = {}  # copies under way → cycles of HBM that they still take
        for place, (instruction, op) in enumerate(zip(self.run, ops, strict=True)):
            if instruction.opcode in ("copy-start", "slice-start"):
                if not instruction.across_programs:
                    waiting[instruction.name] = op.hbm_bytes / op.times / rate
            elif instruction.opcode in ("copy-done", "slice-done"):
                source = instruction.inputs[0] if instruction.inputs else ""
                started = list(waiting)
                before = started[: started.index(source) + 1] if source in waiting else []
                method = "a copy that nothing hides"
                if exposed := sum(waiting.pop(name) for name in before) * instruction.times:
                    ops[place] = replace(op, cycles=exposed, bound=HBM, method=method)
            else:
                free = max(0.0, op.cycles - op.floor_cycles) / op.times
                for name in waiting:
                    done = min(free, waiting[name])
                    waiting[name] -= done
                    free -= done
        return ops

    def _op(self, instruction: HloInstruction) -> OpEstimate:
        if instruction.name in self.kernels:
            op = self._kernel_op(self.kernels[instruction.name], instruction)
        else:
            op = self._xla_op(instruction)
        if instruction.counted:
            return op
        names = self.unknown.get("while") or ("how often a loop of the program runs",)
        depends = (*op.depends, *names)
        return replace(op, depends=depends, least_cycles=0.0, most_cycles=math.inf)

    def _kernel_op(self, kernel: KernelProfile, instruction: HloInstruction) -> OpEstimate:
        chip, call = self.chip, kernel.call
        inputs = instruction.operands[len(instruction.operands) - len(call.inputs) :]
        pairs = [*zip(call.inputs, inputs), *zip(call.outputs, instruction.results)]
        in_vmem = {id(operand) for operand, array in pairs if array.space == 1}
        moved = {"input": 0, "output": 0}
        for operand in call.operands:
            if id(operand) in in_vmem:
                continue
            moved["output" if operand.role == "output" else "input"] += call.moved(operand)
        floor = self._hbm(moved["input"], moved["output"])
        model, method = kernel.cycles, kernel.method
        peak, highest = self._at_peak(call, kernel_flops(call)), "the chip's peak rate"
        if model is None:
            model, method = self._from_schedule(kernel, in_vmem)
            peak /= self.rates.reached
            highest = "what is reached of the chip's peak"
        issued = kernel.steps * kernel.round_bundles / self._cores(call)
        by_hand = any(o.memory not in FAST for o in call.operands if id(o) not in in_vmem)
        if kernel.cycles is not None:
            issued = min(issued, model)  # it knows which branches run
        both = together if kernel.cycles is None else max
        rounds = 0 if by_hand else kernel.steps
        streamed = self._side_by_side(floor, issued, instruction, rounds, both)
        bound = COMPUTE
        if floor >= max(issued, peak) and streamed >= model:
            bound = HBM
        elif max(kernel.issue_cycles / self._cores(call), peak) < 0.5 * model:
            bound = LATENCY
        if max(model, streamed) < peak:
            method += f", raised to {highest}"
        if bound == LATENCY and kernel.cycles is not None:
            model -= self._shorter_waits(kernel)
        exposed = 0.0 if kernel.cycles is None else self._first_fetch(call, in_vmem)
        cycles = max(model + exposed, streamed, peak)
        if (sending := self._sending(call)) > cycles:
            bound, method = LINK, "bytes and hops over the links to other chips"
        cycles = max(self._waiting(call, cycles), sending)
        cycles += self._start(instruction, floor)
        return _operation(
            instruction,
            kind="kernel",
            cycles=cycles,
            hbm_bytes=sum(moved.values()),
            method=method,
            bound=bound,
            model_cycles=model,
            floor_cycles=floor,
            vmem_limit_bytes=vmem_limit(call, chip.name),
            call=call,
            resident=tuple(o.name for o in call.operands if id(o) in in_vmem),
            depends=call.depends,
            least_cycles=self._least(call, in_vmem) * instruction.times,
            most_cycles=math.inf
            if call.unbounded
            else max(cycles, kernel.steps * kernel.round_bundles) * instruction.times,
        )

    def _sending(self, call: Any) -> float:
        """Cycles of the link to the neighbour that gets most: one copy after another."""
        sent = call.walk.sent.values() if call.walk else ()
        if not sent:
            return 0.0
        link = LINKS[self.chip.name]
        hop = link.hop_seconds or 0.0
        seconds = max(size / link.bytes_per_second + hops * hop for hops, size in sent)
        return seconds * self.chip.clock_hz

    def _waiting(self, call: Any, working: float) -> float:
        """Cycles of a kernel with its waits for other chips: what it multiplies meanwhile hides
        them, and of what does not multiply, everything."""
        messages = call.walk.messages if call.walk else ()
        if not messages:
            return working
        link, hertz = LINKS[self.chip.name], self.chip.clock_hz
        hop = (link.hop_seconds or 0.0) * hertz
        if not sum(kernel_flops(call).values()):
            return max(working, duration(messages, 0.0, hertz / link.bytes_per_second, hop))
        return duration(messages, working, hertz / link.bytes_per_second, hop)

    def _shorter_waits(self, kernel: KernelProfile) -> float:
        """Cycles by which the static profile takes the waits of short steps to be too long: it has
        one fetch after another, where a pipeline has the next one under way before it waits."""
        latency = libtpu.DMA_MODEL.get(self.chip.name, (0.0, 0.0))[0]
        fetches = np.zeros(max(kernel.steps, 1), bool)
        for operand in kernel.call.operands:
            if operand.role == "input" and operand.memory == "vmem":
                fetches[: len(operand.moved)] |= operand.moved > 0
        issued = kernel.steps * kernel.round_bundles / self._cores(kernel.call)
        waits = max((kernel.cycles or 0.0) - issued, 0.0)
        return min(waits, float(fetches.sum()) * latency * (1 - self.rates.latency))

    def _least(self, call: Any, in_vmem: set[int]) -> float:
        """Cycles that a kernel takes at least, whatever the values that are not known."""
        moved = sum(call.moved(o, least=True) for o in call.operands if id(o) not in in_vmem)
        return max(self._hbm(moved, 0), self._at_peak(call, kernel_flops(call, least=True)))

    def _cores(self, call: Any) -> int:
        """Tensor cores that a kernel runs on: they share what is parallel in its grid, and a kernel
        without such a dimension runs on one."""
        return self.chip.tensor_cores if shared(call, call.grid) else 1

    def _at_peak(self, call: Any, flops: dict[str, float]) -> float:
        """Cycles of a kernel's products at the peak of the cores that it runs on."""
        share = self._cores(call) / self.chip.tensor_cores
        seconds = sum(f / (self.chip.peak(dtype) * share) for dtype, f in flops.items())
        return seconds * self.chip.clock_hz

    def _first_fetch(self, call: Any, in_vmem: set[int]) -> float:
        """Nothing hides the fetch of the first blocks and the write of the last, and the profile
        takes DMA to be faster than HBM."""
        blocks = (o for o in call.operands if o.memory == "vmem" and id(o) not in in_vmem)
        return self._slower(sum(o.block_bytes for o in blocks))

    def _slower(self, count: float) -> float:
        """Cycles that HBM takes for `count` bytes beyond what the profile charges."""
        model = libtpu.DMA_MODEL.get(self.chip.name)
        faster = count / model[1] if model else math.inf
        return max(0.0, self._hbm(count, 0) - faster)

    def _from_schedule(self, kernel: KernelProfile, in_vmem: set[int]) -> tuple[float, str]:
        """Each grid step, and each round of a loop that copies by hand, takes its bundles or its
        DMA, whichever is longer."""
        bundles = kernel.round_bundles
        latency = libtpu.DMA_MODEL.get(self.chip.name, (0.0, 0.0))[0]
        moved = np.zeros(max(kernel.steps, 1))
        for operand in kernel.call.operands:
            if operand.memory == "vmem" and id(operand) not in in_vmem:
                moved[: len(operand.moved)] += operand.moved * operand.block_bytes
        rate = self.chip.hbm_bytes_per_cycle * self.rates.read
        dma = np.where(moved > 0, latency + moved / rate, 0)
        cycles = float(np.maximum(dma, bundles / self._cores(kernel.call)).sum())
        cycles += self._waits_in_loops(kernel, in_vmem, latency, rate)
        if not kernel.schedule:
            return cycles, "DMA time alone"
        once = len(kernel.schedule.bundles) - kernel.schedule.loop_bundles
        return cycles + once, "schedule against DMA time"

    def _waits_in_loops(
        self, kernel: KernelProfile, in_vmem: set[int], latency: float, rate: float
    ) -> float:
        """Cycles by which copies by hand in loops take longer than the rounds' bundles."""
        call = kernel.call
        by_hand = [o for o in call.operands if o.memory not in FAST and id(o) not in in_vmem]
        copied = sum(map(call.moved, by_hand))
        inside, rounds = kernel.in_own_loops
        count = kernel.steps * rounds
        if not copied or not count or not kernel.waits_by_data:
            return 0.0  # a pipeline of known length hides its waits, as that of a grid does
        wait = latency + copied / count / rate
        return count * max(0.0, wait - inside / self._cores(call))

    def _xla_op(self, instruction: HloInstruction) -> OpEstimate:
        module = self.module
        if instruction.opcode.startswith(("copy-", "slice-")):
            return self._prefetch(instruction)
        if instruction.allocates:
            return _operation(instruction, kind="buffer", method="none", bound=COMPUTE)
        kernel = self.schedules.get(instruction.name)
        if kernel and module.gathers(instruction) and kernel.by_hand:
            return self._gather(instruction, kernel.by_hand)
        read, written = traffic.moved(module, instruction)
        moved = traffic.moved(module, instruction, self._weight)
        floor = self._hbm(*moved)
        if module.only_moves(instruction):
            kind = "relayout"
        elif module.multiplies(instruction):
            kind = "matmul"
        else:
            kind = "kernel" if instruction.is_kernel else instruction.opcode
        model, method = self._computes(instruction, kind)
        windows = instruction.iterations / (self.chip.tensor_cores if instruction.shared else 1)
        both = max if method == OWN else together
        rounds = windows if libtpu.bounds(instruction.config) else 0
        cycles = self._side_by_side(floor, model, instruction, rounds, both)
        cycles += self._start(instruction, floor)
        bound = LATENCY if kind == "relayout" else COMPUTE  # it computes nothing
        if floor >= model:
            bound = HBM if floor >= 0.5 * cycles else LATENCY
            moves = "bytes over the bandwidth reached"
            method = f"{moves}, beside {method}" if model else moves
        grouped = instruction.is_kernel and instruction.grouped_flops() > 0
        return _operation(
            instruction,
            kind=kind,
            # Without their lengths, each group is taken to end within a tile; all may be empty.
            depends=tuple(self.unknown.get("ragged_dot", ())) if grouped else (),
            least_cycles=self._hbm(0, moved[1]) * instruction.times,
            most_cycles=cycles * instruction.times,
            cycles=cycles,
            hbm_bytes=round(read + written),
            method=method if cycles else "none",
            bound=bound,
            model_cycles=model,
            floor_cycles=floor,
        )

    def _side_by_side(
        self,
        moving: float,
        working: float,
        instruction: HloInstruction,
        rounds: float,
        both: Callable[..., float],
    ) -> float:
        """Cycles of what moves blocks while it works on others, a kernel or an operation of XLA's.

        Nothing hides the first block's way in and the last one's way out, or where memory takes
        longer, the work on one block: of the shorter, one of so many rounds; 0 where nobody knows
        of any, and in a loop, whose next round may begin before. `both` is the longer of the two
        where the cycles of the work hold its waits already, and else somewhat more than that.
        """
        cycles = both(moving, working)
        if rounds and instruction.times == 1:
            cycles += min(moving, working) / max(rounds, 1)
        return cycles

    def _start(self, instruction: HloInstruction, floor: float) -> float:
        """Cycles until an operation on HBM, a kernel or XLA's, has its first bytes under way."""
        once = floor and instruction.times == 1
        return self.rates.start_seconds * self.chip.clock_hz if once else 0.0

    def _gather(self, instruction: HloInstruction, one: libtpu.ByHand) -> OpEstimate:
        """A gather: each round asks for its rows and waits for the last, works, and waits until
        what it wrote is out. Nothing runs beside the next round."""
        rounds = math.ceil(sum(a.bytes for a in instruction.results) / one.written)
        latency = libtpu.DMA_MODEL.get(self.chip.name, (0.0, 0.0))[0] * self.rates.latency
        moving = self._hbm(one.fetched, 0) + latency
        bundles = one.asking + one.working
        model = rounds * bundles
        floor = self._hbm(rounds * one.fetched, rounds * one.written)
        return _operation(
            instruction,
            kind="gather",
            cycles=rounds * (max(one.asking, moving) + one.working + self._hbm(0, one.written)),
            hbm_bytes=rounds * (one.fetched + one.written),
            method="rounds of a gather, one after another",
            bound=LATENCY,
            model_cycles=model,
            floor_cycles=floor,
        )

    def _prefetch(self, instruction: HloInstruction) -> OpEstimate:
        """A copy beside other operations; only its bytes count, at its start."""
        moved = 0
        if not instruction.opcode.endswith("done"):
            # The smaller of what it reads and what it makes: a slice reads a part.
            sides = [a for a in (*instruction.operands, *instruction.results) if a.shape]
            crosses = any(a.space == 0 for a in sides)
            moved = min((a.bytes for a in sides), default=0) if crosses else 0
        return _operation(
            instruction, kind="prefetch", hbm_bytes=moved, method="none", bound=COMPUTE
        )

    def _computes(self, instruction: HloInstruction, kind: str) -> tuple[float, str]:
        """Cycles of an operation of XLA's own, if nothing waits for memory, and their source."""
        kernel = self.schedules.get(instruction.name)
        cores = self.chip.tensor_cores if instruction.shared else 1
        schedule = kernel.step_bundles * instruction.iterations / cores if kernel else 0.0
        if instruction.is_kernel:
            return self._mosaic(instruction), "the rate that XLA's own kernels reach"
        profiled = float(self.profiled.get(instruction.name) or 0)
        if kind != "matmul":
            # XLA's own cycles are mostly a wait for memory, at a rate far below the real one.
            return (profiled, "static profile") if profiled else (schedule, "schedule")
        if profiled:
            best = profiled + self._slower(instruction.window_bytes), "static profile"
        else:
            own = (instruction.classic_cycles or 0) * self.rates.product
            waits = schedule and own > WAITS * schedule
            best = (schedule, "schedule") if waits else (max(own, schedule), OWN)
        flops = self.module.product_flops(instruction)
        peak = sum(f / self.chip.peak(d) for d, f in flops.items()) * self.chip.clock_hz
        return max(best[0], peak), best[1]

    def _mosaic(self, instruction: HloInstruction) -> float:
        """Cycles of a kernel that XLA put there: for its products, as it reaches of the peak."""
        flops = instruction.grouped_flops(self.groups)
        kind = "int8" if any(a.dtype == "s8" for a in instruction.operands) else "bfloat16"
        return flops / (self.chip.peak(kind) * self.rates.mosaic) * self.chip.clock_hz

    def _hbm(self, read: float, written: float) -> float:
        """Cycles that HBM takes, at the bandwidth that is reached."""
        rate = self.chip.hbm_bytes_per_cycle
        return read / (rate * self.rates.read) + written / (rate * self.rates.write)

    def _weight(self, array: Array) -> float:
        """How much a byte of an array counts: on some chips, large ones are reached more slowly."""
        return max(array.bytes / LARGE, 1.0) ** self.rates.large

    def _unread(self) -> int:
        """Bytes of the arguments that no operation reads."""
        return sum(
            round((1 - traffic.share_read(self.module, p, self._kernel_share)) * a.bytes)
            for p in self.module.parameters
            for a in p.results
            if a.space == 0
        )

    def _kernel_share(self, instruction: HloInstruction, place: int) -> float:
        """How much of an operand a kernel fetches, 0 to 1; 1 where its index map does not tell."""
        kernel = self.kernels.get(instruction.name)
        # Prefetched scalars come first.
        index = place - len(instruction.inputs) + len(kernel.call.inputs) if kernel else -1
        if kernel is None or index < 0:
            return 1.0
        operand = kernel.call.inputs[index]
        size = operand.whole_bytes
        return min(kernel.call.moved(operand) / size, 1.0) if size else 1.0


def _operation(
    instruction: HloInstruction,
    *,
    cycles: float = 0.0,
    hbm_bytes: int = 0,
    model_cycles: float = 0.0,
    floor_cycles: float = 0.0,
    **rest: Any,
) -> OpEstimate:
    """What an instruction costs that runs instruction.times, of the cost of one run."""
    times = instruction.times
    return OpEstimate(
        name=instruction.name,
        cycles=cycles * times,
        hbm_bytes=hbm_bytes * times,
        model_cycles=model_cycles * times,
        floor_cycles=floor_cycles * times,
        times=times,
        shape=str(instruction.results[0]) if instruction.results else "",
        origin=instruction.origin,
        **rest,
    )
