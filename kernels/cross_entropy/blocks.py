"""Block sizes of the cross-entropy kernels: what is legal, what VMEM they take, where to start."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from kernels.machines.checks import fail, positive_int
from kernels.machines.tpu.chips import CHIPS, Chip, here
from kernels.machines.tpu.plan import LANES, TpuPlan

MOST = 100 << 20  # bytes of VMEM that a kernel asks for
RESERVE = 8 << 20  # bytes that it leaves to XLA where there is less
RESULTS = ("loss", "dx", "dw")  # a kernel each


@dataclass(frozen=True)
class CrossEntropyBlocks:
    """The logits that a program makes at a time; it holds all of D.

    Each size is a multiple of 128; larger than there is means all of it, in whole multiples.

    Args:
        tokens: rows of x.
        vocab: columns of w.

    Raises:
        ValueError: one of them is no multiple of 128.
    """

    tokens: int
    vocab: int

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            positive_int(f"block.{field.name}", size)
            if size % LANES:
                fail(f"block.{field.name}", size, f"a multiple of {LANES}")

    def __str__(self) -> str:
        return f"{self.tokens}×{self.vocab}"

    def fitted(self, t: int, v: int) -> CrossEntropyBlocks:
        """These sizes, cut to t tokens and v columns."""
        tokens, vocab = (-(-size // LANES) * LANES for size in (t, v))
        return CrossEntropyBlocks(min(self.tokens, tokens), min(self.vocab, vocab))

    def vmem_bytes(self, d: int, dtype: Any, result: str) -> int:
        """Bytes of VMEM of a program of one of RESULTS.

        Two buffers for x and w; what float32 is split into, three parts of 2 bytes; the logits and
        what becomes of them; statistics, a register wide for each token; and of a gradient two
        buffers and a float32 sum.
        """
        item, d = np.dtype(dtype).itemsize, -(-d // LANES) * LANES
        operands = (self.tokens + self.vocab) * d * (2 * item + 6 * (item == 4))
        logits = 4 * self.tokens * self.vocab * (2 if result == "loss" else 4)
        statistics = 4 * 4 * LANES * self.tokens
        kept = {"loss": 0, "dx": self.tokens, "dw": self.vocab}[result]
        return operands + logits + statistics + kept * d * (2 * item + 4)


def plan(
    t: int,
    d: int,
    v: int,
    dtype: Any,
    result: str = "loss",
    *,
    block: CrossEntropyBlocks | None = None,
    chip: Chip | None = None,
) -> TpuPlan[CrossEntropyBlocks]:
    """Decide on everything that one of the kernels needs to know of its chip.

    What stays while the other operand passes is read once, the other one once for each block of it:
    so the block that stays is as large as VMEM allows, and the passing one gives way first.

    Args:
        t, d, v: tokens, features, columns of w.
        dtype: of x and w.
        result: which kernel, of RESULTS.
        block: the block sizes; None takes the default ones for the kernel, made to fit.
        chip: None is the one at hand.

    Raises:
        ValueError: for blocks that VMEM cannot hold, and for a d of which it holds not even 128
            rows and columns.
    """
    chip = chip or CHIPS[here()]
    limit = min(MOST, chip.vmem_bytes - RESERVE)
    most = limit * 3 // 4  # the rest is the compiler's, for what leaves the registers
    stays, passes = ("vocab", "tokens") if result == "dw" else ("tokens", "vocab")

    def fits(block: CrossEntropyBlocks) -> bool:
        return block.vmem_bytes(d, dtype, result) <= most

    chosen = block
    if chosen is None:
        large = 1024 if result == "loss" else 512
        chosen = CrossEntropyBlocks(large, large).fitted(t, v)
        for name, least in ((passes, 256), (stays, 256), (passes, LANES), (stays, LANES)):
            while not fits(chosen) and getattr(chosen, name) > least:
                half = -(-getattr(chosen, name) // (2 * LANES)) * LANES
                chosen = replace(chosen, **{name: half})
    chosen = chosen.fitted(t, v)
    if not fits(chosen):
        needed = f"{chosen.vmem_bytes(d, dtype, result) / 2**20:.1f} MiB for {result}"
        accepted = f"at most {most / 2**20:.0f} MiB of VMEM on a {chip.name}"
        if block:
            fail("block", f"{chosen}, which takes {needed}", accepted)
        fail("x.shape[1]", f"{d}, of which {chosen} logits take {needed}", accepted)
    return TpuPlan(chip, chosen, limit)
