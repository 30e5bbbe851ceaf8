"""The PTX that Taichi makes of a kernel for a GPU that is not there.

Taichi compiles for a GPU when it finds NVIDIA's driver, libcuda. Here it finds one of ours: it has
one GPU of the wanted capability, gives host memory, writes down the PTX that it is handed and each
launch, and runs nothing.
"""

import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.machines import child, optional
from kernels.machines.checks import brief
from kernels.machines.taichi import runtime
from kernels.machines.taichi.subprocess_runner import SECONDS, TaichiError, run_once

OUT, MAJOR, MINOR, SMS = (f"KERNELS_DRIVER_{name}" for name in ("OUT", "MAJOR", "MINOR", "SMS"))
DRIVER = str(Path(__file__).with_name("driver.c"))
MEMORY_GB = 0.1  # that Taichi takes when it starts


@dataclass(frozen=True)
class TaichiLaunch:
    """A task of a kernel, as Taichi launches it on a GPU."""

    name: str  # as Taichi gives it
    ptx: str = field(repr=False)  # of the module that holds it
    grid: tuple[int, ...]  # blocks in each of three directions
    threads: int  # of a block
    shared_bytes: int  # of a block, that the launch gives it besides its own


def ptx(
    function: Callable[..., Any],
    *arguments: Any,
    capability: tuple[int, int] = (8, 6),
    sms: int = 82,
) -> tuple[TaichiLaunch, ...]:
    """The tasks that `function(*arguments)` would launch on a GPU, in order; none of them runs.

    Args:
        function: of a module, since a child process imports it there; it calls kernels on its
            arguments itself, without kernels.taichi.launch.
        arguments: NumPy arrays and numbers.
        capability: compute capability of the GPU: (8, 6) is sm_86.
        sms: streaming multiprocessors, by which Taichi chooses the grid.

    Returns:
        Those of the kernels, without what prepares Taichi itself.

    Raises:
        TaichiError: the child fails, or takes longer.
        MissingPackage: Taichi or g++ is not installed.
    """
    runtime.check()
    compiler = optional.tool("g++", "a stand-in for NVIDIA's driver")
    with tempfile.TemporaryDirectory(prefix="kernels-taichi-") as name:
        folder = Path(name)
        library = folder / "libcuda.so"
        command = [compiler, "-x", "c", "-shared", "-fPIC", "-w", DRIVER, "-o", str(library)]
        built = child.run(command, seconds=SECONDS)
        if built.status:
            raise TaichiError(f"g++ refuses the driver: {child.last_line(built.stderr)}")
        library.with_suffix(".so.1").symlink_to(library)
        variables = dict(zip((OUT, MAJOR, MINOR, SMS), map(str, (folder, *capability, sms))))
        variables["LD_LIBRARY_PATH"] = str(folder)
        run_once(__name__, (function, arguments), folder, variables)
        modules = [path.read_text() for path in sorted(folder.glob("*.ptx"))]
        launches = (folder / "launches").read_text().splitlines()
    tasks = []
    for line in launches:
        task, *numbers = line.split()
        gx, gy, gz, threads, bytes_ = map(int, numbers)
        module = next((m for m in modules if re.search(rf"\.entry {task}\(", m)), "")
        if not task.startswith("runtime_"):
            tasks.append(TaichiLaunch(task, module, (gx, gy, gz), threads, bytes_))
    return tuple(tasks)


def main(question: tuple) -> None:
    """In the child: start Taichi on the GPU that is not there, run what the parent asked for."""
    try:
        ti = runtime.module()
        memory = {"device_memory_GB": MEMORY_GB} if runtime.name() == "taichi" else {}
        ti.init(arch=ti.cuda, offline_cache=False, log_level=ti.ERROR, **memory)
        function, arguments = question
        function(*arguments)
        ti.sync()
    except Exception as error:
        sys.exit(brief(error))
