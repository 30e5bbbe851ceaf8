"""The TPU as far as a laptop reaches it: simulate, lower, compile, read the schedule, estimate."""

from kernels.tpu.chips import CHIPS, Chip
from kernels.tpu.diagnose import TpuCompileError
from kernels.tpu.estimate import Estimate, OpEstimate, estimate
from kernels.tpu.lowering import lower
from kernels.tpu.pipelining import Pipeline, pipeline
from kernels.tpu.pool import Compiled, compile
from kernels.tpu.scheduler import KernelSchedule, Schedule, schedule
from kernels.tpu.simulator import Simulation, simulate
from kernels.tpu.tuner import Trial, Tuning, tune

__all__ = [
    "CHIPS",
    "Chip",
    "Compiled",
    "Estimate",
    "KernelSchedule",
    "OpEstimate",
    "Pipeline",
    "Schedule",
    "Simulation",
    "TpuCompileError",
    "Trial",
    "Tuning",
    "compile",
    "estimate",
    "lower",
    "pipeline",
    "schedule",
    "simulate",
    "tune",
]
