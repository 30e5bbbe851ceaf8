"""Block sizes of the attention kernels: what is legal, what VMEM they take, where to start."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from kernels.machines.checks import fail, positive_int
from kernels.machines.tpu.chips import CHIPS, Chip, here
from kernels.machines.tpu.plan import TpuPlan

LANES = 128  # a TPU register holds 8 sublanes × 128 lanes of 32 bits
MOST = 100 << 20  # bytes of VMEM that the kernels ask for, of the 128 MiB of a v5e or v6e
RESERVE = 8 << 20  # bytes that they leave to XLA where there is less
HEADROOM = 24 << 20  # of what they ask for, left to the compiler for tiles that leave the registers


def vmem_limit(vmem_bytes: int) -> int:
    """Bytes that a kernel asks for, of so much VMEM."""
    return min(MOST, vmem_bytes - RESERVE)


@dataclass(frozen=True)
class BlockSizes:
    """What one program holds, and in which tiles it works through it.

    Each is a whole number of at least 1; larger than there is means all of it.

    Args:
        tokens: of q, and of k and v, in VMEM at a time; a longer sequence takes several programs.
        tq, tk: queries and keys of a tile of scores.
        heads: of one program.

    Raises:
        ValueError: one of them is no whole number of at least 1.
    """

    tokens: int = 1024
    tq: int = 256
    tk: int = 128
    heads: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            positive_int(f"block.{field.name}", getattr(self, field.name))

    def __str__(self) -> str:
        return f"{self.tokens}/{self.tq}×{self.tk}/{self.heads}"

    @classmethod
    def default(
        cls, n: int, m: int, head_dim: int, *, causal: bool = False, backward: bool = False
    ) -> BlockSizes:
        """Tiles that keep the MXU busy, and so many heads that a program is worth its start.

        By estimate for a v5e. Where head_dim fills the lanes, a tile of 256 × 128 scores nearly
        stays in registers; where it does not, the probabilities are what the MXU holds still, and
        more queries for each tile of keys mean fewer sums to carry. Half as many leave out more of
        what a causal query does not see. Up to 256 keys are one tile: their softmax needs no
        second maximum.
        """
        tq = 256 if head_dim % LANES == 0 else 1024 >> (causal + backward)
        tk = 256 if m <= 256 else 128
        return cls(1024, tq, tk, heads=max(2, min(16, 2 * (1024 // max(n, m)) ** 2)))

    def smaller(self) -> BlockSizes | None:
        """Half as many heads; where there is one, half as many tokens; None where they are few."""
        if self.heads > 1:
            return replace(self, heads=self.heads // 2)
        tokens = self.tokens // 2 // LANES * LANES
        if not tokens:
            return None
        return replace(self, tokens=tokens, tq=min(self.tq, tokens), tk=min(self.tk, tokens))

    def fitted(self, n: int, m: int, heads: int) -> BlockSizes:
        """These sizes, cut to n queries, m keys and a divisor of all heads.

        ValueError where a block or a tile is neither a multiple of 128 tokens nor all of them.
        """
        longest = max(n, m)
        cut = {name: min(getattr(self, name), longest) for name in ("tokens", "tq", "tk")}
        for name, value in cut.items():
            if value != longest and value % LANES:
                fail(f"block.{name}", value, f"a multiple of {LANES}, or all {longest} tokens")
        several = next(h for h in range(min(self.heads, heads), 0, -1) if heads % h == 0)
        return replace(self, **cut, heads=several)

    def forward_bytes(self, n: int, m: int, head_dim: int, dtype: Any) -> int:
        """Bytes of VMEM of a forward program: two buffers for each block, and the sums so far."""
        item = np.dtype(dtype).itemsize
        bq, bk, d = self._padded(n, m, head_dim)
        blocks = 2 * item * (2 * bq + 2 * bk) * d + 2 * 4 * 8 * bq
        state = 4 * (d + 16) * bq if m > self.tokens else 0
        return self.heads * (blocks + state)

    def backward_bytes(self, n: int, m: int, head_dim: int, dtype: Any) -> int:
        """Bytes of VMEM of a backward program, which keeps dq of all queries in float32."""
        item = np.dtype(dtype).itemsize
        bq, bk, d = self._padded(n, m, head_dim)
        blocks = 2 * item * (4 * bq + 4 * bk) * d + 2 * 4 * 8 * bq
        return self.heads * (blocks + 4 * d * (-(-n // bq) * bq + 2 * bk))

    def fits(self, n: int, m: int, head_dim: int, dtype: Any, vmem_bytes: int) -> bool:
        """Whether the programs of both passes find room in so much VMEM."""
        forward = self.forward_bytes(n, m, head_dim, dtype)
        backward = self.backward_bytes(n, m, head_dim, dtype)
        return max(forward, backward) <= vmem_limit(vmem_bytes) - HEADROOM

    def check(self, n: int, m: int, head_dim: int, dtype: Any, chip: Chip) -> None:
        """ValueError with the arithmetic where these blocks do not fit into the chip's VMEM."""
        forward = self.forward_bytes(n, m, head_dim, dtype)
        backward = self.backward_bytes(n, m, head_dim, dtype)
        most = vmem_limit(chip.vmem_bytes) - HEADROOM
        for what, needed in (("forward", forward), ("backward", backward)):
            if needed > most:
                fail(
                    "block",
                    f"{self}, whose {what} program holds {needed / 2**20:.1f} MiB: {self.heads} "
                    f"heads × (two buffers of {self.tokens} tokens × {head_dim} for each operand, "
                    "and float32 sums)",
                    f"at most {most / 2**20:.0f} MiB of VMEM on a {chip.name}",
                )

    def _padded(self, n: int, m: int, head_dim: int) -> tuple[int, int, int]:
        bq, bk = (-(-min(self.tokens, size) // LANES) * LANES for size in (n, m))
        # Whichever of head_dim and tokens lies in lanes, the other one is padded to sublanes.
        return (
            bq,
            bk,
            -(-head_dim // LANES) * LANES if head_dim > LANES else -(-head_dim // 16) * 16,
        )


def plan(
    n: int,
    m: int,
    heads: int,
    head_dim: int,
    dtype: Any,
    *,
    block: BlockSizes | None = None,
    causal: bool = False,
    backward: bool = False,
    chip: Chip | None = None,
) -> TpuPlan[BlockSizes]:
    """Decide on everything that attention of these shapes needs to know of its chip.

    Args:
        n, m: queries and keys.
        heads: of all sequences together.
        head_dim: of each.
        dtype: of q, k and v.
        block: the block sizes; None takes the default ones for the pass, made to fit.
        causal: whether half of the scores are hidden.
        backward: whether it is for the backward pass.
        chip: None is the one at hand.

    Raises:
        ValueError: for blocks that are not whole register tiles, or that VMEM cannot hold.
    """
    chip = chip or CHIPS[here()]
    if block is None:
        block = BlockSizes.default(n, m, head_dim, causal=causal, backward=backward)
        block = block.fitted(n, m, heads)
        while not block.fits(n, m, head_dim, dtype, chip.vmem_bytes):
            if (smaller := block.smaller()) is None:
                break
            block = smaller.fitted(n, m, heads)
    block = block.fitted(n, m, heads)
    block.check(n, m, head_dim, dtype, chip)
    return TpuPlan(chip, block, vmem_limit(chip.vmem_bytes))
