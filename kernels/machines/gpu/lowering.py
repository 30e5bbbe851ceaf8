"""Lower a Pallas kernel for a GPU, through the Triton backend, on a machine without a GPU."""

from collections.abc import Callable
from typing import Any

from kernels.machines.compat import jax_mlir
from kernels.machines.gpu.export import abstract_device
from kernels.machines.pallas import lowered


def lower(function: Callable[..., Any], *args: Any, chip: str = "h100") -> lowered.Lowered:
    """Lower `function(*args)` for CUDA; nothing runs.

    Args:
        function: of arrays. Its kernel must be written for Triton (its compiler_params say so) and
            not be interpreted.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.

    Returns:
        The program, with each of its kernels.

    Raises:
        ValueError: for an unknown chip, and when no kernel reached the program; besides what JAX
            raises.
    """
    with abstract_device(chip):
        return lowered.lower(function, args, "cuda", "GPU", jax_mlir.GPU)
