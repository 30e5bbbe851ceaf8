"""Lower a Pallas kernel for a TPU on a machine that has neither a TPU nor its compiler.

JAX checks the rules of the hardware's memory while it lowers: legal block shapes, supported
operations and dtypes, scalars that must live in scalar memory. It needs to know which chip it
lowers for; an abstract device tells it.
"""

from kernels.machines.tpu.export import TPU

abstract_device, lower = TPU.abstract_device, TPU.lower
