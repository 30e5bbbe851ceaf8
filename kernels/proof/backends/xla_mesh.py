"""XLA's collectives, each device with its part of the arrays and the name of the axis.

A job's arrays are whole: their first dimension is the devices'.
"""

from collections.abc import Callable
from typing import Any

from kernels.proof.backends.xla import OnTpu

AXIS = "x"


class _XlaMesh(OnTpu):
    """On one device, which does the work of all: jax.vmap names an axis as a mesh does."""

    name = "XLA mesh"
    is_library = True

    def spread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import jax

        def whole(*arrays: Any, **options: Any) -> Any:
            part = lambda *parts: function(*parts, AXIS, **options)
            return jax.vmap(part, axis_name=AXIS)(*arrays)

        return whole


XLA_MESH = _XlaMesh()
