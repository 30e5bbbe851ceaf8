"""What Pallas kernels share on every machine: where they run, and what each program touches."""

from kernels.pallas.calls import Call, Operand, calls
from kernels.pallas.lowered import Lowered

__all__ = ["Call", "Lowered", "Operand", "calls", "interprets"]


def interprets(interpret: object, device: str) -> object:
    """Resolve the `interpret=` argument of a kernel written for `device` ("tpu" or "gpu").

    None means: compile where that device is JAX's default backend, interpret everywhere else.
    Anything else (True, False, InterpretParams) is passed on as it is.
    """
    import jax

    return jax.default_backend() != device if interpret is None else interpret
