"""Blocks of rows: what kernels that work along the last axis keep of an array in VMEM."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.machines.checks import fail, positive_int
from kernels.machines.tpu.chips import CHIPS, Chip, here
from kernels.machines.tpu.plan import LANES, MIB, RESERVE, TpuPlan

STRIP = 32  # rows that are worked on together: whole register tiles of any dtype
LIVE = 3  # float32 copies of a strip that wait in VMEM, since no register is left for them
SPARE = 2 * MIB  # of what a kernel is granted, for the compiler's own
LARGEST = 2 * MIB  # bytes of a block: larger ones hide no more, and the first is fetched alone
LONGEST = 1 << 17  # elements of a row in one pass: a strip is one piece of code, which grows
PART = 8192  # columns of a block where a row is longer than that


@dataclass(frozen=True)
class RowBlocks:
    """A block of an array [rows, n] is (rows, columns).

    Columns of at least n make one pass over the array. Fewer make two: one for what has to be known
    of the whole row, one for the result.

    Args:
        rows, columns: whole numbers of at least 1; larger than the array means all of it.

    Raises:
        ValueError: one of them is no whole number of at least 1.
    """

    rows: int
    columns: int

    def __post_init__(self) -> None:
        positive_int("rows", self.rows)
        positive_int("columns", self.columns)

    @property
    def strip(self) -> int:
        """Rows that a kernel works on together: fewer where they are long."""
        return min(self.rows, STRIP if self.columns <= PART else STRIP // 2)

    def vmem_bytes(self, itemsize: int, arrays: int, vectors: int = 0) -> int:
        """Bytes of VMEM: two buffers of a block of each array and vector, and a strip at work.

        Args:
            itemsize: bytes of an element.
            arrays: [rows, n], read or written.
            vectors: [n], read or written, which fill eight rows of float32.
        """
        width = -(-self.columns // LANES) * LANES
        buffers = 2 * (arrays * self.rows * itemsize + vectors * 8 * 4) * width
        return buffers + LIVE * arrays * self.strip * 4 * width // 2

    def arithmetic(self, itemsize: int, arrays: int, vectors: int = 0) -> str:
        """The same, in words."""
        one = self.rows * self.columns * itemsize / MIB
        whole = self.vmem_bytes(itemsize, arrays, vectors) / MIB
        return f"2 × {arrays} blocks of {one:.3g} MiB, and a strip: {whole:.3g} MiB of VMEM"


def plan(
    rows: int,
    n: int,
    dtype: Any,
    arrays: int,
    vectors: int = 0,
    *,
    block: RowBlocks | None = None,
    chip: Chip | None = None,
) -> TpuPlan[RowBlocks]:
    """Decide on the blocks of a kernel that works along the rows of arrays [rows, n]; ValueError
    for blocks that are not whole register tiles, or that VMEM cannot hold.

    Args:
        rows, n, dtype: of the arrays.
        arrays, vectors: how many [rows, n] and [n] it reads and writes.
        block: what is asked for; None takes whole rows where a strip of them fits into VMEM, and as
            many rows as make a block of LARGEST bytes and fit into what a kernel is granted.
        chip: None is the one at hand.
    """
    chip = chip or CHIPS[here()]
    itemsize = np.dtype(dtype).itemsize
    most = chip.vmem_bytes - RESERVE
    if block is None:
        block = _default(rows, n, itemsize, arrays, vectors, chip)
    block = RowBlocks(min(block.rows, rows), min(block.columns, n))
    if block.rows % STRIP and block.rows < rows:
        fail("block.rows", block.rows, f"a multiple of {STRIP}, or all {rows}")
    if block.columns % LANES and block.columns < n:
        fail("block.columns", block.columns, f"a multiple of {LANES}, or all {n}")
    if (size := block.vmem_bytes(itemsize, arrays, vectors)) > most:
        words = block.arithmetic(itemsize, arrays, vectors)
        fail("block", f"{block}, which takes {words}", f"at most {most / MIB:.0f} MiB in all")
    limit = max(chip.vmem_limit_bytes, min(size + size // 4 + SPARE, chip.vmem_bytes - SPARE))
    return TpuPlan(chip, block, limit)


def _default(rows: int, n: int, itemsize: int, arrays: int, vectors: int, chip: Chip) -> RowBlocks:
    def fits(number: int, columns: int, limit: int) -> bool:
        block = RowBlocks(min(number, rows), columns)
        return block.vmem_bytes(itemsize, arrays, vectors) <= limit

    columns = n if n <= LONGEST and fits(STRIP, n, chip.vmem_bytes - RESERVE) else PART
    number = STRIP
    while (
        number < rows
        and 2 * number * max(columns, LANES) * itemsize <= LARGEST
        and fits(2 * number, columns, chip.vmem_limit_bytes - SPARE)
    ):
        number *= 2
    return RowBlocks(number, columns)


def candidates(
    rows: int, n: int, dtype: Any, vmem_bytes: int, arrays: int, vectors: int = 0
) -> list[RowBlocks]:
    """Blocks worth trying, the largest first: whole rows, and parts of them in two passes."""
    itemsize = np.dtype(dtype).itemsize
    widths = [n] if n <= LONGEST else []
    widths += [width for width in (4 * PART, 2 * PART, PART) if width < n]
    numbers = [number for number in (512, 256, 128, 64, STRIP) if number < rows] or [rows]
    return [
        block
        for columns in widths
        for number in numbers
        if (block := RowBlocks(number, columns)).vmem_bytes(itemsize, arrays, vectors)
        <= vmem_bytes - RESERVE
    ]


def explained(rows: int, n: int, dtype: Any, arrays: int, vectors: int = 0) -> str:
    """What is chosen by itself for the chip at hand, and why, in words."""
    block = plan(rows, n, dtype, arrays, vectors).block
    form = "whole rows, in one pass" if block.columns == n else "parts of rows, in two passes"
    words = block.arithmetic(np.dtype(dtype).itemsize, arrays, vectors)
    return f"{block}: {form}; {words}"
