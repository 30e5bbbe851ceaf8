"""Estimate a program's run time on a TPU that is not there.

Three sources, from the best to the plainest: the compiler's static profile, which simulates its own
schedule; the schedule itself, set against the time that DMA takes; XLA's own cycle estimates, for
XLA's operations. None of them knows that DMAs share the memory's bandwidth, so no estimate goes
below the time that the bytes need, which come from evaluating the index maps over the grid.

An estimate is the compiler's model of itself and never a measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels.compat import jax_pallas
from kernels.tpu import chips, compiler, undocumented
from kernels.tpu.chips import Chip
from kernels.tpu.errors import TpuCompileError
from kernels.tpu.hlo import Instruction, parse
from kernels.tpu.scheduler import KernelSchedule, Schedule, schedule_of

# The profile simulates some 80,000 cycles a second on a laptop: what it may be asked for.
REDUCED_CYCLES = 120_000  # of each of the two reduced grids
CYCLES_PER_SECOND = 80_000
BUDGET = 25.0  # seconds that the profile may take for a whole program

# Relative error bands, from the validation against published measurements (chapter 6).
ERROR_COMPUTE = 0.06  # compute binds, and a step takes 1,000 cycles or more
ERROR_HBM = 0.25  # the peak bandwidth is never quite reached
ERROR_LATENCY = 0.45  # short steps, or the schedule alone
ERROR_XLA = 0.30  # XLA's own cycles; its relayouts look high

COMPUTE, HBM, LATENCY = "compute", "HBM", "latency"


@dataclass(frozen=True)
class OpEstimate:
    """One operation of a program: a kernel, a fusion, a relayout.

    kind: "kernel", "fusion", "matmul", "relayout", "prefetch", or HLO's name. cycles and hbm_bytes:
    all of its runs together. times: how often it runs. bound: "compute", "HBM" or "latency".
    model_cycles: what the model said, before the HBM floor. error: relative, such as 0.06.
    shape: of its first result, with the layout. origin: the JAX operations behind it.
    vmem_limit_bytes: what a kernel may take of VMEM; 0 for others. call: a kernel's pallas_call, as
    kernels.pallas.Call; None for others. resident: names of those of its operands that XLA keeps in
    VMEM, so that they do not come from HBM.
    """

    name: str
    kind: str
    cycles: float
    hbm_bytes: int
    method: str
    bound: str
    error: float
    times: int = 1
    model_cycles: float = 0.0
    floor_cycles: float = 0.0
    shape: str = ""
    origin: str = ""
    vmem_limit_bytes: int = 0
    call: Any = field(default=None, repr=False, compare=False)
    resident: tuple[str, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """What a program would take on a chip, by the compiler's own model; nothing was measured.

    cycles, seconds: of the program on the chip, without the time to dispatch it. hbm_bytes: moved
    between HBM and the chip. bound: what binds most of the time: "compute", "HBM" or "latency".
    method: how the figures were found. utilisation: matrix operations against the chip's peak for
    their dtype, 0 to 1 (float32 against bfloat16's peak). error: relative band, such as 0.06.
    ops: each operation; relayouts are named so. optimal_seconds: XLA's own lower bound, None where
    a kernel without a cost estimate hides in it. flops: matrix operations.
    """

    name: str
    chip: str
    cycles: float
    seconds: float
    hbm_bytes: int
    bound: str
    method: str
    utilisation: float
    error: float
    ops: tuple[OpEstimate, ...] = field(repr=False)
    optimal_seconds: float | None
    flops: float
    libtpu: str
    floor_cycles: float = 0.0
    notes: tuple[str, ...] = ()
    compiled: compiler.Compiled | None = field(default=None, repr=False, compare=False)

    @property
    def hbm_utilisation(self) -> float:
        """Bytes a second against the chip's published bandwidth, 0 to 1."""
        rate = chips.chip(self.chip).hbm_bytes_per_second
        return self.hbm_bytes / rate / self.seconds if self.seconds else 0.0

    @property
    def relayouts(self) -> tuple[OpEstimate, ...]:
        """The operations that only move data into another layout."""
        return tuple(op for op in self.ops if op.kind == "relayout")

    @property
    def schedule(self) -> Schedule:
        """The schedule that the estimate was made with."""
        return schedule_of(self.compiled)


_memo: dict[tuple[str, str, float, bool], Estimate] = {}


def estimate(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    timeout: float = compiler.TIMEOUT,
    budget: float = BUDGET,
    large: bool = False,
) -> Estimate:
    """Estimate the run time of `function(*args)` on `chip`, kernels and XLA's operations alike.

    args: arrays or jax.ShapeDtypeStruct; a kernel inside gets interpret=False. timeout: seconds for
    a compilation. budget: seconds that the static profile may simulate; beyond it, a kernel's grid
    is cut and extrapolated, and XLA's own cycles are taken. large: of a program of hundreds of
    operations, write down the schedule of its kernels alone; the whole one would fill the disk.
    Raises as compile does. A program that was estimated before in this process is not again.
    """
    compiler.libtpu_version()
    program = compiler.export(function, *args, chip=chip)
    return estimate_program(program, timeout=timeout, budget=budget, large=large)


def estimate_program(
    program: compiler.Program,
    *,
    timeout: float = compiler.TIMEOUT,
    budget: float = BUDGET,
    large: bool = False,
) -> Estimate:
    """Estimate an exported program; see estimate."""
    [found] = estimate_all([program], timeout=timeout, budget=budget, large=large)
    if isinstance(found, TpuCompileError):
        raise found
    return found


def estimate_all(
    programs: Sequence[compiler.Program],
    *,
    timeout: float = compiler.TIMEOUT,
    budget: float = BUDGET,
    large: bool = False,
    progress: bool = True,
) -> list[Estimate | TpuCompileError]:
    """Estimate several programs, their compilations side by side; see estimate.

    Returns, in order, each program's estimate or why the compiler refused it.
    """
    found: dict[int, Estimate | TpuCompileError] = {}
    waiting: dict[int, tuple[Generator, _Request]] = {}

    def advance(index: int, generator: Generator, answer: Any) -> None:
        try:
            waiting[index] = (generator, generator.send(answer))
        except StopIteration as end:
            found[index] = end.value
            _memo[programs[index].fingerprint, programs[index].chip, budget, large] = end.value
        except TpuCompileError as error:
            found[index] = error

    for index, program in enumerate(programs):
        known = _memo.get((program.fingerprint, program.chip, budget, large))
        if known is not None:
            found[index] = known
        else:
            advance(index, _Estimator(program, timeout, budget, large).steps(), None)
    while waiting:
        # Requests for the same purpose go to one pool; the same program is compiled once.
        purposes = next(iter(waiting.values()))[1].purposes
        served = {i: w for i, w in waiting.items() if w[1].purposes == purposes}
        distinct: dict[Any, int] = {}
        wanted: list[compiler.Program] = []
        for _, request in served.values():
            for program in request.programs:
                key = (program.fingerprint, program.chip, program.row_major)
                if key not in distinct:
                    distinct[key] = len(wanted)
                    wanted.append(program)
        seconds = max(request.timeout for _, request in served.values())
        results = compiler.compile_all(
            wanted, purposes=purposes, timeout=seconds, progress=progress
        )
        for index, (generator, request) in served.items():
            del waiting[index]
            answers = [
                results[distinct[p.fingerprint, p.chip, p.row_major]] for p in request.programs
            ]
            advance(index, generator, answers)
    return [found[i] for i in range(len(programs))]


@dataclass(frozen=True)
class _Request:
    """What an estimator wants compiled next; the answer is a list of the results."""

    programs: Sequence[compiler.Program]
    purposes: tuple[str, ...]
    timeout: float


@dataclass
class _Kernel:
    """One distinct pallas_call, what is known of its schedule, and its modelled cycles."""

    call: Any
    instruction: Instruction
    schedule: KernelSchedule | None
    cycles: float | None = None
    method: str = ""
    uneven: bool = False

    @property
    def steps(self) -> int:
        return math.prod(self.call.grid)

    @property
    def issue_cycles(self) -> float:
        """Bundles that the grid runs through, if each takes a cycle and no inner loop repeats."""
        return self.steps * (self.schedule.loop_bundles if self.schedule else 0)

    @property
    def step_cycles(self) -> int:
        """Bundles of one grid step that takes one branch: what simulating a step costs."""
        return self.schedule.step_bundles if self.schedule else 0


class _Estimator:
    def __init__(
        self, program: compiler.Program, timeout: float, budget: float, large: bool
    ) -> None:
        self.program, self.timeout, self.budget, self.large = program, timeout, budget, large
        self.chip: Chip = chips.chip(program.chip)
        self.notes: list[str] = []

    def steps(self) -> Generator[_Request, list[Any], Estimate]:
        """Ask for one compilation after another, and return the estimate."""
        self.compiled = yield from self._compile()
        self.module = parse(self.compiled.hlo)
        self.run = self.module.run
        self.kernels = self._match(schedule_of(self.compiled))
        if self.large and not self._lost("schedule"):
            yield from self._schedule_kernels()
        self.profiled: dict[str, int] = {}
        if not self._lost("profile"):
            yield from self._profile()
            self._lost("profile")
        ops = [self._op(instruction) for instruction in self.run]
        return self._sum(tuple(self._expose(ops)))

    def _lost(self, purpose: str) -> bool:
        """Whether this libtpu cannot serve a purpose any more; then a note says so."""
        flag = undocumented.lost(purpose, compiler.dropped())
        if flag:
            self._note(f"no {purpose}: libtpu {compiler.libtpu_version()} has no flag {flag}")
        return bool(flag)

    def _compile(self) -> Generator[_Request, list[Any], compiler.Compiled]:
        """With the schedule where this libtpu can write it, and without where it cannot."""
        purposes = () if self.large else ("schedule",)
        [result] = yield _Request([self.program], purposes, self.timeout)
        self._lost("schedule")
        if isinstance(result, TpuCompileError) and result.kind in ("crashed", "disk"):
            # The compiler may have died of writing its schedule down.
            self._note(f"no schedule: {result.message}")
            [result] = yield _Request([self.program], (), self.timeout)
        if isinstance(result, TpuCompileError):
            raise result
        return result

    def _match(self, schedule: Schedule) -> dict[str, _Kernel]:
        """HLO instruction name → the pallas_call it came from."""
        schedules = {k.name: k for k in schedule.kernels}
        free = list(self.program.calls)
        found: dict[str, _Kernel] = {}
        for each in self.run:
            if not each.is_kernel or each.name in found:
                continue
            call = _find(free, each) or _find(self.program.calls, each)
            if call is None:
                continue  # a kernel that XLA itself put there
            if call in free:
                free.remove(call)
            found[each.name] = _Kernel(call, each, schedules.get(each.name))
        return found

    def _schedule_kernels(self) -> Generator[_Request, list[Any], None]:
        """The schedule of each kernel, compiled alone on its own grid."""
        kernels = list(self.kernels.values())
        programs = [_alone(k.call, k.call.grid, self.program.chip) for k in kernels]
        results = yield _Request(programs, ("schedule",), self.timeout)
        for kernel, result in zip(kernels, results, strict=True):
            if isinstance(result, compiler.Compiled):
                kernel.schedule = next(iter(schedule_of(result).kernels), None)

    def _profile(self) -> Generator[_Request, list[Any], None]:
        """Ask the static profile: the whole program where that is short, else each kernel cut."""
        length = sum(k.issue_cycles * k.instruction.times for k in self.kernels.values()) + sum(
            # A copy's bundles are many and short: simulating it takes far longer than a matmul.
            (i.classic_cycles or 0) * (4 if self.module.only_moves(i) else 1)
            for i in self.run
            if not i.is_kernel
        )
        only_xla = not any(i.is_kernel for i in self.run)
        whole = self.budget * CYCLES_PER_SECOND if only_xla else 3.0 * REDUCED_CYCLES
        seconds = min(self.timeout, 2 * self.budget + 30)
        if 0 < length <= whole:
            [result] = yield _Request([self.program], ("profile",), seconds)
            if isinstance(result, compiler.Compiled):
                for each in parse(result.hlo).run:
                    if each.profiled_cycles:
                        self.profiled[each.name] = each.profiled_cycles
                for name, kernel in self.kernels.items():
                    if name in self.profiled:
                        kernel.cycles = self.profiled[name]
                        kernel.method = "static profile of the whole grid"
        waiting = [k for k in self.kernels.values() if k.cycles is None]
        if waiting:
            yield from self._profile_kernels(waiting, seconds)

    def _profile_kernels(
        self, kernels: list[_Kernel], seconds: float, side_by_side: bool = False
    ) -> Generator[_Request, list[Any], None]:
        """Each kernel alone, on two reduced grids; the rest of its grid is extrapolated.

        Where the profile cannot follow a strided DMA, once more with contiguous ones.
        """
        jobs: list[tuple[_Kernel, Cut, list[compiler.Program]]] = []
        for kernel in kernels:
            cut = cut_grid(kernel, self.chip.tensor_cores)
            try:
                programs = [
                    _alone(kernel.call, cut.grid(n), self.program.chip, side_by_side)
                    for n in cut.counts
                ]
            except (TpuCompileError, NotImplementedError) as error:
                self._note(f"no static profile: {error}")
                continue
            jobs.append((kernel, cut, programs))
        results = yield _Request([p for _, _, ps in jobs for p in ps], ("profile",), seconds)
        rest = iter(results)
        refused: dict[int, str] = {}
        for kernel, cut, programs in jobs:
            cycles = [_cycles_of(next(rest)) for _ in programs]
            reasons = [c for c in cycles if isinstance(c, str)]
            if reasons:
                refused[id(kernel)] = reasons[0]
                continue
            kernel.uneven = cut.uneven
            kernel.cycles, kernel.method = float(cycles[-1]), "static profile of the whole grid"
            if len(cycles) > 1:
                short, long = cycles
                slope = (long - short) / (cut.long - cut.short)
                kernel.cycles = short + slope * (cut.units - cut.short)
                steps = [math.prod(cut.grid(n)) for n in cut.counts]
                kernel.method = (
                    f"static profile of {steps[0]} and {steps[1]} of {kernel.steps} grid steps, "
                    "extrapolated" + (", though the steps differ in work" if cut.uneven else "")
                )
            if side_by_side:
                kernel.method += ", with its blocks side by side in HBM"
        again = [k for k in kernels if id(k) in refused]
        if side_by_side or not again:
            for reason in refused.values():
                self._note(f"no static profile: {reason}")
        else:
            yield from self._profile_kernels(again, seconds, side_by_side=True)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _expose(self, ops: list[OpEstimate]) -> list[OpEstimate]:
        """Charge each copy beside other operations with the time that they do not hide.

        HBM serves one after another: the copies get what the operations beside them leave, in the
        order in which they start. An argument that the program before fetches (XLA's cross-program
        prefetch) is free.
        """
        rate = self.chip.hbm_bytes_per_cycle
        waiting: dict[str, float] = {}  # copies under way → cycles of HBM that they still take
        for place, (instruction, op) in enumerate(zip(self.run, ops, strict=True)):
            if instruction.opcode in ("copy-start", "slice-start"):
                if not instruction.across_programs:
                    waiting[instruction.name] = op.hbm_bytes / op.times / rate
            elif instruction.opcode in ("copy-done", "slice-done"):
                source = instruction.inputs[0] if instruction.inputs else ""
                before = (
                    list(waiting)[: list(waiting).index(source) + 1] if source in waiting else []
                )
                exposed = sum(waiting.pop(name) for name in before) * instruction.times
                if exposed:
                    ops[place] = replace(
                        op, cycles=exposed, bound=HBM, method="a copy that nothing hides"
                    )
            else:
                free = max(0.0, op.cycles - op.hbm_bytes / rate) / op.times
                for name in waiting:
                    done = min(free, waiting[name])
                    waiting[name] -= done
                    free -= done
        return ops

    def _op(self, instruction: Instruction) -> OpEstimate:
        if instruction.name in self.kernels:
            return self._kernel_op(self.kernels[instruction.name], instruction)
        return self._xla_op(instruction)

    def _kernel_op(self, kernel: _Kernel, instruction: Instruction) -> OpEstimate:
        from kernels.pallas.calls import FAST
        from kernels.pallas.work import kernel_flops

        chip, call = self.chip, kernel.call
        in_vmem = _in_vmem(call, instruction)
        moved = 0
        for operand in call.operands:
            if id(operand) in in_vmem:
                continue
            if operand.memory not in FAST:
                # Copied by hand, which no index map tells: taken to move once.
                moved += math.prod(operand.shape) * np.dtype(operand.dtype).itemsize
            else:
                moved += operand.traffic
        floor = moved / chip.hbm_bytes_per_cycle
        model, method = kernel.cycles, kernel.method
        if model is None:
            model, method = self._from_schedule(kernel, in_vmem)
        bound = COMPUTE
        peak = sum(f / chip.peak(d) for d, f in kernel_flops(call.equation).items())
        peak *= chip.clock_hz
        if floor >= max(model, peak):
            bound = HBM
        elif max(kernel.issue_cycles / chip.tensor_cores, peak) < 0.5 * model:
            bound = LATENCY
        if model < peak:
            method += ", raised to the chip's peak rate"
        cycles = max(model, floor, peak)
        if floor < model and kernel.cycles is not None:
            cycles += self._first_fetch(call, in_vmem)
        per_step = cycles / max(kernel.steps, 1)
        if kernel.cycles is None or kernel.uneven or bound == LATENCY:
            error = ERROR_LATENCY
        elif bound == HBM or floor > 0.7 * model:
            error = ERROR_HBM
        else:
            error = ERROR_COMPUTE if per_step >= 1000 else ERROR_LATENCY
        return OpEstimate(
            instruction.name,
            "kernel",
            cycles * instruction.times,
            moved * instruction.times,
            method,
            bound,
            error,
            instruction.times,
            model * instruction.times,
            floor * instruction.times,
            str(instruction.results[0]) if instruction.results else "",
            instruction.origin,
            compiler.vmem_limit(call, chip.name),
            call,
            tuple(o.name for o in call.operands if id(o) in in_vmem),
        )

    def _first_fetch(self, call: Any, in_vmem: set[int]) -> float:
        """Nothing hides the fetch of the first blocks and the write of the last, and the profile
        takes DMA to be faster than HBM."""
        first = sum(
            o.block_bytes for o in call.operands if o.memory == "vmem" and id(o) not in in_vmem
        )
        return self._slower(first)

    def _slower(self, count: float) -> float:
        """Cycles that HBM takes for `count` bytes beyond what the profile charges."""
        model = undocumented.DMA_MODEL.get(self.chip.name)
        return (
            max(0.0, count * (1 / self.chip.hbm_bytes_per_cycle - 1 / model[1])) if model else 0.0
        )

    def _from_schedule(self, kernel: _Kernel, in_vmem: set[int]) -> tuple[float, str]:
        """Each grid step takes its bundles or its DMA, whichever is longer."""
        bundles = kernel.schedule.loop_bundles if kernel.schedule else 0
        latency = undocumented.DMA_MODEL.get(self.chip.name, (0.0, 0.0))[0]
        moved = np.zeros(max(kernel.steps, 1))
        for operand in kernel.call.operands:
            if operand.memory == "vmem" and id(operand) not in in_vmem:
                moved[: len(operand.moved)] += operand.moved * operand.block_bytes
        dma = np.where(moved > 0, latency + moved / self.chip.hbm_bytes_per_cycle, 0)
        cycles = float(np.maximum(dma, bundles / self.chip.tensor_cores).sum())
        if not kernel.schedule:
            return cycles, "DMA time alone"
        return cycles + len(kernel.schedule.bundles) - bundles, "schedule against DMA time"

    def _xla_op(self, instruction: Instruction) -> OpEstimate:
        chip, module = self.chip, self.module
        moved = instruction.hbm_bytes
        floor = moved / chip.hbm_bytes_per_cycle
        if module.slices(instruction):
            moved = 2 * sum(a.bytes for a in instruction.results if a.space == 0)
            floor = 0.0
        kind = instruction.opcode
        if instruction.opcode.startswith(("copy-", "slice-")) or instruction.opcode == "async-done":
            # It runs beside other operations; only its bytes count, at the start.
            kind, floor = "prefetch", 0.0
            if instruction.opcode.endswith("done"):
                moved = 0
            else:  # the smaller of what it reads and what it makes: a slice reads a part
                sides = [a for a in (*instruction.operands, *instruction.results) if a.shape]
                crosses = any(a.space == 0 for a in sides)
                moved = min((a.bytes for a in sides), default=0) if crosses else 0
        elif module.only_moves(instruction):
            kind = "relayout"
        elif module.multiplies(instruction):
            kind = "matmul"
        elif instruction.is_kernel:
            kind = "kernel"
        profiled = self.profiled.get(instruction.name)
        model = float(profiled or instruction.classic_cycles or 0)
        method = "static profile" if profiled else "XLA's estimated_cycles"
        if kind == "matmul" and model:
            model += self._slower(instruction.window_bytes)
        if not model:
            method = "bytes over bandwidth" if floor else "none"
            if floor:
                # Even the smallest operation waits for its operands.
                model = undocumented.DMA_MODEL.get(chip.name, (0.0, 0.0))[0]
        error = ERROR_COMPUTE if profiled and kind == "matmul" else ERROR_XLA
        if kind == "matmul" and not profiled:
            error = 0.12
        cycles = max(model, floor)
        bound = HBM if floor >= 0.7 * model and kind != "matmul" else COMPUTE
        slow = kind == "relayout" and floor < 0.7 * model  # it computes nothing
        if slow or (method == "bytes over bandwidth" and model > floor):
            bound = LATENCY
        return OpEstimate(
            instruction.name,
            kind,
            cycles * instruction.times,
            moved * instruction.times,
            method,
            bound,
            error,
            instruction.times,
            model * instruction.times,
            floor * instruction.times,
            str(instruction.results[0]) if instruction.results else "",
            instruction.origin,
        )

    def _unread(self) -> int:
        """Bytes of the arguments that no operation reads."""
        return sum(
            round((1 - self.module.share_read(p, self._kernel_share)) * a.bytes)
            for p in self.module.parameters
            for a in p.results
            if a.space == 0
        )

    def _kernel_share(self, instruction: Instruction, place: int) -> float:
        """How much of an operand a kernel fetches, 0 to 1; 1 where its index map does not tell."""
        from kernels.pallas.calls import FAST

        kernel = self.kernels.get(instruction.name)
        # Prefetched scalars come first.
        index = place - len(instruction.inputs) + len(kernel.call.inputs) if kernel else -1
        if index < 0:
            return 1.0
        operand = kernel.call.inputs[index]
        size = math.prod(operand.shape) * np.dtype(operand.dtype).itemsize
        return min(operand.traffic / size, 1.0) if operand.memory in FAST and size else 1.0

    def _sum(self, ops: tuple[OpEstimate, ...]) -> Estimate:
        from kernels.pallas.calls import FAST
        from kernels.pallas.work import matmul_flops

        chip, memory = self.chip, self.compiled.memory
        # An argument may be longer than what is read of it.
        read = max(memory.arguments - self._unread(), 0)
        floor = max(read + memory.results - memory.aliased, 0) / chip.hbm_bytes_per_cycle
        total = sum(op.cycles for op in ops)
        cycles = max(total, floor, 1.0)
        weights: dict[str, float] = {}
        for op in ops:
            weights[op.bound] = weights.get(op.bound, 0.0) + op.cycles
        bound = max(weights, key=lambda b: weights[b]) if total > floor else HBM
        error = sum(op.cycles * op.error for op in ops) / total if total else ERROR_XLA
        ranked = sorted((op for op in ops if op.cycles), key=lambda op: -op.cycles)
        method = "; ".join(dict.fromkeys(op.method for op in ranked))
        if total <= floor:
            error = max(error, ERROR_HBM)
            method = f"bytes of arguments and results over bandwidth (more than: {method})"
        if any(not i.counted for i in self.run):
            self._note("a loop whose trip count is not known counts once")
        if any(jax_pallas.has_open_loop(k.call.equation) for k in self.kernels.values()):
            self._note("a kernel's loop until some condition holds counts once")
        if any(not o.known for k in self.kernels.values() for o in k.call.operands):
            self._note("blocks chosen by prefetched scalars: each step fetches another")
        if any(o.memory not in FAST for k in self.kernels.values() for o in k.call.operands):
            self._note("operands that a kernel copies by hand count once")
        flops = matmul_flops(self.program.jaxpr)
        seconds = cycles / chip.clock_hz
        at_peak = sum(f / chip.peak(dtype) for dtype, f in flops.items())
        return Estimate(
            self.program.name,
            chip.name,
            cycles,
            seconds,
            max(sum(op.hbm_bytes for op in ops), read + memory.results),
            bound,
            "; ".join([method, *self.notes]) if self.notes else method,
            at_peak / seconds,
            error,
            ops,
            self.compiled.optimal_seconds,
            sum(flops.values()),
            self.compiled.libtpu,
            floor,
            tuple(self.notes),
            self.compiled,
        )


def _cycles_of(result: compiler.Compiled | TpuCompileError) -> int | str:
    """The static profile's cycles of the one kernel in a program, or why there are none."""
    if isinstance(result, TpuCompileError):
        return result.message
    for each in parse(result.hlo).run:
        if each.is_kernel and each.profiled_cycles:
            return each.profiled_cycles
    return "it cannot follow a DMA of this kernel"


def _find(calls: Sequence[Any], instruction: Instruction) -> Any:
    """The pallas_call with the instruction's result shapes and, of several, with its name."""
    shapes = tuple(a.shape for a in instruction.results)
    fitting = [c for c in calls if tuple(o.shape for o in c.outputs) == shapes]
    base = re.sub(r"(\.\d+)+$", "", instruction.name)
    named = [c for c in fitting if re.sub(r"\W", "_", c.name) == re.sub(r"\W", "_", base)]
    return (named or fitting or [None])[0]


def _in_vmem(call: Any, instruction: Instruction) -> set[int]:
    """The ids of the operands that XLA keeps in VMEM, so that they do not come from HBM."""
    inputs = instruction.operands[len(instruction.operands) - len(call.inputs) :]
    pairs = [*zip(call.inputs, inputs), *zip(call.outputs, instruction.results)]
    return {id(operand) for operand, array in pairs if array.space == 1}


@dataclass(frozen=True)
class Cut:
    """How a grid is shortened: every dimension of `sizes`, that of `axis` set to n.

    units: how many steps of `axis` the whole grid makes. uneven: whether the kernel asks where in
    a cut dimension it is, so that the steps may differ in work.
    """

    sizes: tuple[int, ...]
    axis: int
    short: int
    long: int
    units: int
    uneven: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """The sizes of `axis` to profile: one where the grid is short enough to stay whole."""
        return tuple(dict.fromkeys((self.short, self.long)))

    def grid(self, n: int) -> tuple[int, ...]:
        """The reduced grid with n steps along the axis."""
        return tuple(n if i == self.axis else s for i, s in enumerate(self.sizes))


def cut_grid(kernel: _Kernel, cores: int = 1) -> Cut:
    """Cut the outer dimensions of a kernel's grid, and leave those whole that it sums over.

    The dimensions whose program id the kernel reads stay whole as long as that is affordable.
    """
    grid = kernel.call.grid
    affordable = max(2, int(REDUCED_CYCLES / max(kernel.step_cycles, 50)))
    if math.prod(grid) <= affordable or not grid:
        return Cut(grid, 0, grid[0] if grid else 1, grid[0] if grid else 1, 1)
    read = jax_pallas.axes_read(kernel.call.equation)
    # From the dimension to keep whole first to the one to cut first.
    order = sorted(range(len(grid)), key=lambda a: (a not in read, -a))
    sizes = [1] * len(grid)
    steps = 1
    for place, axis in enumerate(order):
        # What the kernel reads is worth some more: twice its steps are the longer grid then.
        if steps * grid[axis] <= (affordable if axis in read else affordable / 2):
            sizes[axis] = grid[axis]
            steps *= grid[axis]
            continue
        # Cores share what is parallel: only whole rounds of all cores are alike.
        long = max(2 * cores, min(grid[axis], affordable // steps) // (2 * cores) * 2 * cores)
        short = long // 2
        units = grid[axis] * math.prod(grid[a] for a in order[place + 1 :])
        uneven = any(a in read for a in order[place:])
        return Cut(tuple(sizes), axis, short, long, units, uneven)
    return Cut(grid, 0, grid[0], grid[0], 1)


def _alone(
    call: Any, grid: tuple[int, ...], chip: str, side_by_side: bool = False
) -> compiler.Program:
    """The program that is this one pallas_call, on another grid."""
    from kernels.pallas.reduced import alone

    function, shapes = alone(call, grid, side_by_side=side_by_side)
    name = f"{call.name} on a grid of {'×'.join(map(str, grid))}"
    program = compiler.export(function, *shapes, chip=chip, name=name)
    # In another layout, XLA would first copy the arguments, and the profile simulate the copies.
    return replace(program, row_major=True)
