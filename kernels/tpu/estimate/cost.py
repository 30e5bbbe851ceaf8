"""What each operation of a program costs, and all of them together.

No model of the compiler's knows that DMAs share the memory's bandwidth, so no estimate goes below
the time that the bytes need, which come from evaluating the index maps over the grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.compat import libtpu
from kernels.tpu import chips
from kernels.tpu.estimate.profile import Kernel
from kernels.tpu.estimate.result import COMPUTE, HBM, LATENCY, Estimate, OpEstimate
from kernels.tpu.export import Program
from kernels.tpu.hlo import Instruction
from kernels.tpu.plan import vmem_limit
from kernels.tpu.pool import Compiled

# Relative error bands. Those for compute and latency rest on published measurements of a v5e
# (kernels.records.validation); the other two, and all of them on other chips, are guesses: nothing
# published is bound by HBM, or left to XLA's own cycles.
ERROR_COMPUTE = 0.06  # compute binds, and a step takes 1,000 cycles or more; int8 was 0.11 off
ERROR_HBM = 0.25  # a guess: the peak bandwidth is never quite reached
ERROR_LATENCY = 0.45  # short steps, or the schedule alone
ERROR_XLA = 0.30  # a guess: XLA's own cycles; its relayouts look high


class Cost:
    """Turns what is known of a compiled program into operations and their sum.

    kernels: of each HLO instruction that is one, with its cycles. profiled: HLO instruction →
    cycles that the static profile gave it.
    """

    def __init__(
        self, compiled: Compiled, kernels: dict[str, Kernel], profiled: dict[str, int]
    ) -> None:
        self.compiled, self.kernels, self.profiled = compiled, kernels, profiled
        self.chip = chips.chip(compiled.chip)
        self.module = compiled.module
        self.run = compiled.module.run

    def operations(self) -> tuple[OpEstimate, ...]:
        """What the program executes, in order."""
        return tuple(self._expose([self._op(instruction) for instruction in self.run]))

    def total(
        self, program: Program, ops: tuple[OpEstimate, ...], notes: Sequence[str]
    ) -> Estimate:
        """The whole program; notes: what is to be said of it already."""
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
        notes = tuple(dict.fromkeys([*notes, *self._notes(ops)]))
        flops = matmul_flops(program.jaxpr, program.calls)
        seconds = cycles / chip.clock_hz
        depends = tuple(sorted({name for op in ops for name in op.depends}))
        span = (seconds, seconds)
        if depends:
            error = math.inf
            open_ops = [op for op in ops if op.depends]
            sure = total - sum(op.cycles for op in open_ops)
            least = sure + sum(op.least_cycles for op in open_ops)
            most = max(sure + sum(op.most_cycles for op in open_ops), floor)
            span = (least / chip.clock_hz, most / chip.clock_hz)
        at_peak = sum(f / chip.peak(dtype) for dtype, f in flops.items())
        return Estimate(
            name=program.name,
            chip=chip.name,
            cycles=cycles,
            seconds=seconds,
            hbm_bytes=max(sum(op.hbm_bytes for op in ops), read + memory.results),
            bound=bound,
            method="; ".join([method, *notes]),
            utilisation=at_peak / seconds,
            error=error,
            ops=ops,
            optimal_seconds=self.compiled.optimal_seconds,
            flops=sum(flops.values()),
            libtpu=self.compiled.libtpu,
            floor_cycles=floor,
            notes=notes,
            compiled=self.compiled,
            depends=depends,
            range=span,
        )

    def _notes(self, ops: Sequence[OpEstimate]) -> Iterator[str]:
        """What the figures leave out."""
        if names := sorted({name for op in ops for name in op.depends}):
            yield f"depends on {', '.join(names)}"
        calls = [kernel.call for kernel in self.kernels.values()]
        operands = [operand for call in calls for operand in call.operands]
        if any(not i.counted for i in self.run):
            yield "a loop whose trip count is not known counts once"
        if any(call.unbounded for call in calls):
            yield "a kernel's loop or grid of unknown length counts once"
        if any(not operand.known for operand in operands):
            yield "blocks chosen by prefetched scalars: each step fetches another"
        for walk in (call.walk for call in calls if call.walk):
            if walk.programs[0] < walk.programs[1]:
                ran, of = walk.programs
                yield f"copies by hand and conditions counted over {ran:,} of {of:,} programs"

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

    def _kernel_op(self, kernel: Kernel, instruction: Instruction) -> OpEstimate:
        from kernels.pallas.work import kernel_flops

        chip, call = self.chip, kernel.call
        in_vmem = _in_vmem(call, instruction)
        moved = 0
        for operand in call.operands:
            if id(operand) in in_vmem:
                continue
            moved += call.moved(operand)
        floor = moved / chip.hbm_bytes_per_cycle
        model, method = kernel.cycles, kernel.method
        if model is None:
            model, method = self._from_schedule(kernel, in_vmem)
        bound = COMPUTE
        peak = sum(f / chip.peak(d) for d, f in kernel_flops(call).items())
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
        return _operation(
            instruction,
            kind="kernel",
            cycles=cycles,
            hbm_bytes=moved,
            method=method,
            bound=bound,
            error=error,
            model_cycles=model,
            floor_cycles=floor,
            vmem_limit_bytes=vmem_limit(call, chip.name),
            call=call,
            resident=tuple(o.name for o in call.operands if id(o) in in_vmem),
            depends=call.depends,
            least_cycles=self._least(call, in_vmem) * instruction.times,
            most_cycles=math.inf
            if call.unbounded
            else max(cycles, kernel.issue_cycles * kernel.rounds) * instruction.times,
        )

    def _least(self, call: Any, in_vmem: set[int]) -> float:
        """Cycles that a kernel takes at least, whatever the values that are not known."""
        from kernels.pallas.work import kernel_flops

        moved = sum(call.moved(o, least=True) for o in call.operands if id(o) not in in_vmem)
        flops = kernel_flops(call, least=True)
        peak = sum(f / self.chip.peak(dtype) for dtype, f in flops.items()) * self.chip.clock_hz
        return max(moved / self.chip.hbm_bytes_per_cycle, peak)

    def _first_fetch(self, call: Any, in_vmem: set[int]) -> float:
        """Nothing hides the fetch of the first blocks and the write of the last, and the profile
        takes DMA to be faster than HBM."""
        first = sum(
            o.block_bytes for o in call.operands if o.memory == "vmem" and id(o) not in in_vmem
        )
        return self._slower(first)

    def _slower(self, count: float) -> float:
        """Cycles that HBM takes for `count` bytes beyond what the profile charges."""
        model = libtpu.DMA_MODEL.get(self.chip.name)
        return (
            max(0.0, count * (1 / self.chip.hbm_bytes_per_cycle - 1 / model[1])) if model else 0.0
        )

    def _from_schedule(self, kernel: Kernel, in_vmem: set[int]) -> tuple[float, str]:
        """Each grid step takes its bundles or its DMA, whichever is longer."""
        bundles = kernel.schedule.loop_bundles * kernel.rounds if kernel.schedule else 0
        latency = libtpu.DMA_MODEL.get(self.chip.name, (0.0, 0.0))[0]
        moved = np.zeros(max(kernel.steps, 1))
        for operand in kernel.call.operands:
            if operand.memory == "vmem" and id(operand) not in in_vmem:
                moved[: len(operand.moved)] += operand.moved * operand.block_bytes
        dma = np.where(moved > 0, latency + moved / self.chip.hbm_bytes_per_cycle, 0)
        cycles = float(np.maximum(dma, bundles / self.chip.tensor_cores).sum())
        if not kernel.schedule:
            return cycles, "DMA time alone"
        once = len(kernel.schedule.bundles) - kernel.schedule.loop_bundles
        return cycles + once, "schedule against DMA time"

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
                model = libtpu.DMA_MODEL.get(chip.name, (0.0, 0.0))[0]
        error = ERROR_COMPUTE if profiled and kind == "matmul" else ERROR_XLA
        if kind == "matmul" and not profiled:
            error = 0.12
        cycles = max(model, floor)
        bound = HBM if floor >= 0.7 * model and kind != "matmul" else COMPUTE
        slow = kind == "relayout" and floor < 0.7 * model  # it computes nothing
        if slow or (method == "bytes over bandwidth" and model > floor):
            bound = LATENCY
        return _operation(
            instruction,
            kind=kind,
            cycles=cycles,
            hbm_bytes=moved,
            method=method,
            bound=bound,
            error=error,
            model_cycles=model,
            floor_cycles=floor,
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
        kernel = self.kernels.get(instruction.name)
        # Prefetched scalars come first.
        index = place - len(instruction.inputs) + len(kernel.call.inputs) if kernel else -1
        if kernel is None or index < 0:
            return 1.0
        operand = kernel.call.inputs[index]
        size = operand.whole_bytes
        return min(kernel.call.moved(operand) / size, 1.0) if size else 1.0


def _operation(
    instruction: Instruction,
    *,
    cycles: float,
    hbm_bytes: int,
    model_cycles: float,
    floor_cycles: float,
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


def _in_vmem(call: Any, instruction: Instruction) -> set[int]:
    """The ids of the operands that XLA keeps in VMEM, so that they do not come from HBM."""
    inputs = instruction.operands[len(instruction.operands) - len(call.inputs) :]
    pairs = [*zip(call.inputs, inputs), *zip(call.outputs, instruction.results)]
    return {id(operand) for operand, array in pairs if array.space == 1}
