"""JAX's simulation of a TPU: what it says of races, and some of its habits put right.

Private: `jax._src.pallas.mosaic.interpret`, `dispatch` and the loggers of `jax._src`. Seen
in JAX 0.10.2 and 0.12.0.1.
"""

import contextlib
import functools
import io
import itertools
import logging
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from kernels.machines.compat import changed, jax_views
from kernels.machines.compat.jax_products import TPU, multiplying

REPORT = "RACE DETECTED"
KEPT = 8  # programs of cores
_compiled: dict[Any, Any] = {}  # the jaxpr of a core → its program
_lock = threading.Lock()
_running: dict[str, Any] = {}  # of the simulation that runs: its seed, and the programs begun
_ACCESS = re.compile(r"(read|write) of \('(\w+)', .*?\)\[(.*)\] from \(?(\d+), (\d+)\)?,? (.*)")
_SLICE = re.compile(r"slice\((\d+), (\d+), 1\)")


def parameters(**options: Any) -> Any:
    """pltpu.InterpretParams(**options) that goes on after a race, and reports every one."""
    from jax.experimental.pallas import tpu as pltpu

    return going_on(pltpu.InterpretParams, options)


def going_on(kind: Any, options: dict[str, Any]) -> Any:
    """kind(**options) that goes on after a race, and reports every one. Up to 0.11 a race was
    printed; 0.12 raises at the first unless `on_race="warn"`."""
    import dataclasses

    known = any(option.name == "on_race" for option in dataclasses.fields(kind))
    return kind(**(options | ({"on_race": "warn"} if known else {})))


@contextlib.contextmanager
def forced(params: Any) -> Iterator[None]:
    """Within it every pallas_call and core_map that is traced is interpreted so, whatever it says.
    pltpu.force_tpu_interpret_mode, which takes `True` as well: JAX's plain interpreter. Its setting
    is part of the key of jax.jit, so nothing traced within is met outside."""
    from jax.experimental.pallas import tpu as pltpu

    with pltpu.force_tpu_interpret_mode(params), as_a_chip(), jax_views.taught(), _put_right():
        yield


@contextlib.contextmanager
def _put_right() -> Iterator[None]:
    """Let callbacks have NumPy's arrays, of which the simulation makes numbers: JAX puts each on a
    device, for half the time of a simulation, and logs what they raise, which we report. What
    starts below zero is out of bounds, where JAX asserts. Copies take the clocks of the race
    detector in turn, where JAX draws, and misses races of two on one. Patches `io_callback_impl` of
    jax._src.callback, `SharedMemory.get_random_virtual_device_id` and
    `utils.is_range_out_of_bounds_for_shape`."""
    import jax
    from jax._src import callback as callbacks
    from jax._src.pallas.mosaic.interpret import shared_memory, utils

    copies, beyond = itertools.count(), utils.is_range_out_of_bounds_for_shape

    def called(*args: Any, callback: Any, **_: Any) -> Any:
        results = callback(*map(np.array, args))  # copies: XLA writes over its own
        return [*map(np.asarray, jax.tree.leaves(results))]

    def clock(memory: Any) -> int:
        return memory.num_cores + next(copies) % (memory.vector_clock_size - memory.num_cores)

    def out_of_bounds(bounds: Any, shape: Any) -> bool:
        starts = [b if isinstance(b, int) else b.start for b in bounds]
        return min(starts, default=0) < 0 or beyond(bounds, shape)

    with (
        mock.patch.object(callbacks, "io_callback_impl", called),
        mock.patch.object(shared_memory.SharedMemory, "get_random_virtual_device_id", clock),
        mock.patch.object(utils, beyond.__name__, out_of_bounds),
    ):
        yield


@contextlib.contextmanager
def as_a_chip(name: str = "v5e") -> Iterator[None]:
    """Within it a kernel that asks what the chip is like, as emit_pipeline does, is told of this
    one, and products are a TPU's; of several the outermost holds.

    Private: `registry` of jax._src.pallas.mosaic.tpu_info, whose answer JAX keeps.
    """
    from jax._src.pallas.mosaic import tpu_info

    version = tpu_info.ChipVersion("7x" if name == "v7x" else name)
    chip = lambda: tpu_info.get_tpu_info_for_chip(version, 1)
    registry = {"cpu": chip} | tpu_info.registry
    with mock.patch.dict(tpu_info.registry, registry), multiplying(TPU):
        tpu_info.get_tpu_info.cache_clear()
        try:
            yield
        finally:
            tpu_info.get_tpu_info.cache_clear()


@contextlib.contextmanager
def races() -> Iterator[list[str]]:
    """Within it nothing of a race is printed or logged; after it the list holds each, in a line."""
    seen: list[str] = []
    with silent() as reports:
        try:
            yield seen
        finally:
            seen.extend(lines(reports()))


@contextlib.contextmanager
def silent() -> Iterator[Callable[[], str]]:
    """Within it nothing of a race is printed or logged; what it gives says what would have been.
    JAX up to 0.11 prints a report; 0.12 logs a read's to race_detection_state's logger, and a
    write's to the root logger."""
    reports: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if REPORT in text:
            reports.append(text)
        return REPORT not in text

    root = logging.getLogger()
    of_jax = logging.getLogger("jax._src.pallas.mosaic.interpret.race_detection_state")
    quiet_handler = logging.NullHandler()  # without any, logging.warning would set up one for good
    printed = io.StringIO()
    for logger in (root, of_jax):
        logger.addFilter(keep)
    root.addHandler(quiet_handler)
    try:
        with contextlib.redirect_stdout(printed):
            yield lambda: "".join([printed.getvalue(), *reports])
    finally:
        root.removeHandler(quiet_handler)
        for logger in (root, of_jax):
            logger.removeFilter(keep)


