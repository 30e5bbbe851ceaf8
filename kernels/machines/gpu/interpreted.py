"""Where a kernel of Mosaic GPU runs: on a GPU, or simulated."""

from typing import Any

from kernels.machines import pallas
from kernels.machines.gpu.chips import CHIPS


def interprets(interpret: Any) -> Any:
    """Resolve the `interpret=` argument of a kernel of Mosaic GPU.

    Args:
        interpret: None compiles where JAX traces for a GPU, and simulates everywhere else; True
            simulates, without looking for races; False compiles. Anything else is passed on.

    Returns:
        What plgpu.kernel takes as interpret=.
    """
    chosen = pallas.interprets(interpret, "gpu")
    if chosen is not True:
        return chosen
    from kernels.machines.compat import jax_mosaic

    return jax_mosaic.parameters()


def multiprocessors() -> int:
    """SMs of the GPU that JAX traces for: an H100's where there is none."""
    import jax

    abstract = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    if abstract is not None and abstract.num_cores:
        return int(abstract.num_cores)
    device = jax.devices()[0]
    return int(device.core_count) if device.platform == "gpu" else CHIPS["h100"].sms
