"""Lower a Pallas kernel for a GPU, through the Triton backend, on a machine without a GPU."""

from collections.abc import Callable
from typing import Any

from kernels.pallas import lowered, modules


def lower(function: Callable[..., Any], *args: Any) -> lowered.Lowered:
    """Lower `function(*args)` for CUDA; nothing runs. args: arrays or jax.ShapeDtypeStruct.

    The kernel must be written for Triton (its compiler_params say so) and not be interpreted.
    Raises what JAX raises, and ValueError when no kernel reached the program.
    """
    return lowered.lower(function, args, "cuda", "GPU", modules.GPU)
