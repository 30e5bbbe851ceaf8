"""What was decided for a kernel before it is traced: its chip, its blocks, its share of VMEM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kernels.machines.compat import jax_pallas
from kernels.machines.tpu.chips import Chip, chip

Block = TypeVar("Block")


@dataclass(frozen=True)
class TpuPlan(Generic[Block]):
    """The blocks of a kernel, made for one chip; hashable, so that jax.jit can key on it.

    It is made once, where the shapes are known, and handed on: what traces the kernel asks for
    nothing again.

    Args:
        chip: that it is for.
        block: the operator's own block sizes, legal and small enough.
        vmem_limit_bytes: what the kernel asks the compiler for.
    """

    chip: Chip
    block: Block
    vmem_limit_bytes: int


def vmem_limit(call: Any, name: str) -> int:
    """Bytes of VMEM that a traced kernel asks for, or that the chip of that name grants unasked."""
    return jax_pallas.vmem_limit_bytes(call.equation) or chip(name).vmem_limit_bytes
