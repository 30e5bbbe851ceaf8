"""Lower a Pallas kernel for a TPU on a machine that has neither a TPU nor its compiler.

JAX checks the rules of the hardware's memory while it lowers: legal block shapes, supported
operations and dtypes, scalars that must live in scalar memory. It needs to know which chip it
lowers for; an abstract device tells it.
"""

from collections.abc import Callable
from typing import Any

from kernels.machines.compat import jax_mlir
from kernels.machines.pallas import lowered
from kernels.machines.tpu.export import abstract_device


def lower(function: Callable[..., Any], *args: Any, chip: str = "v5e") -> lowered.Lowered:
    """Lower `function(*args)` for `chip`; nothing runs.

    Args:
        function: kernels inside are taken as compiled, whatever they do on this machine.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.

    Raises:
        ValueError: where no kernel reaches the program, or one insists on being interpreted.
        Exception: what JAX raises where the hardware could not take the kernel.
    """
    with abstract_device(chip):
        return lowered.lower(function, args, "tpu", chip, jax_mlir.TPU)
