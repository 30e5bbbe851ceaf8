"""The GPU as far as a laptop reaches it: lower, compile, read the machine code, estimate."""

from kernels.machines.compat.xla_tables import products as product_table
from kernels.machines.gpu.chips import CHIPS, Chip
from kernels.machines.gpu.compiler import Buffer, Compiled, Life, Pass, Thunk, Tile, Value, compile
from kernels.machines.gpu.cuda import cuda
from kernels.machines.gpu.errors import GpuCompileError
from kernels.machines.gpu.estimate import (
    Estimate,
    Parts,
    Step,
    estimate,
    estimate_compiled,
    library_product,
    parts,
)
from kernels.machines.gpu.export import export
from kernels.machines.gpu.kernel import Kernel
from kernels.machines.gpu.lowering import lower
from kernels.machines.gpu.occupancy import Occupancy, occupancy
from kernels.machines.gpu.simulator import SimulationError, simulate
from kernels.machines.gpu.threads import run_on_threads

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
    "SimulationError",
    "Step",
    "Thunk",
    "Tile",
    "Value",
    "compile",
    "cuda",
    "estimate",
    "estimate_compiled",
    "export",
    "library_product",
    "lower",
    "occupancy",
    "parts",
    "product_table",
    "run_on_threads",
    "sass",
    "simulate",
    "toolchain",
]
