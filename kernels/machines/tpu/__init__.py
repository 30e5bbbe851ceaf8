"""The TPU as far as a laptop reaches it: simulate, lower, compile, read the schedule, estimate."""

from kernels.machines import hlo
from kernels.machines.base import Seconds, Simulation, SimulationError
from kernels.machines.compat.libtpu import DMA_MODEL
from kernels.machines.tpu.chips import CHIPS, Chip
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate import Estimate, OpEstimate, estimate
from kernels.machines.tpu.estimate.bands import ahead, band, ratio_band
from kernels.machines.tpu.estimate.rates import LINKS, RATES
from kernels.machines.tpu.export import lower
from kernels.machines.tpu.pipelining import Pipeline, pipeline
from kernels.machines.tpu.pool import TpuProgram, compile
from kernels.machines.tpu.scheduler import KernelSchedule, Schedule, schedule
from kernels.machines.tpu.simulator import simulate
from kernels.machines.tpu.tuner import Trial, Tuning, tune

__all__ = [
    "CHIPS",
    "DMA_MODEL",
    "LINKS",
    "RATES",
    "Chip",
    "Estimate",
    "KernelSchedule",
    "OpEstimate",
    "Pipeline",
    "Schedule",
    "Seconds",
    "Simulation",
    "SimulationError",
    "TpuCompileError",
    "TpuProgram",
    "Trial",
    "Tuning",
    "ahead",
    "band",
    "compile",
    "estimate",
    "hlo",
    "lower",
    "pipeline",
    "ratio_band",
    "schedule",
    "simulate",
    "tune",
]
