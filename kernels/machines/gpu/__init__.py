"""The GPU as far as a laptop reaches it: lower, compile, read the machine code, estimate."""

from kernels.machines.base import Seconds
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
from kernels.machines.gpu.estimate import GpuEstimate, GpuStep, Parts, estimate, parts
from kernels.machines.gpu.export import lower
from kernels.machines.gpu.kernel import GpuKernel
from kernels.machines.gpu.occupancy import Occupancy, occupancy

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
    "Thunk",
    "Tile",
    "compile",
    "estimate",
    "lower",
    "occupancy",
    "parts",
]
