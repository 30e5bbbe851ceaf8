"""The GPU as far as a laptop reaches it: lower, compile, read the machine code, estimate."""

from kernels.machines.base import Seconds, SimulationError
from kernels.machines.gpu.chips import CHIPS, GpuChip
from kernels.machines.gpu.compiler import (
    Buffer,
    BufferValue,
    GpuProgram,
    Life,
    Pass,
    Thunk,
    Tile,
    compile,
)
from kernels.machines.gpu.errors import GpuCompileError
from kernels.machines.gpu.estimate import (
    GpuEstimate,
    GpuStep,
    Parts,
    estimate,
    estimate_compiled,
    library_product,
    parts,
)
from kernels.machines.gpu.export import export, lower
from kernels.machines.gpu.kernel import GpuKernel, Occupancy, cuda, occupancy
from kernels.machines.gpu.launched import run_on_threads
from kernels.machines.gpu.simulator import simulate

__all__ = [
    "CHIPS",
    "Buffer",
    "BufferValue",
    "GpuChip",
    "GpuCompileError",
    "GpuEstimate",
    "GpuKernel",
    "GpuProgram",
    "GpuStep",
    "Life",
    "Occupancy",
    "Parts",
    "Pass",
    "Seconds",
    "SimulationError",
    "Thunk",
    "Tile",
    "compile",
    "cuda",
    "estimate",
    "estimate_compiled",
    "export",
    "library_product",
    "lower",
    "occupancy",
    "parts",
    "run_on_threads",
    "sass",
    "simulate",
    "toolchain",
]
