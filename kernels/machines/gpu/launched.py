"""A launch of a kernel in CUDA C++: run on the CPU's threads, or kept to be compiled."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines.checks import fail
from kernels.machines.gpu import threads
from kernels.machines.gpu.cuda import cuda
from kernels.machines.gpu.kernel import GpuKernel

MAIN = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")


class LaunchError(RuntimeError):
    """A sanitizer refused a kernel; the message is what it found, and the line."""


@dataclass(frozen=True)
class ThreadParams:
    """How a launch is simulated on the CPU's threads: watched by one of threads.SANITIZERS."""

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
        watch = interpret.watch if isinstance(interpret, ThreadParams) else threads.NOTHING
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
            said = threads.run_on_threads(self.source, main, watch=watch)
            if said.problem:
                raise LaunchError(f"{said.problem} in line {said.line} of {self.name}")
            flat = np.fromfile(Path(folder, "out"), np.float32)
        ends = np.cumsum(sizes)
        return [part.reshape(s) for part, s in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
