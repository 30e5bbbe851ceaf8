"""What XLA's compiler for the CPU makes of a program, and should not. Seen in jaxlib 0.12.0.1."""

from typing import Any


def whole(dtype: Any) -> dict[str, Any]:
    """How a product of this dtype is asked for: with sums in float32, and of whole factors. Those
    of float32 XLA rounds to bfloat16 on a TPU unless the highest precision is asked for."""
    import jax

    exact = jax.lax.Precision.HIGHEST if dtype == "float32" else None
    return {"precision": exact, "preferred_element_type": "float32"}


def stored(*arrays: Any) -> tuple[Any, ...]:
    """The same arrays; on a CPU XLA stores them before it goes on, elsewhere nothing changes. XLA's
    CPU compiler of jaxlib 0.12.0.1 takes a product of transposed bfloat16 operands and the
    exponentials of its result into one fusion, whose results are off by up to 5 %."""
    import jax

    return jax.lax.platform_dependent(
        *arrays,
        cpu=lambda *held: tuple(jax.lax.optimization_barrier(held)),
        default=lambda *held: held,
    )
