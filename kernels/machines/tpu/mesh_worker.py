"""The child process that pretends to have several TPU devices, for kernels.tpu.simulate.

It keeps the last program, so that JAX traces and compiles it once for all orders of arrival.
"""

import functools
import math
import pickle
import runpy
from collections.abc import Callable
from typing import Any

from kernels.machines import child
from kernels.machines.base import SimulationError
from kernels.machines.checks import located
from kernels.machines.compat import jax_interpreter, jax_products


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
            [*map(_run, question["sources"])]
            function = _program(question["program"])
            watched = question["watched"]
            args, seed = question["args"], question["seed"]
            with jax_products.multiplying(question["products"]):
                return simulate_here(function, args, {}, seed, 1, watched, True)
    except ValueError as error:
        return ValueError(located(error))
    except Exception as error:
        own = isinstance(error, SimulationError)
        answer = SimulationError(str(error) if own else located(error))
        answer.gap = jax_interpreter.is_its_own(error.__cause__ if own else error)
        return answer


_run = functools.cache(runpy.run_path)


@functools.lru_cache(maxsize=8)
def _program(pickled: bytes) -> Callable[..., Any]:
    """A function of arrays, with its options."""
    import jax

    function, options = pickle.loads(pickled)
    # Not of `interpret=`, which the caller's context decides.
    return jax.jit(functools.partial(function, **options))


if __name__ == "__main__":
    child.serve(prepare)
