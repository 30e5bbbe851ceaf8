"""What was decided for a kernel before it is traced: its chip, its blocks, its share of VMEM."""

from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import ml_dtypes  # noqa: F401  names bfloat16 and float8 to NumPy
import numpy as np

from kernels.machines.checks import fail, positive_int
from kernels.machines.compat import jax_pallas
from kernels.machines.tpu.chips import Chip, chip

MIB = 1 << 20
LANES = 128  # a TPU register holds 8 sublanes × 128 lanes of 32 bits
RESERVE = 16 * MIB  # bytes of VMEM that no kernel asks for: XLA keeps other arrays there
Block = TypeVar("Block")


def sublanes(itemsize: int) -> int:
    """Rows of one register tile: 8 for 4-byte elements, 16 for 2, 32 for 1."""
    return 32 // itemsize


@dataclass(frozen=True)
class ProductBlocks:
    """Of a product, the block of the left factor is (bm, bk), of the right one (bk, bn), of the
    result (bm, bn).

    Args:
        bm, bk, bn: whole numbers of at least 1, ValueError for others; larger than the matrix means
            all of it.
    """

    bm: int
    bk: int
    bn: int

    def __post_init__(self) -> None:
        for name in ("bm", "bk", "bn"):
            positive_int(f"block.{name}", getattr(self, name))

    def __str__(self) -> str:
        return f"{self.bm}×{self.bk}×{self.bn}"

    def fitted(self, m: int, k: int, n: int, dtype: Any) -> Self:
        """These sizes, cut to the matrices; ValueError where they are not whole register tiles.

        A block's last dimension is a multiple of 128 or the whole; the one before it a multiple of
        the rows of the dtype's tile (8, 16 or 32) or the whole. The lowering asks for 8 whatever
        the dtype; a block of half a tile would waste the other half.
        """
        cut = type(self)(min(self.bm, m), min(self.bk, k), min(self.bn, n))
        for name, value, whole, step in (
            ("bm", cut.bm, m, sublanes(np.dtype(dtype).itemsize)),
            ("bk", cut.bk, k, LANES),
            ("bn", cut.bn, n, LANES),
        ):
            if value != whole and value % step:
                fail(f"block.{name}", value, f"a multiple of {step}, or all {whole}")
        return cut


@dataclass(frozen=True)
class TpuPlan(Generic[Block]):
    """The blocks of a kernel, made for one chip; hashable, so that jax.jit can key on it.

    It is made once, where the shapes are known, and handed on: what traces the kernel asks for
    nothing again.
    """

    chip: Chip  # that it is for
    block: Block  # the operator's own block sizes, legal and small enough
    vmem_limit_bytes: int  # what the kernel asks the compiler for


def vmem_limit(call: Any, name: str) -> int:
    """Bytes of VMEM that a traced kernel asks for, or that the chip of that name grants unasked."""
    return jax_pallas.vmem_limit_bytes(call.equation) or chip(name).vmem_limit_bytes
