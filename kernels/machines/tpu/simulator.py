"""Run a Pallas kernel in JAX's simulation of a TPU: memories, DMA, semaphores, two cores.

Four things differ from `interpret=True`. Memory starts as NaN; a read outside a buffer raises; a
DMA delivers only when it is waited for, and has to be; and programs along "parallel" dimensions run
in shuffled order on two cores, watched by a race detector. A v5e or v6e has one core a chip, but
"parallel" promises that two would do, and a v4 or v5p joins two into one device.

With a mesh there are several devices of one core each, in a child process that pretends to have so
many: kernels.machines.compat.jax_devices says in which order they go on.
"""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines.base import Simulation, SimulationError, takes_interpret
from kernels.machines.checks import fail, positive_int
from kernels.machines.child import Child, ChildError, ChildLate, Spares, python
from kernels.machines.compat import jax_devices, jax_interpreter, jax_pickles, jax_products

CORES = 2
CLOCKS = 512  # of the race detector: cores, and copies in turn; on one clock none race
DEVICES = 16  # that a child pretends to have, twice as many as work: each takes a thread of XLA
TIMEOUT = 120.0  # seconds for one simulation of several devices
WORKER = str(Path(__file__).with_name("mesh_worker.py"))

_spares = Spares()


def simulate(
    function: Callable[..., Any],
    *args: Any,
    seed: int | None = 0,
    cores: int = CORES,
    watched: bool = True,
    mesh: Mapping[str, int] | None = None,
    timeout: float = TIMEOUT,
    **options: Any,
) -> Simulation:
    """Run `function(*args, **options)` once on the simulated TPU, or on a mesh of them.

    Args:
        function: the kernels in it are simulated, whether it takes `interpret=` or not.
        args: arrays.
        seed: of the order in which programs along parallel dimensions run; on a mesh, of the order
            in which devices and the copies between them go on, and of how fast each is; None lets
            them go in step, their copies at once, and forgives what a device leaves behind.
        cores: that share the programs along parallel dimensions; one on each device of a mesh.
        watched: whether races are looked for.
        mesh: axis name → size, such as {"x": 4}. The function calls jax.shard_map without mesh=,
            as for kernels.tpu.compile; it is pickled, and runs in a child process.
        timeout: seconds, on a mesh.
        options: keyword arguments of the function.

    Returns:
        Its result, the races found, and which core ran which program when.

    Raises:
        RuntimeError: a SimulationError, when the machine refuses: a read out of bounds, a copy that
            nobody waited for, a semaphore left raised; on a mesh, a timeout, or a deadlock, which
            says which device waits for what.
        ValueError: for a mesh of no devices.
    """
    if mesh is None:
        return simulate_here(function, args, options, seed, cores, watched)
    if not mesh:
        fail("mesh", dict(mesh), 'axis name → size, such as {"x": 4}')
    for name, size in mesh.items():
        positive_int(f"mesh[{name!r}]", size)
    devices = max(DEVICES, 2 << (math.prod(mesh.values()) - 1).bit_length())
    flag = f"--xla_force_host_platform_device_count={devices}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    child = _spares.take(devices)
    if child is None:
        child = Child(python(WORKER), environment=environment)
    question = {
        "program": jax_pickles.dumps((function, options)),
        "sources": jax_pickles.sources(),
        "args": args,
        "mesh": dict(mesh),
        "seed": seed,
        "watched": watched,
        "products": jax_products.multiplier() or jax_products.TPU,
    }
    try:
        answer = child.ask(question, timeout)
    except ChildLate as error:
        words = f"{math.prod(mesh.values())} devices had not finished after {timeout:g} s"
        raise SimulationError(
            f"{words}: a wait that is no semaphore's, or too much work"
        ) from error
    except ChildError as error:
        child.close()
        raise SimulationError(f"{error}") from error
    _spares.keep(devices, child)
    if isinstance(answer, Exception):
        raise answer
    return answer


def simulate_here(
    function: Callable[..., Any],
    args: Any,
    options: dict[str, Any],
    seed: int | None,
    cores: int,
    watched: bool,
    turns: bool = False,
) -> Simulation:
    """As simulate, in this process; with `turns`, on several devices, one at a time."""
    import jax
    from jax.experimental.pallas import tpu as pltpu

    params = jax_interpreter.parameters(
        detect_races=watched,
        out_of_bounds_reads="raise",
        uninitialized_memory="nan",
        num_cores_or_threads=cores,
        # The seed is no part of what is traced: one program runs in every order.
        random_seed=0,
        grid_point_recorder=None if turns else jax_interpreter.visit,
        vector_clock_size=CLOCKS,
    )
    if takes_interpret(function):
        options["interpret"] = params
    failed: list[Any] = []
    try:
        with (
            jax_interpreter.forced(params),
            jax_interpreter.races() as races,
            jax_interpreter.compiled_once(),
            jax_interpreter.shuffled(seed or 0) as visits,
            jax_devices.turns(seed) if turns else jax_devices.alone() as failed,
        ):
            result = function(*args, **options)
            result = jax.tree.map(np.asarray, jax.block_until_ready(result))
    except jax.errors.JaxRuntimeError as error:
        # Other devices end too; XLA tells of whichever it hears of first.
        words, cause = failed or (jax_interpreter.last_words(error), error)
        raise SimulationError(words) from cause or error
    finally:
        # JAX keeps the simulated machine's state after an exception, and would then hang.
        pltpu.reset_tpu_interpret_mode_state()
    order = np.array([point for point, _ in visits])
    return Simulation(result, tuple(races), order, np.array([c for _, c in visits]))
