"""Kernels in CUDA C++, compiled by NVRTC for a GPU that is not here."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from kernels.machines import child
from kernels.machines.checks import one_of
from kernels.machines.gpu import toolchain
from kernels.machines.gpu.chips import chip as chip_of
from kernels.machines.gpu.errors import GpuCompileError
from kernels.machines.gpu.kernel import GpuKernel, alone

SECONDS = 60.0  # that NVRTC may take


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
            seconds=SECONDS,
        )
    except child.ChildLate:
        raise GpuCompileError("timeout", f"NVRTC had not finished after {SECONDS:g} s") from None
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
