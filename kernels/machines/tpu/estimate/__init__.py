"""Estimate a program's run time on a TPU that is not there.

Three sources, from the best to the plainest: the compiler's static profile, which simulates its own
schedule (profile.py); the schedule itself, set against the time that DMA takes; XLA's own cycle
estimates, for XLA's operations (cost.py). An estimate is the compiler's model of itself and never a
measurement.
"""

from kernels.machines.tpu.estimate.batch import estimate, estimate_all, estimate_program
from kernels.machines.tpu.estimate.result import Estimate, OpEstimate

__all__ = ["Estimate", "OpEstimate", "estimate", "estimate_all", "estimate_program"]
