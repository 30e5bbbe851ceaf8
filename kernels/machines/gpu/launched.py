"""A kernel in CUDA C++ on the CPU's threads, under g++'s sanitizers; or a launch of it, kept.

Every thread of a block is a thread of the CPU, `__shared__` is memory that they share, and
`__syncthreads()` is a barrier. So ThreadSanitizer sees two threads that use the same place with no
barrier between, and AddressSanitizer an index that leaves its array. Neither knows a warp: threads
of one run here in any order, which is what CUDA promises since Volta.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines import child, optional
from kernels.machines.checks import fail, one_of
from kernels.machines.gpu.kernel import GpuKernel, cuda

SECONDS = 60.0
SANITIZERS = {
    "races": ("-fsanitize=thread", "TSAN_OPTIONS", "halt_on_error=1"),
    "bounds": ("-fsanitize=address,undefined", "ASAN_OPTIONS", "detect_leaks=0"),
    "nothing": ("-O2", "LC_ALL", "C"),
}
NOTHING = "nothing"  # watched: the arithmetic alone

HEADER = Path(__file__).with_name("threads.h")


@dataclass(frozen=True)
class Found:
    """What a sanitizer said of a kernel."""

    # In its words, such as "data race" or "heap-buffer-overflow"; "" where it found nothing.
    problem: str
    line: int  # of the source, counted from 1; 0 where it named none
    printed: str = field(repr=False)  # by the program
    report: str = field(repr=False)  # the sanitizer's, whole


def run_on_threads(source: str, main: str, *, watch: str = "races") -> Found:
    """Run CUDA C++ on CPU threads, watched by a sanitizer.

    Args:
        source: kernels, without `extern "C"`.
        main: the body of a main function: it makes arrays and calls
            `launch(dim3(blocks), dim3(threads), [&] { kernel(…); });`.
        watch: "races" (ThreadSanitizer), "bounds" (AddressSanitizer) or "nothing".

    Raises:
        ValueError: for another `watch`, and for source that g++ refuses.
        MissingPackage: without g++.
    """
    one_of("watch", watch, SANITIZERS)
    compiler = optional.tool("g++", "running CUDA C++ on the CPU")
    flag, variable, setting = SANITIZERS[watch]
    source = source.replace('extern "C"', "")
    with tempfile.TemporaryDirectory(prefix="kernels-gpu-") as folder:
        path, program = Path(folder) / "kernel.cc", Path(folder) / "kernel"
        text = f'#include "{HEADER}"\n#line 1 "kernel.cu"\n{source}\nint main() {{\n{main}\n}}\n'
        path.write_text(text, encoding="utf-8")
        options = ["-std=c++20", "-O1", "-g", "-pthread", "-w", flag]
        built = child.run([compiler, *options, str(path), "-o", str(program)], seconds=SECONDS)
        if built.status:
            error = re.search(r"kernel\.cu:(\d+):\d+: error: ([^\n]*)", built.stderr)
            said = f"line {error[1]}: {error[2]}" if error else child.last_line(built.stderr)
            raise ValueError(f"source is refused by g++, {said}; accepted: C++20 with CUDA's words")
        # The sanitizer wants its memory where no address is drawn at random.
        at_fixed = [setarch, "-R"] if (setarch := shutil.which("setarch")) else []
        variables = dict(os.environ) | {variable: setting}
        done = child.run([*at_fixed, str(program)], seconds=SECONDS, environment=variables)
    report = done.stderr
    problem = re.search(
        r"(?:ThreadSanitizer|AddressSanitizer): ([\w-]+(?: race)?)|runtime error: ([^\n]*)", report
    )
    line = re.search(r"kernel\.cu:(\d+)", report)
    return Found(
        (problem[1] or problem[2]) if problem else "",
        int(line[1]) if problem and line else 0,
        done.stdout,
        report,
    )


MAIN = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")


class LaunchError(RuntimeError):
    """A sanitizer refused a kernel; the message is what it found, and the line."""


@dataclass(frozen=True)
class ThreadParams:
    """How a launch is simulated on the CPU's threads: watched by one of SANITIZERS."""

    watch: str = "races"


@dataclass(frozen=True)
class Launched:
    """One kernel, and how it is launched."""

    source: str  # in CUDA C++
    name: str  # of the kernel in it
    blocks: int  # in a row
    threads: int  # of a block, in a row

    def compiled(self, chip: str) -> GpuKernel:
        """By NVRTC for a chip that is not here; ptxas has its say when the machine code is read."""
        grid = (self.blocks, 1, 1)
        return cuda(self.source, chip=chip, kernel=self.name, grid=grid, threads=self.threads)

    def run(
        self, shapes: Sequence[tuple[int, ...]], *arguments: Any, interpret: Any = None
    ) -> list[np.ndarray]:
        """What the kernel writes.

        Args:
            shapes: of its results, float32, which are its first arguments; what it leaves out is
                NaN.
            arguments: the others: float32 arrays, and numbers.
            interpret: None or True runs it on the CPU's threads, unwatched; ThreadParams under a
                sanitizer. A list gets the launch, and nothing runs: the results are zeros.

        Raises:
            LaunchError: where the sanitizer finds something.
            ValueError: for another `interpret`, and for source that g++ refuses.
            MissingPackage: without g++.
        """
        if isinstance(interpret, list):
            interpret.append(self)
            return [np.zeros(shape, np.float32) for shape in shapes]
        if interpret not in (None, True) and not isinstance(interpret, ThreadParams):
            fail("interpret", repr(interpret), "None, True or ThreadParams, since no GPU is used")
        watch = interpret.watch if isinstance(interpret, ThreadParams) else NOTHING
        arrays = [np.ascontiguousarray(a, np.float32) for a in arguments if np.ndim(a)]
        sizes = [int(np.prod(shape)) for shape in shapes]
        lines, words = [], [f"r{place}.data()" for place in range(len(shapes))]
        for place, size in enumerate(sizes):
            lines.append(f'std::vector<float> r{place}({size}, __builtin_nanf(""));')
        for argument in arguments:
            if np.ndim(argument):
                words.append(f"a{len(words)}.data()")
                lines.append(f"auto {words[-1].removesuffix('.data()')} = take({argument.size});")
            else:
                words.append(f"{argument.hex()}f" if isinstance(argument, float) else f"{argument}")
        lines.append(f"launch(dim3({self.blocks}), dim3({self.threads}), [&] {{")
        lines.append(f"  {self.name}({', '.join(words)});\n}});")
        with tempfile.TemporaryDirectory(prefix="kernels-launch-") as folder:
            Path(folder, "in").write_bytes(b"".join(array.tobytes() for array in arrays))
            results = ", ".join(f"&r{place}" for place in range(len(shapes)))
            main = MAIN.format(folder=folder, launch="\n".join(lines), results=results)
            said = run_on_threads(self.source, main, watch=watch)
            if said.problem:
                raise LaunchError(f"{said.problem} in line {said.line} of {self.name}")
            flat = np.fromfile(Path(folder, "out"), np.float32)
        ends = np.cumsum(sizes)
        return [part.reshape(s) for part, s in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
