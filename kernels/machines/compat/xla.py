"""XLA's own options for the CPU, which come and go: an unknown one ends the process.

Seen in jaxlib 0.10.2 and 0.12.0.1; `xla_cpu_use_fusion_emitters` is gone in the latter.
"""

from __future__ import annotations

from typing import Any

from kernels.machines.compat import at_least


def stored(*arrays: Any) -> tuple[Any, ...]:
    """The same arrays; on a CPU XLA stores them before it goes on, elsewhere nothing changes.

    XLA's CPU compiler of jaxlib 0.12.0.1 takes a product of transposed bfloat16 operands and the
    exponentials of its result into one fusion, whose results are off by up to 5 %.
    """
    import jax

    return jax.lax.platform_dependent(
        *arrays,
        cpu=lambda *held: tuple(jax.lax.optimization_barrier(held)),
        default=lambda *held: held,
    )


def optimised() -> dict[str, int]:
    """The options that make code quick to run, as XLA sets them, for jax.jit's compiler_options."""
    return {name: max(values) for name, values in optimisations().items()}


def optimisations() -> dict[str, tuple[int, int]]:
    """XLA's options that make code quick to run: without the optimisation, and as XLA sets it."""
    known = {"xla_backend_optimization_level": (0, 3)}
    if not at_least("jaxlib", 0, 11):
        known["xla_cpu_use_fusion_emitters"] = (False, True)
    return known
