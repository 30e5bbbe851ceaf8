"""The child process that pretends to have several TPU devices, for kernels.tpu.simulate.

It keeps the last program, so that JAX traces and compiles it once for all orders of arrival.
"""

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

from kernels.machines import child
from kernels.machines.base import SimulationError


def prepare() -> Callable[[dict[str, Any]], Any]:
    """Load JAX, and start its devices."""
    import jax

    jax.devices()
    return answer


def answer(question: dict[str, Any]) -> Any:
    """Simulate one program on a mesh: a Simulation, or the exception that it raised."""
    import jax

    from kernels.machines.tpu.simulator import simulate_here

    sizes = question["mesh"]
    kinds = (jax.sharding.AxisType.Auto,) * len(sizes)
    devices = jax.devices()[: math.prod(sizes.values())]
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), kinds, devices=devices)
    try:
        with jax.set_mesh(mesh):
            function = _program(question["program"])
            watched = question["watched"]
            return simulate_here(function, question["args"], {}, question["seed"], 1, watched, True)
    except (SimulationError, ValueError) as error:
        return type(error)(str(error))
    except Exception as error:
        return SimulationError(f"{type(error).__name__}: {error}")


@functools.lru_cache(maxsize=8)
def _program(pickled: bytes) -> Callable[..., Any]:
    """A function of arrays, with its options."""
    import jax

    function, options = pickle.loads(pickled)
    # Not of `interpret=`, which the caller's context decides.
    return jax.jit(functools.partial(function, **options))


if __name__ == "__main__":
    child.serve(prepare)
