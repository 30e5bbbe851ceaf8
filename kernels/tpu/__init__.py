"""The TPU as far as a laptop reaches it: simulate a kernel, and lower it to Mosaic."""

from kernels.tpu.chips import CHIPS, Chip
from kernels.tpu.lowering import lower
from kernels.tpu.simulator import Simulation, simulate

__all__ = ["CHIPS", "Chip", "Simulation", "lower", "simulate"]
