"""How many blocks of a kernel an SM keeps at once, and what keeps it from more."""

import math
from dataclasses import dataclass

from kernels.machines.checks import fail, positive_int
from kernels.machines.gpu.chips import chip as chip_of

WARP = 32  # threads
WARPS_AT_ONCE = 4  # an SM has four schedulers, and registers are given to warps of each
REGISTERS_AT_ONCE = 256  # registers that a warp is given at a time
SHARED_AT_ONCE = 128  # bytes of shared memory that a block is given at a time
RESERVED = 1024  # bytes of shared memory that the system keeps of each block


@dataclass(frozen=True)
class Occupancy:
    """How full an SM is.

    Args:
        blocks: that an SM keeps at once.
        warps: in these blocks.
        share: of the warps that an SM could keep.
        limiter: what allows no further block: "threads", "blocks", "registers" or "shared memory".
        limits: how many blocks each of these would allow.
    """

    blocks: int
    warps: int
    share: float
    limiter: str
    limits: dict[str, int]


def occupancy(chip: str, *, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Compute the occupancy of a kernel, by the rules of NVIDIA's occupancy calculator.

    Args:
        chip: one of CHIPS.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.

    Raises:
        ValueError: for an unknown chip, and for a block that no SM could take.
    """
    target = chip_of(chip)
    positive_int("threads", threads)
    positive_int("registers", registers)
    if threads > 1024:
        fail("threads", threads, "at most 1024 in a block")
    if registers > 255:
        fail("registers", registers, "at most 255 a thread")
    if not 0 <= shared_bytes <= target.shared_bytes_per_block:
        fail("shared_bytes", shared_bytes, f"0 to {target.shared_bytes_per_block} on {chip}")
    warps = math.ceil(threads / WARP)
    for_warp = math.ceil(registers * WARP / REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    # Each of the four schedulers has a quarter of the registers, and whole warps.
    room = target.registers_per_sm // for_warp // WARPS_AT_ONCE * WARPS_AT_ONCE
    for_block = math.ceil((shared_bytes + RESERVED) / SHARED_AT_ONCE) * SHARED_AT_ONCE
    limits = {
        "threads": target.threads_per_sm // (WARP * warps),
        "blocks": target.blocks_per_sm,
        "registers": room // warps,
        "shared memory": target.shared_bytes_per_sm // for_block,
    }
    blocks = min(limits.values())
    if not blocks:
        fail("registers", f"{registers} in each of {threads} threads", "65536 a block at most")
    limiter = min(limits, key=lambda name: limits[name])
    kept = blocks * warps
    return Occupancy(blocks, kept, kept * WARP / target.threads_per_sm, limiter, limits)
