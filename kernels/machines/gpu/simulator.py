"""Where a kernel of Mosaic GPU runs: on a GPU, or in JAX's simulation of a block.

That has shared memory, barriers and copies. The blocks of a grid run one after another, the
warpgroups of a block at the same time. Memory starts as NaN, a read outside an array raises, a wait
has a limit, and a race detector watches.
"""

from collections.abc import Callable
from typing import Any

from kernels.machines import pallas
from kernels.machines.base import Simulation, SimulationError, takes_interpret
from kernels.machines.compat import jax_interpreter, jax_mosaic
from kernels.machines.gpu.chips import CHIPS

PATIENCE = 60.0  # seconds that a thread waits at a barrier before the machine gives up


def simulate(
    function: Callable[..., Any],
    *args: Any,
    races: bool = True,
    patience: float = PATIENCE,
    **options: Any,
) -> Simulation:
    """Run `function(*args, **options)` once on the simulated GPU.

    Args:
        function: its kernels of Mosaic GPU are simulated, whether it takes `interpret=` or not.
        args: its arrays.
        races: whether to watch for them.
        patience: seconds that a thread waits at a barrier before the machine gives up.
        options: its keyword arguments.

    Raises:
        RuntimeError: a SimulationError, where the machine refuses, or waits for what never comes.
    """
    import jax
    import numpy as np

    params = jax_mosaic.parameters(
        detect_races=races, out_of_bounds_reads="raise", uninitialized_memory="nan"
    )
    if takes_interpret(function):
        options["interpret"] = params
    try:
        with jax_mosaic.machine(params, patience) as seen:
            result = jax.block_until_ready(function(*args, **options))
            result = jax.tree.map(np.asarray, result)
    except jax.errors.JaxRuntimeError as error:
        raise SimulationError(jax_interpreter.last_words(error)) from error
    return Simulation(result, tuple(seen))


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
    return jax_mosaic.parameters()


def multiprocessors() -> int:
    """SMs of the GPU that JAX traces for: an H100's where there is none."""
    import jax

    abstract = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    if abstract is not None and abstract.num_cores:
        return int(abstract.num_cores)
    device = jax.devices()[0]
    return int(device.core_count) if device.platform == "gpu" else CHIPS["h100"].sms
