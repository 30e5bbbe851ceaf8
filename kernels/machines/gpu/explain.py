"""What is known of a program that was compiled for a GPU: plain data, that JSON can hold.

kernels.yours says it in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.machines.gpu.chips import chip as chip_of
from kernels.machines.gpu.compiler import GpuProgram, Thunk
from kernels.machines.gpu.estimate import GpuEstimate
from kernels.machines.gpu.kernel import GpuKernel, Occupancy
from kernels.machines.gpu.sass import SassLoop

OPERATIONS = 8  # of a kernel, the most frequent


@dataclass(frozen=True)
class LoopFacts:
    """The loop of a kernel that counts, or all of its code."""

    instructions: int
    issue_cycles: int  # that a warp needs which waits for nothing
    counts: Mapping[str, int]  # of the most frequent operations
    # Of each instruction: its address, stall, the scoreboards that it waits for and sets, its text.
    schedule: tuple[tuple[int, int, tuple[int, ...], tuple[int, ...], str], ...]
    whole: bool  # whether there is no loop, so that this is all of the kernel


@dataclass(frozen=True)
class GpuKernelFacts:
    """One kernel: see kernels.gpu.GpuKernel."""

    name: str
    blocks: int
    threads: int
    registers: int
    spills: int
    shared_bytes: int
    instructions: int
    counts: Mapping[str, int]  # of the most frequent operations
    tensor_cores: bool  # whether they multiply in it
    loop: LoopFacts
    # None where the launch is not known.
    occupancy: Occupancy | None = None
    waves: int | None = None  # in which its blocks run
    busy: float | None = None  # the share of the places that they fill


@dataclass(frozen=True)
class GpuFacts:
    """All that is known of a compiled program, in plain numbers: see kernels.gpu.GpuProgram."""

    title: str
    chip: str
    seconds: float | None  # the least; None where there is no bracket
    most: float | None
    figure: float | None  # one between them, or beside; None where nothing of its kind was timed
    band: str  # of the figure, in words, or why there is none
    bound: str
    method: str
    notes: tuple[str, ...]  # why there is no bracket
    compile_seconds: float
    memory: Mapping[str, int]
    passes: tuple[Mapping[str, str], ...]  # "name" and "pipeline" of those that changed it
    thunks: tuple[Thunk, ...]
    kernels: tuple[GpuKernelFacts, ...]
    dtypes: tuple[str, ...] = ()  # nothing is said of them


def facts(compiled: GpuProgram, estimate: GpuEstimate | str, title: str) -> GpuFacts:
    """All that is known of a compiled program."""
    bracket = None if isinstance(estimate, str) else estimate
    least, most = bracket.seconds if bracket else (None, None)
    return GpuFacts(
        title=title,
        chip=compiled.chip,
        seconds=least,
        most=most,
        figure=bracket.figure if bracket else None,
        band=bracket.band_text if bracket else "",
        bound=bracket.bound if bracket else "",
        method=bracket.method if bracket else "",
        notes=() if bracket else (f"no bracket: {estimate}",),
        compile_seconds=compiled.seconds,
        memory=dict(compiled.memory),
        passes=tuple({"name": p.name, "pipeline": p.pipeline} for p in compiled.passes),
        thunks=compiled.thunks,
        kernels=tuple(map(_kernel, compiled.kernels)),
    )


def _kernel(kernel: GpuKernel) -> GpuKernelFacts:
    occupancy = waves = busy = None
    if kernel.threads:
        occupancy = kernel.occupancy
        places = occupancy.blocks * chip_of(kernel.chip).sms
        waves = -(-kernel.blocks // places)
        busy = kernel.blocks / (waves * places) if waves else None
    same = ("name", "blocks", "threads", "registers", "spills", "shared_bytes")
    return GpuKernelFacts(
        **{name: getattr(kernel, name) for name in same},
        instructions=len(kernel.instructions),
        counts=dict(kernel.counts.most_common(OPERATIONS)),
        tensor_cores=kernel.products,
        loop=_loop(kernel),
        occupancy=occupancy,
        waves=waves,
        busy=busy,
    )


def _loop(kernel: GpuKernel) -> LoopFacts:
    loop = max(kernel.loops, key=_weight, default=SassLoop(kernel.instructions))
    return LoopFacts(
        instructions=len(loop.instructions),
        issue_cycles=loop.issue_cycles,
        counts=dict(loop.counts.most_common(OPERATIONS)),
        schedule=tuple((i.address, i.stall, i.waits, i.sets, i.text) for i in loop.instructions),
        whole=not kernel.loops,
    )


def _weight(loop: SassLoop) -> tuple[int, int]:
    """The loop that counts is the one that multiplies, and of those the shortest."""
    products = sum(n for name, n in loop.counts.items() if name.endswith("MMA") or name == "FFMA")
    return products, -len(loop.instructions)
