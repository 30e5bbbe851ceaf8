"""Block sizes of a grouped matmul: which are legal on a TPU, their VMEM, where to start."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.machines.checks import fail
from kernels.machines.tpu.chips import CHIPS, Chip, here
from kernels.machines.tpu.plan import LANES, MIB, RESERVE, ProductBlocks, TpuPlan

ROWS = (128, 256, 512)  # of a block; fewer leave the MXU waiting for its weights
NARROW = 256  # columns below which cutting k is better than cutting n again


class GroupedBlocks(ProductBlocks):
    """The block of x is (bm, bk), of a group's matrix (bk, bn), of the result (bm, bn)."""

    def vmem_bytes(self, dtype: Any, *, transposed: bool = False) -> int:
        """Bytes of VMEM: two buffers of each block, the sums, and what float32 takes besides.

        A float32 product is made of bfloat16 ones: three parts of 2 bytes of both factors, and the
        sums once more. With `transposed`, the block of the matrix is the result, as in a gradient.
        """
        item = np.dtype(dtype).itemsize
        blocks = {"x": self.bm * self.bk, "w": self.bk * self.bn, "z": self.bm * self.bn}
        sums = blocks["w" if transposed else "z"]
        wide = 6 * (sum(blocks.values()) - sums) + 4 * sums if item == 4 else 0
        return 2 * item * sum(blocks.values()) + 4 * sums + wide

    @classmethod
    def default(
        cls, m: int, k: int, n: int, g: int, dtype: Any, chip: Chip, *, transposed: bool = False
    ) -> GroupedBlocks:
        """The rule: a quarter of a group's rows, and as much of k and n as VMEM holds.

        A group that begins inside a block costs a block more, so blocks of few rows waste less; but
        each block of rows costs a pass over the matrix. n is cut before k: where k is whole, the
        matrix stays in VMEM as long as its group lasts, and nothing is carried from step to step.
        Of a gradient, whose result is the matrix, the longer side is cut.

        Args:
            m, k, n, g: of x [m, k] and w [g, k, n].
            dtype: of both.
            chip: whose VMEM has to hold them.
            transposed: as vmem_bytes has it.
        """
        rows = next((rows for rows in ROWS if 4 * rows >= m // g), ROWS[-1])
        block = cls(min(rows, m), k, n)
        while block.vmem_bytes(dtype, transposed=transposed) > chip.vmem_bytes - RESERVE:
            across = block.bn > NARROW if not transposed else block.bn >= block.bk
            name, size = ("bn", block.bn) if across else ("bk", block.bk)
            block = replace(block, **{name: -(-size // 2 // LANES) * LANES})
        return block


def plan(
    m: int,
    k: int,
    n: int,
    g: int,
    dtype: Any,
    block: GroupedBlocks | None = None,
    *,
    chip: Chip | None = None,
    transposed: bool = False,
) -> TpuPlan[GroupedBlocks]:
    """Decide on everything that a product of these shapes needs to know of its chip.

    Args:
        m, k, n, g: of x [m, k] and w [g, k, n].
        dtype: of both.
        block: None takes the default ones.
        chip: None is the one at hand.
        transposed: as GroupedBlocks.vmem_bytes has it.

    Raises:
        ValueError: for blocks that are not whole register tiles, or that VMEM cannot hold.
    """
    chip = chip or CHIPS[here()]
    if block is None:
        block = GroupedBlocks.default(m, k, n, g, dtype, chip, transposed=transposed)
    block = block.fitted(m, k, n, dtype)
    own, most = block.vmem_bytes(dtype, transposed=transposed), chip.vmem_bytes - RESERVE
    if own > most:
        wanted = f"blocks of at most {most / MIB:.0f} MiB in all on a {chip.name}"
        fail("block", f"{block}, which takes {own / MIB:.3g} MiB of VMEM", wanted)
    limit = max(chip.vmem_limit_bytes, min(own * 3 // 2 + 4 * MIB, chip.vmem_bytes - RESERVE // 2))
    return TpuPlan(chip, block, limit)


def candidates(m: int, k: int, n: int, g: int, dtype: Any, vmem_bytes: int) -> list[GroupedBlocks]:
    """Block sizes worth trying, the most promising first: those that fit, k and n halved in turn.

    They are ranked by the bytes and products of groups of m / g rows, of which each begins inside
    a block.
    """
    halves = [[max(size >> i, LANES) // LANES * LANES for i in range(1, 5)] for size in (k, n)]
    every = itertools.product(
        sorted({min(rows, m) for rows in ROWS}), {k, *halves[0]}, {n, *halves[1]}
    )
    fitting = (
        block
        for block in itertools.starmap(GroupedBlocks, every)
        if block.bk <= k and block.bn <= n and block.vmem_bytes(dtype) <= vmem_bytes - RESERVE
    )
    rate, item = CHIPS["v5e"].hbm_bytes_per_cycle, np.dtype(dtype).itemsize

    def cycles(block: GroupedBlocks) -> float:
        visits = -(-m // block.bm) + g
        columns, steps = -(-n // block.bn), -(-k // block.bk)
        matrices = g if steps == 1 else visits  # a matrix that is cut comes anew for every block
        fetched = item * (visits * block.bm * k * columns + matrices * k * n + m * n)
        multiply = visits * block.bm * k * n / (4 * 128 * 128)
        return max(multiply, fetched / rate) + 250 * visits * columns * steps

    return sorted(fitting, key=cycles)
