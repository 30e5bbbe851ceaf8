"""Lower a Pallas kernel for a GPU, through the Triton backend, on a machine without a GPU."""

from collections.abc import Callable
from typing import Any

from kernels.compat import jax_mlir
from kernels.pallas import lowered

# What JAX calls the chip that it lowers for where there is none: up to JAX 0.10 it took compute
# capability 9.0 by itself, and 0.11 wants to be told.
DEVICE_KIND = "NVIDIA H100"


def lower(function: Callable[..., Any], *args: Any) -> lowered.Lowered:
    """Lower `function(*args)` for CUDA; nothing runs.

    Args:
        function: of arrays. Its kernel must be written for Triton (its compiler_params say so) and
            not be interpreted.
        args: arrays or jax.ShapeDtypeStruct.

    Returns:
        The program, with each of its kernels.

    Raises:
        ValueError: when no kernel reached the program; besides what JAX raises.
    """
    from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

    device = AbstractDevice(device_kind=DEVICE_KIND, num_cores=None, platform="gpu")
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
        return lowered.lower(function, args, "cuda", "GPU", jax_mlir.GPU)
