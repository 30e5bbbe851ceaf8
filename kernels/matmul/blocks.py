"""Block sizes: which are legal on a TPU, how much VMEM they take, and which to start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.checks import fail, positive_int

LANES = 128  # a TPU register holds 8 sublanes × 128 lanes of 32 bits
VMEM_LIMIT = 16 << 20  # bytes that a v5e's compiler grants one kernel unless told otherwise
HEADROOM = 4 << 20  # left to the compiler for its own temporaries


def sublanes(itemsize: int) -> int:
    """Rows of one register tile: 8 for 4-byte elements, 16 for 2, 32 for 1."""
    return 32 // itemsize


@dataclass(frozen=True)
class BlockSizes:
    """The block of x is (bm, bk), of y (bk, bn), of the result (bm, bn).

    Each is a whole number of at least 1. Larger than the matrix means all of it.
    """

    bm: int
    bk: int
    bn: int

    def __post_init__(self) -> None:
        for name in ("bm", "bk", "bn"):
            positive_int(f"block.{name}", getattr(self, name))

    def __str__(self) -> str:
        return f"{self.bm}×{self.bk}×{self.bn}"

    def fitted(self, m: int, k: int, n: int, dtype: Any) -> BlockSizes:
        """These sizes, cut to the matrices; ValueError where they are not whole register tiles.

        A block's last dimension is a multiple of 128 or the whole; the one before it a multiple of
        the rows of the dtype's tile (8, 16 or 32) or the whole. The lowering asks for 8 whatever
        the dtype; a block of half a tile would waste the other half.
        """
        rows = sublanes(np.dtype(dtype).itemsize)
        cut = BlockSizes(min(self.bm, m), min(self.bk, k), min(self.bn, n))
        for name, value, whole, step in (
            ("bm", cut.bm, m, rows),
            ("bk", cut.bk, k, LANES),
            ("bn", cut.bn, n, LANES),
        ):
            if value != whole and value % step:
                fail(f"block.{name}", value, f"a multiple of {step}, or all {whole}")
        return cut

    def vmem_bytes(self, dtype: Any) -> int:
        """Bytes of VMEM: two buffers for each operand, so that one fills while one is used,
        and one 4-byte accumulator."""
        item = np.dtype(dtype).itemsize
        out = 4 if item == 1 else item
        operands = item * (self.bm * self.bk + self.bk * self.bn) + out * self.bm * self.bn
        return 2 * operands + 4 * self.bm * self.bn

    def temporary_bytes(self, dtype: Any) -> int:
        """Bytes of VMEM that the compiler takes besides: a float32 product is made of bfloat16
        ones, for which both blocks are split into three parts of 2 bytes."""
        if np.dtype(dtype).itemsize != 4:
            return 0
        return 6 * (self.bm * self.bk + self.bk * self.bn) + 4 * self.bm * self.bn

    def fits(self, dtype: Any, limit: int = VMEM_LIMIT) -> bool:
        """Whether these blocks fit into `limit` bytes of VMEM, the compiler's own use included."""
        needed = self.vmem_bytes(dtype) + self.temporary_bytes(dtype)
        return needed <= limit - HEADROOM

    @classmethod
    def default(cls, m: int, k: int, n: int, dtype: Any) -> BlockSizes:
        """Large blocks that fit: all of k if it can be had, then wide, then tall.

        All of k in one block means one dot a program and no accumulator to carry; where k is too
        long for that, it is halved until the blocks fit.
        """
        bm, bn = _up(min(m, 512), sublanes(np.dtype(dtype).itemsize)), _up(min(n, 512), LANES)
        bk = _up(k, LANES)
        while bk > LANES and not cls(bm, bk, bn).fits(dtype):
            bk = _up(bk // 2, LANES)
        return cls(min(bm, m), min(bk, k), min(bn, n))


def candidates(m: int, k: int, n: int, dtype: Any, vmem_bytes: int) -> list[BlockSizes]:
    """Block sizes worth trying, the least work first: those that divide the matrices and fit.

    Each size is a power of two of at least a tile, or the whole. They are ranked by the bytes that
    the grid fetches, as far as the multiplications do not hide them, and those alike by how few
    programs there are. vmem_bytes: that a kernel may have.
    """
    item = np.dtype(dtype).itemsize
    found = []
    for bm in _sizes(m, max(LANES, sublanes(item))):
        for bk in _sizes(k, LANES):
            for bn in _sizes(n, LANES):
                block = BlockSizes(bm, bk, bn)
                if block.fits(dtype, vmem_bytes):
                    programs = -(-m // bm) * -(-n // bn) * -(-k // bk)
                    fetched = item * (m * k * -(-n // bn) + k * n * -(-m // bm))
                    # A v5e multiplies 240 times while a byte arrives; half of that hides it well.
                    hidden = 2 * m * k * n / 120
                    found.append(((max(fetched, hidden), programs, fetched), block))
    return [block for _, block in sorted(found, key=lambda each: each[0])]


def _sizes(size: int, step: int, most: int = 4096) -> list[int]:
    """Powers of two from `step` to `most` that divide `size`, and the whole of it."""
    powers = [step << i for i in range(16) if step << i <= most]
    return [b for b in powers if b < size and size % b == 0] + ([size] if size <= 2 * most else [])


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
