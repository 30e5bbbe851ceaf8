"""A kernel's estimate laid out in time: which block moves when, what each step does, what waits.

Two buffers for each operand: while a step works, the blocks of the next one are on their way. The
figures are the estimator's own. A step takes what the compiler's model says, an even share for
each; a copy is there when the model says, or when HBM has carried all bytes before it. The estimate
spreads the bytes over the run, and here each step waits for its own: so this may take longer.

A step asks for the next one's blocks first and waits for its own then, as a compiled kernel does:
so two fetches are on their way at once, and where latency binds, a step takes half a latency and
half of its work. One assumption is the drawing's own: the products take what they would at the
chip's peak rate.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.machines.checks import fail
from kernels.machines.compat import libtpu
from kernels.machines.pallas.calls import Operand
from kernels.machines.pallas.work import kernel_flops
from kernels.machines.tpu import chips
from kernels.machines.tpu.estimate.result import OpEstimate


@dataclass(frozen=True)
class Move:
    """A block on its way: `start` to `carried` it has HBM for itself, at `arrived` it is there."""

    operand: str  # its name
    step: int  # of the grid, that it is fetched for or written by
    size: int  # bytes
    # Cycles since the kernel began.
    start: float
    carried: float
    arrived: float


@dataclass(frozen=True)
class PipelineStep:
    """One grid step: it begins at `start`, its products at `products`, and ends at `stop`; before
    it, the core waited from `idle` on. All in cycles."""

    idle: float
    start: float
    products: float
    stop: float


@dataclass(frozen=True)
class Pipeline:
    """A kernel's pipeline over its whole grid; an estimate, and nothing was measured.

    Args:
        chip: one of CHIPS.
        inputs, outputs: names of the operands that move.
        steps: of the grid, in order.
        moves: in the order in which they are asked for.
        cycles: until the last block is back in HBM.
    """

    chip: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[PipelineStep, ...] = field(repr=False)
    moves: tuple[Move, ...] = field(repr=False)
    cycles: float

    @property
    def parts(self) -> dict[str, float]:
        """What the cycles go to: "first fetch", "products" at the chip's peak rate, "rest" of the
        steps, "wait" for a block, and the "last write"."""
        first, last = self.steps[0], self.steps[-1]
        return {
            "first fetch": first.start - first.idle,
            "products": sum(s.stop - s.products for s in self.steps),
            "rest": sum(s.products - s.start for s in self.steps),
            "wait": sum(s.start - s.idle for s in self.steps[1:]),
            "last write": self.cycles - last.stop,
        }


def pipeline(kernel: OpEstimate, chip: str = "v5e") -> Pipeline:
    """Lay the estimate of one kernel out in time.

    Args:
        kernel: of Estimate.ops, one of the kind "kernel".
        chip: that of the estimate.

    Returns:
        Its steps and moves, with what it waits for.

    Raises:
        ValueError: for an operation that is no kernel, and for an empty grid.
    """
    rates = chips.chip(chip)
    if kernel.call is None or not math.prod(kernel.call.grid):
        fail("kernel", f"{kernel.name}, a {kernel.kind}", "a kernel with a grid step or more")
    call, count = kernel.call, math.prod(kernel.call.grid)
    latency, fastest = libtpu.DMA_MODEL.get(chip, (0.0, math.inf))
    moving = [o for o in call.operands if o.memory == "vmem" and o.name not in kernel.resident]
    inputs = {o.name: o.moved_bytes for o in moving if o.role == "input"}
    outputs = {o.name: _written(o) for o in moving if o.role == "output"}

    def alone(sizes: Mapping[str, np.ndarray], step: int) -> float:
        """Cycles until the blocks of a step are there; in the model no DMA slows another."""
        largest = max((int(s[step]) for s in sizes.values()), default=0)
        return latency + largest / fastest if largest else 0.0

    flops = kernel_flops(call)
    products = sum(f / rates.peak(d) for d, f in flops.items()) * rates.clock_hz / count
    ends = alone(inputs, 0) + alone(outputs, count - 1)
    mean = max(kernel.model_cycles / kernel.times - ends, 0) / count
    waits = [wait for wait in (alone(inputs, s) for s in range(1, count)) if wait]
    share, wait = len(waits) / count, sum(waits) / len(waits) if waits else 0.0
    # Two fetches are on their way: a step that waits takes half of the wait and half of its work.
    work = mean if mean >= wait else (mean - share * wait / 2) / (1 - share / 2)
    rest = max(work - products, 0.0)

    free = 0.0  # when HBM has carried all that was asked for
    moves: list[Move] = []

    def ask(sizes: Mapping[str, np.ndarray], step: int, asked: float) -> float:
        """Ask for the blocks of a step that move; when they are there."""
        nonlocal free
        arrived = asked
        for name, by_step in sizes.items():
            if size := int(by_step[step]):
                start = max(free, asked)
                free = start + size / rates.hbm_bytes_per_cycle
                arrival = max(free, asked + alone({name: by_step}, step))
                moves.append(Move(name, step, size, start, free, arrival))
                arrived = max(arrived, arrival)
        return arrived

    def run() -> Iterator[PipelineStep]:
        arrived, end = ask(inputs, 0, 0.0), 0.0
        for step in range(count):
            following = ask(inputs, step + 1, end) if step + 1 < count else end
            start = max(end, arrived)
            begun = start + rest
            yield PipelineStep(end, start, begun, begun + products)
            arrived, end = following, begun + products
            ask(outputs, step, end)

    steps = tuple(run())
    cycles = max(steps[-1].stop, max((m.arrived for m in moves), default=0.0))
    return Pipeline(chip, tuple(inputs), tuple(outputs), steps, tuple(moves), cycles)


def _written(operand: Operand) -> np.ndarray:
    """int [programs]: bytes that leave after each; after the last one that the block stays for."""
    begins = np.flatnonzero(operand.moved)
    written = np.zeros_like(operand.moved_bytes)
    written[np.append(begins[1:], len(written)) - 1] = operand.moved_bytes[begins]
    return written
