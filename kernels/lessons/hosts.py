"""One program on several hosts: each starts it, and all of them compute one gradient together.

On a slice of a TPU without arguments; elsewhere with those of jax.distributed.initialize:

    python -m kernels.lessons.hosts COORDINATOR:PORT PROCESSES PROCESS
"""

import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def gradient(w, x, y):
    """Of the mean square error; the sum over all examples is the only exchange."""
    return jax.grad(lambda w: ((x @ w - y) ** 2).mean())(w)


def main(coordinator: str = "", processes: str = "0", process: str = "0") -> None:
    """Join the others, compute a gradient of examples that are spread over all devices, tell it."""
    address: Any = (coordinator, int(processes), int(process)) if coordinator else ()
    # To this computer alone where all are on it; by default its coordinator listens to everybody.
    alone = coordinator.startswith("localhost:")
    bind: Any = {"coordinator_bind_address": coordinator} if alone else {}
    # Before JAX looks for devices.
    jax.distributed.initialize(*address, **bind)
    mesh = Mesh(np.array(jax.devices()), ("data",))  # those of all hosts

    def spread(whole, spec):  # a host makes only what its own devices hold
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])

    count = 4 * jax.device_count()
    x = np.arange(8.0 * count, dtype=np.float32).reshape(count, 8) % 7
    w, y = np.ones(8, np.float32), np.arange(count, dtype=np.float32)
    whole, cut = NamedSharding(mesh, P()), P("data")
    step = jax.jit(gradient, out_shardings=whole)
    result = step(spread(w, P()), spread(x, cut), spread(y, cut))

    exact = 2 * x.T @ (x @ w - y) / count
    print(
        f"host {jax.process_index()} of {jax.process_count()}: "
        f"{jax.local_device_count()} of {jax.device_count()} devices, "
        f"off by at most {abs(np.asarray(result) - exact).max():.1e} of {abs(exact).max():.1f}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
