"""JAX's simulation of a GPU's block, for kernels of Mosaic GPU, with three gaps filled.

It multiplies operands that lie in shared memory as they are: a transposed one, and one that is in
registers, are taught here. A barrier where too few arrive is waited for without end: here a wait
has a limit. And what it raises is told without its own frames.

Private: `jax._src.pallas.mosaic_gpu.interpret`, and `TransposeTransform` of `jax._src.state`. Seen
in JAX 0.10.2 and 0.12.0.1, which knows transposed operands itself.
"""

import contextlib
import functools
import inspect
import itertools
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from kernels.machines.compat import jax_interpreter

_patience = 60.0  # seconds that a thread waits at a barrier before it gives up


def parameters(**options: Any) -> Any:
    """InterpretGPUParams(**options), what plgpu.kernel takes as interpret=, that reports races."""
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    _teach()
    return jax_interpreter.going_on(InterpretGPUParams, options)


@contextlib.contextmanager
def machine(params: Any, patience: float) -> Iterator[list[str]]:
    """Within it every kernel of Mosaic GPU that is traced is simulated, as `parameters` says; a
    thread waits at a barrier for `patience` seconds at most. The list gets the races."""
    global _patience
    from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call as interpreter
    from jax._src.pallas.mosaic_gpu.interpret.params import force_gpu_interpret_mode

    before, _patience = _patience, patience
    seen: list[str] = []
    try:
        with (
            force_gpu_interpret_mode(params),
            jax_interpreter.silent() as reports,
            mock.patch.object(logging.getLogger("jax._src.callback"), "disabled", True),
            jax_interpreter.compiled_once(),
        ):
            yield seen
            seen += _races(reports())
            if not seen and getattr(interpreter.get_races(), "races_found", False):
                seen.append("two threads use the same memory, one of them to write")
    finally:
        _patience = before
        # It keeps the simulated machine after an exception, and would then hang.
        interpreter.reset_gpu_interpret_mode_state()


def _races(report: str) -> list[str]:
    """One line for each race: what is touched, and in which lines of code."""
    races = []
    verbs: Sequence[str]
    lines: Sequence[str]
    for one in report.split(jax_interpreter.REPORT)[1:]:
        verbs = re.findall(r"\b(read|write) of", one)
        lines = re.findall(r"/([^/\s]+\.py:\d+)", one)
        if len(verbs) == len(lines) == 2:  # which of the two is told first is luck
            verbs, lines = zip(*sorted(zip(verbs, lines, strict=True)), strict=True)
        what = " and ".join(f"a {verb}" for verb in verbs[:2]) or "two accesses"
        where = f" ({', '.join(dict.fromkeys(lines))})" if lines else ""
        # A notebook's cell is a file named by a number.
        where = re.sub(r"\b\d+\.py:(\d+), \d+\.py:(\d+)", r"the cell, lines \1 and \2", where)
        where = re.sub(r"\b\d+\.py:", "the cell, line ", where)
        races.append(f"{what} of the same memory, unordered{where}")
    return list(dict.fromkeys(races))


class _Impatient(threading.Condition):
    """A condition that is not waited for without end."""

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(_patience if timeout is None else timeout):
            raise TimeoutError(
                f"a thread waited {_patience:g} s at a barrier: fewer arrive than it counts"
            )
        return True


@functools.cache
def _teach() -> None:
    """Fill the gaps; once is enough."""
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, shared_memory

    barrier: Any = shared_memory.Barrier
    initialise = barrier.__init__

    @functools.wraps(initialise)
    def with_patience(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        self.cv = _Impatient()

    barrier.__init__ = with_patience
    if "device_id" in inspect.signature(gpu_callbacks.wgmma).parameters:
        gpu_callbacks.wgmma = _wgmma
    else:  # since 0.12
        gpu_callbacks.wgmma = functools.partial(_wgmma_of_registers, gpu_callbacks.wgmma)


def _wgmma_of_registers(known: Any, **called: Any) -> Any:
    """acc += a b as `known` does it, where a may be an array; called: what JAX hands over."""
    import jax
    import numpy as np
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks

    if np.issubdtype(called["a_allocation_key_as_array"].dtype, np.integer):
        return known(**called)
    memory: Any = gpu_callbacks._get_shared_memory()
    classes: Any = gpu_callbacks.memory  # since 0.12
    thread = called["thread"]
    logging = classes.GPULoggingInfo(called["mesh_location"], thread, called.get("source_info"))

    def place(name: str) -> tuple[Any, Any]:
        key = gpu_callbacks.HostAllocationKey.from_array(called[f"{name}_allocation_key_as_array"])
        kept = gpu_callbacks._remove_noop_transforms(called[f"{name}_transforms"])
        return key, memory.access(key, jax.tree.map(int, kept))

    def content(name: str) -> Any:
        return memory.get_buffer_content(*place(name), thread, logging_info=logging)[0]

    acc = content("acc")
    product = np.asarray(called["a_allocation_key_as_array"]).astype(acc.dtype)
    product = product @ content("b").astype(acc.dtype)
    memory.store_buffer_content(*place("acc"), acc + product, thread, logging_info=logging)
    return called["token"]


def _wgmma(**called: Any) -> Any:
    """acc += a b, as the simulation's own does it up to 0.11, where a may be an array and both
    transposed; called: what JAX hands over."""
    import jax
    import numpy as np
    from jax._src.pallas.mosaic.interpret import utils
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
    from jax._src.state.types import TransposeTransform

    memory: Any = gpu_callbacks._get_shared_memory()
    classes: Any = utils
    device, number = int(called["device_id"]), int(called["thread_id"])
    thread = memory.get_global_thread_id(device, number)
    logging = classes.GPULoggingInfo(
        device_id=device,
        grid_point_coords=tuple(int(x) for x in called["grid_point_coords"]),
        thread_id=number,
        source_info=called.get("source_info"),
    )

    def place(name: str) -> tuple[Any, Any, list[Any]]:
        """The buffer, the part of it, and how it is turned afterwards."""
        transforms = called[f"{name}_transforms"]
        kept = [t for t in transforms if not isinstance(t, gpu_callbacks.NOOP_TRANSFORMS)]
        cut = list(itertools.takewhile(lambda t: not isinstance(t, TransposeTransform), kept))
        turned = kept[len(cut) :]
        if not all(isinstance(t, TransposeTransform) for t in turned):
            raise NotImplementedError("a part of a transposed ref: cut it first, then transpose it")
        key = gpu_callbacks.HostAllocationKey.from_array(called[f"{name}_allocation_key_as_array"])
        return key, utils.to_range(jax.tree.map(int, tuple(cut))), turned

    def content(name: str) -> Any:
        key = called[f"{name}_allocation_key_as_array"]
        if not np.issubdtype(key.dtype, np.integer):
            return np.asarray(key)  # an array, in registers
        *part, turned = place(name)
        whole, _, _ = memory.get_buffer_content(*part, thread, logging_info=logging)
        return functools.reduce(lambda x, t: np.transpose(x, t.permutation), turned, whole)

    dtype = called["acc_dtype"]
    total = content("acc") + content("a").astype(dtype) @ content("b").astype(dtype)
    memory.store_buffer_content(*place("acc")[:2], total, thread, logging_info=logging)
    return called["token"]
