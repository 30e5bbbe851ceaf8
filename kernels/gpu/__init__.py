"""The GPU as far as a laptop reaches it: lower, compile, read the machine code, estimate."""

from kernels.gpu.chips import CHIPS, Chip
from kernels.gpu.compiler import Buffer, Compiled, Life, Pass, Thunk, Tile, Value, compile
from kernels.gpu.errors import GpuCompileError
from kernels.gpu.estimate import Estimate, Parts, Step, estimate, parts
from kernels.gpu.kernel import Kernel
from kernels.gpu.lowering import lower
from kernels.gpu.occupancy import Occupancy, occupancy

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
