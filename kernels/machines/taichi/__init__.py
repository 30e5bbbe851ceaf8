"""Taichi as a machine: one start for each process, checked launches, and a child for debug runs.

Not the package `taichi` but what the book puts around it. Kernels are written against `module()`,
which is taichi, or the fork quadrants where KERNELS_TAICHI=quadrants asks for it.
"""

from kernels.machines.taichi.runtime import (
    ARCHS,
    DTYPES,
    MODULES,
    empty,
    launch,
    module,
    start,
    threads,
)
from kernels.machines.taichi.subprocess_runner import KernelSource, TaichiError, run, simulate

__all__ = [
    "ARCHS",
    "DTYPES",
    "MODULES",
    "KernelSource",
    "TaichiError",
    "assembly",
    "empty",
    "launch",
    "module",
    "run",
    "simulate",
    "start",
    "threads",
]
