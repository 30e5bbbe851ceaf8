"""The child process that holds libtpu: it compiles one program after another for its parent.

It is started with the environment that kernels.machines.compat.libtpu makes, and answers questions
by kernels.machines.child. What libtpu dumps of a program lies in a folder that this environment
names; the parent reads that, and empties it, before it asks again.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

from kernels.machines import child
from kernels.machines.exporting import compile_exported, memory_of


def prepare() -> Callable[[dict], dict]:
    """Load JAX, which takes about a second."""
    from jax import export  # noqa: F401
    from jax.experimental import topologies  # noqa: F401

    return answer


def answer(question: dict) -> dict:
    """Compile one program.

    Args:
        question: topology: its name. executable: whether the answer holds it. And the arguments of
            kernels.machines.exporting.compile_exported but the devices.

    Returns:
        memory, cost (XLA's analysis), hlo (optimised), executable (bytes or None) and seconds. Of a
        program that is refused: error, and seconds.
    """
    start = time.perf_counter()
    try:
        topology, executable = question.pop("topology"), question.pop("executable")
        compiled = compile_exported(devices=_devices(topology), **question)
        seconds = time.perf_counter() - start
        return {
            "memory": memory_of(compiled),
            "cost": {str(k): float(v) for k, v in (compiled.cost_analysis() or {}).items()},
            "hlo": compiled.as_text(),
            "executable": _executable(compiled) if executable else None,
            "seconds": seconds,
        }
    except Exception as error:
        return {"error": f"{error}", "seconds": time.perf_counter() - start}


@functools.cache
def _devices(topology: str) -> Any:
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices


def _executable(compiled: Any) -> bytes | None:
    """The serialised executable; None where this JAX cannot serialise it."""
    try:
        from jax.experimental import serialize_executable

        return bytes(serialize_executable.serialize(compiled)[0])
    except Exception:
        return None


if __name__ == "__main__":
    child.serve(prepare)
