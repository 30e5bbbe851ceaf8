"""Block sizes: which are legal on a TPU, how much VMEM they take, and which to start from."""

from __future__ import annotations

import csv
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines.checks import fail
from kernels.machines.tpu.chips import CHIPS, Chip, here
from kernels.machines.tpu.plan import LANES, MIB, RESERVE, ProductBlocks, TpuPlan, sublanes


class BlockSizes(ProductBlocks):
    """The block of x is (bm, bk), of y (bk, bn), of the result (bm, bn)."""

    def _parts(self, dtype: Any) -> dict[str, int]:
        item = np.dtype(dtype).itemsize
        return {
            "x": item * self.bm * self.bk,
            "y": item * self.bk * self.bn,
            "z": (4 if item == 1 else item) * self.bm * self.bn,
        }

    def vmem_bytes(self, dtype: Any, buffers: int = 2) -> int:
        """Bytes of VMEM: two buffers for each operand, so that one fills while one is used, one
        4-byte accumulator, and what the compiler takes besides.

        That is: for float32, whose product is made of bfloat16 ones, three parts of 2 bytes of
        both blocks and another accumulator. Blocks with all of k need no accumulator, and are
        charged with one all the same: the compiler keeps their product there if it runs out of
        registers.
        """
        sums, split = self._besides(dtype)
        return buffers * sum(self._parts(dtype).values()) + sums + split

    def _besides(self, dtype: Any) -> tuple[int, int]:
        """Bytes for sums, and for float32 factors split into bfloat16 ones."""
        wide = np.dtype(dtype).itemsize == 4
        sums = 4 * self.bm * self.bn
        return sums * (1 + wide), 6 * (self.bm * self.bk + self.bk * self.bn) * wide

    def arithmetic(self, dtype: Any, buffers: int = 2) -> str:
        """What vmem_bytes adds up, in words."""
        sizes = " + ".join(f"{name} {size / MIB:.3g}" for name, size in self._parts(dtype).items())
        sums, split = self._besides(dtype)
        parts = f" + {split / MIB:.3g} for bfloat16 parts of x and y" if split else ""
        return (
            f"{buffers} × ({sizes}) + {sums / MIB:.3g} for sums{parts} = "
            f"{self.vmem_bytes(dtype, buffers) / MIB:.3g} MiB of VMEM"
        )

    def fits(self, dtype: Any, vmem_bytes: int) -> bool:
        """Whether a kernel of these blocks fits into VMEM of `vmem_bytes`, with some to spare."""
        return self.vmem_bytes(dtype) <= vmem_bytes - RESERVE

    def check(self, dtype: Any, chip: Chip, buffers: int = 2) -> None:
        """ValueError, with the arithmetic, where the chip has not enough VMEM."""
        most = chip.vmem_bytes - RESERVE
        if self.vmem_bytes(dtype, buffers) > most:
            fail(
                "block",
                f"{self}, which takes {self.arithmetic(dtype, buffers)}",
                f"blocks of at most {most / MIB:.0f} MiB in all on a {chip.name}",
            )

    @classmethod
    def default(cls, m: int, k: int, n: int, dtype: Any, chip: Chip | None = None) -> BlockSizes:
        """The block sizes for a product of this shape on a chip; None is the one at hand.

        Those that the tuner found best for the nearest shape in TUNED, made to fit: all of k where
        the record has all of k and VMEM holds it, and rows and columns shared out evenly, so that
        the last block is not nearly empty.
        """
        chip = chip or CHIPS[here()]
        rows = sublanes(np.dtype(dtype).itemsize)
        record, best = nearest(m, k, n, dtype, chip)
        block = replace(best, bk=k if best.bk == record[1] else best.bk)
        while True:
            block = cls(
                _even(m, block.bm, rows), _even(k, block.bk, LANES), _even(n, block.bn, LANES)
            )
            if block.fits(dtype, chip.vmem_bytes):
                return block
            size, name = max((block.bk, "bk"), (block.bm, "bm"), (block.bn, "bn"))
            block = replace(block, **{name: -(-size // 2)})


# The tuner's best, by `python -m kernels tune matmul/pallas`: chip and dtype → shape → block sizes.
# A test holds them against the records in results/tuned.csv.
TUNED: dict[tuple[str, str], dict[tuple[int, int, int], BlockSizes]] = {}
with Path(__file__).with_name("tuned.csv").open(encoding="utf-8", newline="") as _rows:
    for _chip, _dtype, *_cells in itertools.islice(csv.reader(_rows), 1, None):
        _m, _k, _n, *_block = map(int, _cells)
        TUNED.setdefault((_chip, _dtype), {})[_m, _k, _n] = BlockSizes(*_block)
# Nothing was tuned for a v5p, whose cores have a v5e's MXUs, nor for a v7x, which has a v6e's.
for _dtype in ("bfloat16", "int8"):
    TUNED["v5p", _dtype], TUNED["v7x", _dtype] = TUNED["v5e", _dtype], TUNED["v6e", _dtype]


def plan(
    m: int,
    k: int,
    n: int,
    dtype: Any,
    block: BlockSizes | None = None,
    *,
    chip: Chip | None = None,
    buffers: int = 2,
) -> TpuPlan[BlockSizes]:
    """Decide on everything that a product of these shapes needs to know of its chip.

    Args:
        m, k, n: of the matrices.
        dtype: of both.
        block: the block sizes; None takes the default ones.
        chip: None is the one at hand.
        buffers: of each operand.

    Raises:
        ValueError: for blocks that are not whole register tiles, or that VMEM cannot hold.
    """
    chip = chip or CHIPS[here()]
    block = (block or BlockSizes.default(m, k, n, dtype, chip)).fitted(m, k, n, dtype)
    block.check(dtype, chip, buffers)
    return TpuPlan(chip, block, vmem_limit(block, dtype, chip))


def vmem_limit(block: BlockSizes, dtype: Any, chip: Chip) -> int:
    """What a kernel of these blocks asks the compiler for, in bytes.

    What it gets anyway, where that leaves room for spills; else its own and half as much again.
    """
    own = block.vmem_bytes(dtype)
    if own <= chip.vmem_limit_bytes - 4 * MIB:
        return chip.vmem_limit_bytes
    return min(own * 3 // 2 + 4 * MIB, chip.vmem_bytes - RESERVE // 2)


def candidates(m: int, k: int, n: int, dtype: Any, vmem_bytes: int) -> list[BlockSizes]:
    """Block sizes worth trying, the most promising first: those that divide the matrices and fit.

    Each size is a power of two of at least a tile, or the whole. They are ranked by a model that
    takes a moment: the longer of multiplying and fetching, the fetch of the first blocks, which
    nothing hides, and some 250 cycles that a program takes to start and to end.
    """
    every = itertools.product(_sizes(m, LANES), _sizes(k, 512), _sizes(n, LANES))
    fitting = (b for b in itertools.starmap(BlockSizes, every) if b.fits(dtype, vmem_bytes))
    return sorted(fitting, key=lambda block: _cycles(block, m, k, n, dtype))


def _cycles(block: BlockSizes, m: int, k: int, n: int, dtype: Any) -> float:
    item = np.dtype(dtype).itemsize
    rate = CHIPS["v5e"].hbm_bytes_per_cycle
    rows, columns, steps = -(-m // block.bm), -(-n // block.bn), -(-k // block.bk)
    fetched = item * (m * k * columns + k * n * rows)
    if steps == 1:  # the outer operand stays while the inner one passes
        fetched = min(item * (m * k + k * n * rows), item * (m * k * columns + k * n))
    multiply = m * k * n / (4 * 128 * 128) / (2 if np.dtype(dtype).itemsize == 1 else 1)
    # An accumulator is read and written at every step, beside the multiplications.
    carry = 0 if steps == 1 else rows * columns * steps * block.bm * block.bn / 1024
    first = item * (block.bm * block.bk + block.bk * block.bn) / rate
    programs = rows * columns * steps
    return max(multiply + carry, fetched / rate) + first + 250 * programs


def _sizes(size: int, step: int, most: int = 2048) -> list[int]:
    """Powers of two from `step` to `most` that divide `size`, and the whole of it."""
    powers = [step << i for i in range(16) if step << i <= most]
    return [b for b in powers if b < size and size % b == 0] + ([size] if size <= 16384 else [])


def nearest(
    m: int, k: int, n: int, dtype: Any, chip: Chip
) -> tuple[tuple[int, int, int], BlockSizes]:
    """The shape among the tuner's records that is nearest to m, k, n, and its best blocks."""
    table = TUNED[chip.name, "int8" if np.dtype(dtype) == np.int8 else "bfloat16"]

    def distance(shape: tuple[int, int, int]) -> float:
        return sum(abs(math.log(a / b)) for a, b in zip(shape, (m, k, n)))

    record = min(table, key=distance)
    return record, table[record]


def _even(size: int, block: int, step: int) -> int:
    """The smallest multiple of `step` that covers `size` in no more blocks than `block` does."""
    if block >= size:
        return size
    count = -(-size // block)
    return -(-size // (count * step)) * step
