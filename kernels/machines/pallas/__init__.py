"""What Pallas kernels share on every machine: where they run, and what each program touches."""

from kernels.machines.pallas.calls import Call, Operand, calls
from kernels.machines.pallas.lowered import Lowered

__all__ = ["Call", "Lowered", "Operand", "calls", "interprets", "platform"]


def interprets(interpret: object, device: str) -> object:
    """Resolve the `interpret=` argument of a kernel.

    Args:
        interpret: None means: compile where JAX traces for that device, interpret everywhere else.
            Anything else (True, False, InterpretParams) is passed on as it is.
        device: what the kernel is written for, "tpu" or "gpu".

    Returns:
        What pl.pallas_call takes as interpret=.
    """
    return platform() != device if interpret is None else interpret


def platform() -> str:
    """The platform that JAX traces for.

    JAX keeps what it traced for one platform apart from what it traced for another, since the
    abstract mesh, which tells, is part of the key.

    Returns:
        "tpu" inside kernels.tpu's compile and estimate, whatever this machine has; otherwise that
        of the default device.
    """
    import jax
    from jax.sharding import get_abstract_mesh

    abstract = getattr(get_abstract_mesh(), "abstract_device", None)
    return getattr(abstract, "platform", None) or jax.default_backend()
