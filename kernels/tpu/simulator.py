"""Run a Pallas kernel in JAX's simulation of a TPU: memories, DMA, semaphores, two cores.

Four things differ from `interpret=True`. Memory starts as NaN; a read outside a buffer raises;
a DMA delivers only when it is waited for; and programs along "parallel" grid dimensions run in
shuffled order on two cores, watched by a race detector. A v5e or v6e has one core a chip, but
"parallel" promises that two would do, and a v4 or v5p joins two into one device.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CORES = 2


class SimulationError(RuntimeError):
    """The simulated machine refused the kernel; the message is the machine's own last words."""


@dataclass(frozen=True)
class Simulation:
    """result: what the kernel returned, as NumPy arrays. races: each race found, in a line.

    order: int [programs, grid rank], the program ids in the order in which they ran;
    core: int [programs], which core ran each.
    """

    result: Any
    races: tuple[str, ...]
    order: np.ndarray = field(repr=False)
    core: np.ndarray = field(repr=False)


def simulate(
    function: Callable[..., Any], *args: Any, seed: int = 0, cores: int = CORES, **options: Any
) -> Simulation:
    """Run `function(*args, interpret=…, **options)` once on the simulated TPU.

    function: takes `interpret=` and hands it to its pallas_call. seed: of the order in which
    programs along parallel dimensions run. Raises SimulationError when the machine refuses.
    """
    import jax
    from jax.experimental.pallas import tpu as pltpu

    visits: list[tuple[tuple[int, ...], int]] = []

    def record(token: Any, point: Any, core: Any) -> Any:
        visits.append((tuple(int(i) for i in point), int(core)))
        return token

    params = pltpu.InterpretParams(
        detect_races=True,
        out_of_bounds_reads="raise",
        uninitialized_memory="nan",
        num_cores_or_threads=cores,
        random_seed=seed,
        grid_point_recorder=record,
    )
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), _quiet(), _compiled_once():
            result = function(*args, interpret=params, **options)
            result = jax.tree.map(np.asarray, jax.block_until_ready(result))
    except jax.errors.JaxRuntimeError as error:
        raise SimulationError(_last_words(error)) from error
    finally:
        # JAX keeps the simulated machine's state after an exception, and would then hang.
        pltpu.reset_tpu_interpret_mode_state()
    order = np.array([point for point, _ in visits])
    return Simulation(result, _races(printed.getvalue()), order, np.array([c for _, c in visits]))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep JAX from logging the traceback of a callback whose error we report ourselves."""
    logger = logging.getLogger("jax._src.callback")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


@contextlib.contextmanager
def _compiled_once() -> Iterator[None]:
    """Let the second core run what was compiled for the first: JAX compiles it for each again.

    For small kernels compiling costs more than running. A JAX that is built otherwise is left as
    it is.
    """
    try:
        from jax._src.pallas.mosaic.interpret import thread_map

        original = thread_map._run_jaxpr
    except (ImportError, AttributeError):
        yield
        return
    import jax

    lock = threading.Lock()
    compiled: dict[int, tuple[Any, Any]] = {}  # of a jaxpr: it, lest its id be given again

    def run(jaxpr: Any, consts: Any, *args: Any) -> None:
        with lock:
            if id(jaxpr) not in compiled:
                call = jax.jit(functools.partial(jax.core.eval_jaxpr, jaxpr))
                compiled[id(jaxpr)] = jaxpr, call.lower(consts, *args).compile()
            program = compiled[id(jaxpr)][1]
        program(consts, *args)

    thread_map._run_jaxpr = run
    try:
        yield
    finally:
        thread_map._run_jaxpr = original


def _last_words(error: Exception) -> str:
    """The line of a nested traceback that says what went wrong, without buffer numbers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    known = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return re.sub(r"\(\d+ \d+ (\w+) \d+\)", r"\1", (known or lines)[-1])


_ACCESS = re.compile(r"(read|write) of \('(\w+)', .*?\)\[(.*)\] from (\d+), (\d+), (.*)")
_SLICE = re.compile(r"slice\((\d+), (\d+), 1\)")


def _races(text: str) -> tuple[str, ...]:
    """One line for each race that JAX printed: who touches what, and in which line of code."""
    races = []
    for report in text.split("RACE DETECTED")[1:]:
        accesses = [_access(line) for line in report.splitlines() if " of (" in line]
        races.append(", unordered with ".join(sorted(accesses)))
    return tuple(dict.fromkeys(races))


def _access(line: str) -> str:
    found = _ACCESS.search(line)
    if not found:
        return line.strip()
    verb, memory, where, device, core, source = found.groups()
    # JAX numbers the DMA engines from 100 on, in the place of the device.
    who = "a DMA" if int(device) >= 100 else f"core {core}"
    part = ", ".join(f"{a}:{b}" for a, b in _SLICE.findall(where)) or "..."
    line_number = re.search(r"/([^/]+\.py:\d+)", source)
    place = f" ({line_number[1]})" if line_number else ""
    return f"a {verb} of {memory}[{part}] by {who}{place}"
