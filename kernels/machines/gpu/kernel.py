"""A kernel down to the machine's instructions: in CUDA C++ compiled by NVRTC, for a GPU that is not
here; assembled by ptxas, read by nvdisasm."""

from __future__ import annotations

import functools
import math
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernels.machines import cache, child
from kernels.machines.checks import fail, one_of, positive_int
from kernels.machines.gpu import sass as code
from kernels.machines.gpu import toolchain
from kernels.machines.gpu.chips import chip as chip_of
from kernels.machines.gpu.errors import GpuCompileError, translate

WARP = 32  # threads
WARPS_AT_ONCE = 4  # an SM has four schedulers, and registers are given to warps of each
REGISTERS_AT_ONCE = 256  # registers that a warp is given at a time
SHARED_AT_ONCE = 128  # bytes of shared memory that a block is given at a time
RESERVED = 1024  # bytes of shared memory that the system keeps of each block


@dataclass(frozen=True)
class Occupancy:
    """How full an SM is.

    Args:
        blocks: that an SM keeps at once.
        warps: in these blocks.
        share: of the warps that an SM could keep.
        limiter: what allows no further block: "threads", "blocks", "registers" or "shared memory".
        limits: how many blocks each of these would allow.
    """

    blocks: int
    warps: int
    share: float
    limiter: str
    limits: dict[str, int]


def occupancy(chip: str, *, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Compute the occupancy of a kernel, by the rules of NVIDIA's occupancy calculator.

    Args:
        chip: one of CHIPS.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.

    Raises:
        ValueError: for an unknown chip, and for a block that no SM could take.
    """
    target = chip_of(chip)
    positive_int("threads", threads)
    positive_int("registers", registers)
    if threads > 1024:
        fail("threads", threads, "at most 1024 in a block")
    if registers > 255:
        fail("registers", registers, "at most 255 a thread")
    if not 0 <= shared_bytes <= target.shared_bytes_per_block:
        fail("shared_bytes", shared_bytes, f"0 to {target.shared_bytes_per_block} on {chip}")
    warps = math.ceil(threads / WARP)
    for_warp = math.ceil(registers * WARP / REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    # Each of the four schedulers has a quarter of the registers, and whole warps.
    room = target.registers_per_sm // for_warp // WARPS_AT_ONCE * WARPS_AT_ONCE
    for_block = math.ceil((shared_bytes + RESERVED) / SHARED_AT_ONCE) * SHARED_AT_ONCE
    limits = {
        "threads": target.threads_per_sm // (WARP * warps),
        "blocks": target.blocks_per_sm,
        "registers": room // warps,
        "shared memory": target.shared_bytes_per_sm // for_block,
    }
    blocks = min(limits.values())
    if not blocks:
        fail("registers", f"{registers} in each of {threads} threads", "65536 a block at most")
    limiter = min(limits, key=lambda name: limits[name])
    kept = blocks * warps
    return Occupancy(blocks, kept, kept * WARP / target.threads_per_sm, limiter, limits)


ASSEMBLER_SECONDS = 120.0  # that ptxas may take for one kernel
NVRTC_SECONDS = 60.0  # that NVRTC may for one source


@dataclass(frozen=True)
class GpuKernel:
    """One kernel of a compiled program. What it is made of is found out when it is asked for.

    Args:
        name: as the program launches it.
        chip: one of CHIPS.
        ptx: NVIDIA's virtual machine code.
        grid: blocks in each of three directions; () where the program does not say.
        threads: of a block, all of them.
        dynamic_bytes: of shared memory that the launch gives a block besides what the kernel has.
    """

    name: str
    chip: str
    ptx: str = field(repr=False)
    grid: tuple[int, ...] = ()
    threads: int = 0
    dynamic_bytes: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of the whole grid."""
        return math.prod(self.grid) if self.grid else 0

    @property
    def sass(self) -> str:
        """The machine code, as nvdisasm writes it."""
        return self._assembled.sass

    @property
    def registers(self) -> int:
        """Registers of 32 bits that a thread has."""
        return self._assembled.registers

    @property
    def spills(self) -> int:
        """Bytes that a thread stores to local memory, and loads from it, for want of registers."""
        return self._assembled.spills

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block, the kernel's own and those of the launch."""
        return self._assembled.shared_bytes + self.dynamic_bytes

    @cached_property
    def occupancy(self) -> Occupancy:
        """How many blocks an SM keeps at once, and what keeps it from more."""
        return occupancy(
            self.chip,
            threads=self.threads,
            registers=max(self.registers, 1),
            shared_bytes=self.shared_bytes,
        )

    @cached_property
    def instructions(self) -> tuple[code.SassInstruction, ...]:
        """The machine code, instruction by instruction, with its static schedule."""
        return code.read(self.sass)

    @cached_property
    def counts(self) -> Counter[str]:
        """Operation → how often it stands in the code: FFMA, LDG, HGMMA …"""
        return code.counts(self.instructions)

    @property
    def products(self) -> bool:
        """Whether tensor cores multiply in it."""
        return any(name.endswith("MMA") for name in self.counts)

    @cached_property
    def loops(self) -> tuple[code.SassLoop, ...]:
        """Its loops, the innermost first."""
        return code.loops(self.instructions)

    @property
    def _assembled(self) -> _Assembled:
        return assemble(self.ptx, self.chip)


def alone(ptx: str, kernel: str) -> str:
    """PTX without its other kernels, so that what ptxas says is of this one."""
    parts = re.split(r"(?=^(?:\s*// \.globl\s+\w+\n)?\.visible \.entry )", ptx, flags=re.M)
    kept = [p for p in parts if ".visible .entry" not in p or f".visible .entry {kernel}(" in p]
    return "".join(kept)


@dataclass(frozen=True)
class _Assembled:
    sass: str
    registers: int
    spills: int
    shared_bytes: int


@functools.lru_cache(maxsize=256)
def assemble(ptx: str, chip: str) -> _Assembled:
    """Assemble one kernel, and read what came of it; GpuCompileError where ptxas refuses it, or
    takes too long, MissingPackage without ptxas or nvdisasm."""
    chip_of(chip)
    ptxas = toolchain.part(toolchain.PTXAS, "turning PTX into machine code")
    nvdisasm = toolchain.part(toolchain.NVDISASM, "reading machine code")
    said = re.search(r"^\.target (sm_\w+)", ptx, re.M)
    architecture = said[1] if said else chip_of(chip).sm  # what it was written for, on such a chip
    key = cache.digest(cache.code((Path(__file__),)), toolchain.stamps(), ptx, architecture)
    if known := cache.GPU.get(key):
        return known
    with tempfile.TemporaryDirectory(prefix="kernels-gpu-") as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx, encoding="utf-8")
        done = _run([ptxas, "-v", f"-arch={architecture}", source, "-o", cubin])
        report = done.stderr + done.stdout
        if done.status:
            raise translate(report)
        shown = _run([nvdisasm, "-c", "-hex", cubin])
        if shown.status:
            raise GpuCompileError("other", child.last_line(shown.stderr), shown.stderr)
    used = re.search(r"Used (\d+) registers", report)
    static = re.search(r"(\d+) bytes smem", report)
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assembled = _Assembled(
        sass=shown.stdout,
        registers=int(used[1]) if used else 0,
        spills=int(spilled[1]) + int(spilled[2]) if spilled else 0,
        shared_bytes=int(static[1]) if static else 0,
    )
    cache.GPU.put(key, assembled)
    return assembled


