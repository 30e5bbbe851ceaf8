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
class AttentionBlocks:
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
    ) -> AttentionBlocks:
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

    def smaller(self) -> AttentionBlocks | None:
        """Half as many heads; where there is one, half as many tokens; None where they are few."""
        if self.heads > 1:
            return replace(self, heads=self.heads // 2)
        tokens = self.tokens // 2 // LANES * LANES
        if not tokens:
            return None
        return replace(self, tokens=tokens, tq=min(self.tq, tokens), tk=min(self.tk, tokens))

    def fitted(self, n: int, m: int, heads: int, group: int = 1) -> AttentionBlocks:
        """These sizes, cut to n queries, m keys and a divisor of all heads: whole groups of those
        that share their keys, or a whole part of one.

        ValueError where a block or a tile is neither a multiple of 128 tokens nor all of them.
        """
        longest = max(n, m)
        cut = {name: min(getattr(self, name), longest) for name in ("tokens", "tq", "tk")}
        for name, value in cut.items():
            if value != longest and value % LANES:
                fail(f"block.{name}", value, f"a multiple of {LANES}, or all {longest} tokens")
        several = next(
            h
            for h in range(min(self.heads, heads), 0, -1)
            if heads % h == 0 and 0 in (h % group, group % h)
        )
        return replace(self, **cut, heads=several)

    def vmem_bytes(
        self,
        n: int,
        m: int,
        head_dim: int,
        dtype: Any,
        *,
        backward: bool = False,
        group: int = 1,
        window: tuple[int, int] | None = None,
    ) -> int:
        """Bytes of VMEM of a program of either pass: two buffers for each block, and sums so far.

        The forward pass carries those from one block of keys to the next; the backward one keeps
        dq of all queries that later keys may add to, and dk and dv of a block, in float32.
        """
        bq, bk = (-(-min(self.tokens, size) // LANES) * LANES for size in (n, m))
        # Whichever of head_dim and tokens lies in lanes, the other one is padded to sublanes.
        step = LANES if head_dim > LANES else 16
        d = -(-head_dim // step) * step
        arrays = 4 if backward else 2  # of queries, and as many of keys
        buffered = 2 * np.dtype(dtype).itemsize * arrays * d
        keys = max(1, self.heads // group) * bk * (buffered + 8 * d * backward)
        queries = buffered * bq + 2 * 4 * 8 * bq
        if backward:
            waiting = -(-n // bq)
            if window:
                waiting = min(waiting, sum(window) // bq + 3)
            queries += 4 * d * waiting * bq
        elif m > self.tokens or window:
            queries += 4 * (d + 16) * bq
        return self.heads * queries + keys


def plan(
    n: int,
    m: int,
    heads: int,
    head_dim: int,
    dtype: Any,
    *,
    block: AttentionBlocks | None = None,
    causal: bool = False,
    backward: bool = False,
    group: int = 1,
    window: tuple[int, int] | None = None,
    chip: Chip | None = None,
) -> TpuPlan[AttentionBlocks]:
    """Decide on everything that attention of these shapes needs to know of its chip.

    Args:
        n, m: queries and keys.
        heads: of all sequences together.
        head_dim: of each.
        dtype: of q, k and v.
        block: the block sizes; None takes the default ones for the pass, made to fit.
        causal: whether half of the scores are hidden.
        backward: whether it is for the backward pass.
        group: heads of q that share one of k and v.
        window: keys before and after its own place that a query sees; None for all.
        chip: None is the one at hand.

    Raises:
        ValueError: for blocks that are not whole register tiles, or that VMEM cannot hold in this
            pass: the other one is nothing to who does not ask for it.
    """
    chip = chip or CHIPS[here()]
    most = vmem_limit(chip.vmem_bytes) - HEADROOM

    def needed(block: AttentionBlocks) -> int:
        return block.vmem_bytes(
            n, m, head_dim, dtype, backward=backward, group=group, window=window
        )

    if block is None:
        block = AttentionBlocks.default(n, m, head_dim, causal=causal, backward=backward)
        block = block.fitted(n, m, heads, group)
        while needed(block) > most and (smaller := block.smaller()):
            block = smaller.fitted(n, m, heads, group)
    block = block.fitted(n, m, heads, group)
    if needed(block) > most:
        fail(
            "block",
            f"{block}, whose {'backward' if backward else 'forward'} program holds "
            f"{needed(block) / 2**20:.1f} MiB: {block.heads} heads × (two buffers of "
            f"{block.tokens} tokens × {head_dim} for each operand, and float32 sums)",
            f"at most {most / 2**20:.0f} MiB of VMEM on a {chip.name}",
        )
    return TpuPlan(chip, block, vmem_limit(chip.vmem_bytes))
