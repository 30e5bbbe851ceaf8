"""The GPU as far as a laptop reaches it: lower, compile, read the machine code, estimate."""

from kernels.machines.gpu.chips import CHIPS, Chip
from kernels.machines.gpu.compiler import Buffer, Compiled, Life, Pass, Thunk, Tile, Value, compile
from kernels.machines.gpu.errors import GpuCompileError
from kernels.machines.gpu.estimate import Estimate, Parts, Step, estimate, parts
from kernels.machines.gpu.kernel import Kernel
from kernels.machines.gpu.lowering import lower
from kernels.machines.gpu.occupancy import Occupancy, occupancy

__all__ = [
    "CHIPS",
    "Buffer",
    "Chip",
    "Compiled",
    "Estimate",
    "GpuCompileError",
    "Kernel",
    "Life",
    "Occupancy",
    "Parts",
    "Pass",
    "Step",
    "Thunk",
    "Tile",
    "Value",
    "compile",
    "estimate",
    "lower",
    "occupancy",
    "parts",
]