def lines(text: str) -> list[str]:
    """One line for each race that JAX reported: who touches what, and in which line of code."""
    reported = []
    for report in text.split(REPORT)[1:]:
        accesses = [_access(line) for line in report.splitlines() if " of (" in line]
        reported.append(", unordered with ".join(sorted(accesses)))
    return list(dict.fromkeys(reported))


def _access(line: str) -> str:
    access = _ACCESS.search(line)
    if not access:
        changed("jax", f"a race is reported in other words: {line.strip()!r}")
        return line.strip()
    verb, memory, where, device, core, source = access.groups()
    # JAX numbers the DMA engines from 100 on, in the place of the device.
    who = "a DMA" if int(device) >= 100 else f"core {core}"
    part = ", ".join(f"{a}:{b}" for a, b in _SLICE.findall(where)) or "..."
    line_number = re.search(r"/([^/]+\.py:\d+)", source)
    place = f" ({line_number[1]})" if line_number else ""
    return f"a {verb} of {memory}[{part}] by {who}{place}"


def last_words(error: BaseException) -> str:
    """The line of a callback's traceback that says what went wrong, without buffer numbers."""
    import jax

    if not isinstance(error, jax.errors.JaxRuntimeError):
        return ""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    known = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return re.sub(r"\(\d+ \d+ (\w+) \d+\)", r"\1", (known or lines)[-1])


def is_its_own(error: BaseException | None) -> bool:
    """Whether an exception is a gap of JAX's interpreters, and not a fault of the kernel. What they
    refuse of a kernel, such as a read outside a buffer, they say in other exceptions."""
    gaps = ("AttributeError", "NotImplementedError", "AssertionError", "KeyError")
    inside = ("mosaic/interpret/", "state/discharge.py", "hlo_interpreter.py", "jax_views.py")
    if error is None:
        return False
    if "NotImplementedError: MLIR translation rule" in f"{type(error).__name__}: {error}":
        return True  # of a primitive that has none for this CPU
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    own = [f for f in frames if "/jax/_src/" in f]
    if type(error).__name__ in gaps and frames and own and frames[-1] == own[-1]:
        return any(part in f for part in (*inside, "pallas/primitives.py") for f in own[-3:])
    files = re.findall(r'File "([^"]+)"', str(error))
    kind = last_words(error).split(":")[0]
    return bool(files) and kind in gaps and any(part in files[-1] for part in inside)


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """Let the second core, and the next order, run what was compiled for the first: JAX compiles it
    for each again. For small kernels compiling costs more than running. Patches
    `thread_map._run_jaxpr`."""
    import jax
    from jax._src import dispatch
    from jax._src.pallas.mosaic.interpret import thread_map

    def run(jaxpr: Any, consts: Any, *args: Any) -> None:
        with _lock:
            if jaxpr not in _compiled:
                call = jax.jit(functools.partial(jax.core.eval_jaxpr, jaxpr))
                _compiled[jaxpr] = call.lower(consts, *args).compile()
            program = _compiled[jaxpr]
            if len(_compiled) > KEPT:
                del _compiled[next(iter(_compiled))]
        program(consts, *args)

    with mock.patch.object(thread_map, "_run_jaxpr", run):
        try:
            yield
        except Exception:  # what orders one program's effects after another's is an error by now
            dispatch.runtime_tokens.clear()
            raise


@contextlib.contextmanager
def shuffled(seed: int) -> Iterator[list[tuple[tuple[int, ...], int]]]:
    """Within it a seed draws the order of parallel programs when they run, where JAX draws it when
    it traces them: one program serves all seeds. The list gets who ran, by `visit`, and on which
    core. Patches `interpret_pallas_call._get_randomized_grid_coordinates`."""
    import jax
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    name = "_get_randomized_grid_coordinates"
    traced = getattr(interpret_pallas_call, name)

    def drawn(grid: Any, semantics: Any, _: Any) -> Any:
        shapes = jax.eval_shape(lambda: traced(grid, semantics, 0))  # empty where in order
        if not any(shape.size for shape in shapes):
            return traced(grid, semantics, 0)
        return jax.experimental.io_callback(lambda: _orders(shapes), shapes)

    _running.update(seed=seed % 2**32, begun=[])
    with mock.patch.object(interpret_pallas_call, name, drawn):
        yield _running["begun"]


def _orders(shapes: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Of each parallel dimension's programs, by the seed of now. An odd seed turns round what the
    even one before it draws: of two programs, one of both orders has either first."""
    pair, turned = divmod(_running["seed"], 2)
    rng = np.random.default_rng(pair)
    drawn = [rng.permutation(shape.size).astype(shape.dtype) for shape in shapes]
    return tuple(order[::-1] if turned else order for order in drawn)


def visit(token: Any, point: Any, core: Any) -> Any:
    """JAX's grid_point_recorder, the same for all runs: it is part of the key of jax.jit."""
    _running["begun"].append((tuple(int(i) for i in point), int(core)))
    return token