def _run(command: list[object]) -> child.Done:
    try:
        return child.run(
            [str(part) for part in command],
            seconds=ASSEMBLER_SECONDS,
            environment=toolchain.environment(),
        )
    except child.ChildLate as late:
        raise GpuCompileError("timeout", str(late), seconds=ASSEMBLER_SECONDS) from None


def cuda(
    source: str,
    *,
    chip: str = "h100",
    kernel: str = "",
    grid: Sequence[int] = (),
    threads: int | Sequence[int] = 0,
) -> GpuKernel:
    """Compile a kernel written in CUDA C++; nothing runs.

    Args:
        source: of which one function is `extern "C" __global__`, or several and `kernel` names
            one. It is self-contained: NVRTC has no header but its own.
        chip: one of CHIPS.
        kernel: the function's name; may be left out where there is one.
        grid: blocks in each direction, for what is counted of the whole launch.
        threads: of a block, in each direction or all of them, for the occupancy.

    Raises:
        GpuCompileError: for what NVRTC refuses; the message is its first error, with the line.
        ValueError: for an unknown chip, and for a kernel that is not in the source.
        MissingPackage: where NVRTC is not installed.
    """
    architecture = chip_of(chip).sm.replace("sm_", "compute_")
    library = toolchain.part(toolchain.NVRTC, "compiling CUDA C++")
    # In a process of its own, as what crashes or hangs is not the caller's.
    try:
        done = child.run(
            child.python(
                str(Path(__file__).with_name("nvrtc.py")),
                str(library),
                source,
                f"--gpu-architecture={architecture}",
                "--std=c++17",
            ),
            seconds=NVRTC_SECONDS,
        )
    except child.ChildLate:
        raise GpuCompileError(
            "timeout", f"NVRTC had not finished after {NVRTC_SECONDS:g} s"
        ) from None
    if done.status:
        said = done.stderr.strip()
        first = re.search(r"kernel\.cu\((\d+)\): error: ([^\n]*)", said)
        line = f"line {first[1]}: {first[2]}" if first else child.last_line(said)
        raise GpuCompileError("other", f"NVRTC refuses it: {line}", said)
    ptx = done.stdout
    names = re.findall(r"^\.visible \.entry (\w+)\(", ptx, re.M)
    if not kernel and len(names) == 1:
        kernel = names[0]
    one_of("kernel", kernel, names)
    many = math.prod(threads) if isinstance(threads, Sequence) else threads
    return GpuKernel(kernel, chip, alone(ptx, kernel), tuple(grid), many)
