"""Run a kernel of Mosaic GPU in JAX's simulation of a block: shared memory, barriers, copies.

The blocks of a grid run one after another, the warpgroups of a block at the same time. Memory
starts as NaN, a read outside an array raises, a wait has a limit, and a race detector watches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.machines.compat import jax_interpreter, jax_mosaic

PATIENCE = 60.0  # seconds that a thread waits at a barrier before the machine gives up


class SimulationError(RuntimeError):
    """The simulated GPU refused the kernel; the message is the machine's own last words."""


@dataclass(frozen=True)
class Simulation:
    """What a simulated GPU made of a call.

    Args:
        result: what the function returned, as NumPy arrays.
        races: each race found, in a line.
    """

    result: Any
    races: tuple[str, ...]


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

    Returns:
        The result, and the races.

    Raises:
        RuntimeError: a SimulationError, where the machine refuses, or waits for what never comes.
    """
    import jax
    import numpy as np

    params = jax_mosaic.parameters(
        detect_races=races, out_of_bounds_reads="raise", uninitialized_memory="nan"
    )
    if "interpret" in inspect.signature(function).parameters:
        options["interpret"] = params
    try:
        with jax_mosaic.machine(params, patience) as found:
            result = jax.block_until_ready(function(*args, **options))
            result = jax.tree.map(np.asarray, result)
    except jax.errors.JaxRuntimeError as error:
        raise SimulationError(jax_interpreter.last_words(error)) from error
    return Simulation(result, tuple(found))
