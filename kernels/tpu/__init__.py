"""The TPU as far as a laptop reaches it: simulate, lower, compile, read the schedule, estimate."""

from kernels.tpu.chips import CHIPS, Chip
from kernels.tpu.compiler import Compiled, compile
from kernels.tpu.errors import TpuCompileError
from kernels.tpu.lowering import Lowered, lower
from kernels.tpu.simulator import Simulation, simulate

__all__ = [
    "CHIPS",
    "Chip",
    "Compiled",
    "Lowered",
    "Simulation",
    "TpuCompileError",
    "compile",
    "lower",
    "simulate",
]
