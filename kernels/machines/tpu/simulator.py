"""Run a Pallas kernel in JAX's simulation of a TPU: memories, DMA, semaphores, two cores.

Four things differ from `interpret=True`. Memory starts as NaN; a read outside a buffer raises;
a DMA delivers only when it is waited for; and programs along "parallel" grid dimensions run in
shuffled order on two cores, watched by a race detector. A v5e or v6e has one core a chip, but
"parallel" promises that two would do, and a v4 or v5p joins two into one device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines.base import Simulation, SimulationError, takes_interpret
from kernels.machines.compat import jax_interpreter

CORES = 2


def simulate(
    function: Callable[..., Any],
    *args: Any,
    seed: int = 0,
    cores: int = CORES,
    watched: bool = True,
    **options: Any,
) -> Simulation:
    """Run `function(*args, **options)` once on the simulated TPU.

    Args:
        function: the kernels in it are simulated, whether it takes `interpret=` or not.
        args: arrays.
        seed: of the order in which programs along parallel dimensions run.
        cores: that share the programs along parallel dimensions.
        watched: whether races are looked for.
        options: keyword arguments of the function.

    Returns:
        Its result, the races found, and which core ran which program when.

    Raises:
        RuntimeError: a SimulationError, when the machine refuses: a read out of bounds, a semaphore
            left raised.
    """
    import jax
    from jax.experimental.pallas import tpu as pltpu

    visits: list[tuple[tuple[int, ...], int]] = []

    def record(token: Any, point: Any, core: Any) -> Any:
        visits.append((tuple(int(i) for i in point), int(core)))
        return token

    params = jax_interpreter.parameters(
        detect_races=watched,
        out_of_bounds_reads="raise",
        uninitialized_memory="nan",
        num_cores_or_threads=cores,
        random_seed=seed,
        grid_point_recorder=record,
    )
    if takes_interpret(function):
        options["interpret"] = params
    try:
        with (
            jax_interpreter.forced(params),
            jax_interpreter.races() as races,
            jax_interpreter.quiet(),
            jax_interpreter.compiled_once(),
        ):
            result = function(*args, **options)
            result = jax.tree.map(np.asarray, jax.block_until_ready(result))
    except jax.errors.JaxRuntimeError as error:
        raise SimulationError(jax_interpreter.last_words(error)) from error
    finally:
        # JAX keeps the simulated machine's state after an exception, and would then hang.
        pltpu.reset_tpu_interpret_mode_state()
    order = np.array([point for point, _ in visits])
    return Simulation(result, tuple(races), order, np.array([c for _, c in visits]))
