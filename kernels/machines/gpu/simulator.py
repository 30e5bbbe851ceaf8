"""Run a kernel of Mosaic GPU in JAX's simulation of a block: shared memory, barriers, copies.

The blocks of a grid run one after another, the warpgroups of a block at the same time. Memory
starts as NaN, a read outside an array raises, a wait has a limit, and a race detector watches.
"""

from collections.abc import Callable
from typing import Any

from kernels.machines.base import Simulation, SimulationError, takes_interpret
from kernels.machines.compat import jax_interpreter, jax_mosaic

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
