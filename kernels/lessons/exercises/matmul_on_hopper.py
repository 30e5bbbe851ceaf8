"""Exercises of the chapter "Matmul on Hopper"."""

import functools

import numpy as np

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.bars import Bar, Tried
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.workload import Workload, cases

REGISTERS = 168  # of a thread of the fast product
BLOCKS = 2  # of it that an SM keeps
WIDE = "HGMMA.64x128x16"
CYCLES = 24.0  # of a warp's own instructions in the loop, for each HGMMA of the lean product
COPIES = 6  # in the code of a loop with two stages: two that fill each stage, two in the loop


def _wide(programs):
    """The kernel multiplies 64 × 128 at a time, spills nothing, and leaves room for another."""
    kernel = judges.for_hopper(programs[0]).kernel()
    products = {i.name for i in kernel.instructions if i.operation == "HGMMA"}
    if narrow := sorted(name for name in products if not name.startswith(WIDE)):
        raise judges.Refused(f"{narrow[0]} in its machine code, {WIDE} wanted")
    return judges.on_gpu(registers=REGISTERS, blocks=BLOCKS, uses="HGMMA")(programs)


def _overlapped(programs):
    """Products of the wide kind without spills, and at least two stages of tiles in flight."""
    note = judges.on_gpu(registers=255, blocks=1, uses="HGMMA")(programs)
    copies = judges.for_hopper(programs[0]).kernel().counts["UTMALDG"]
    if copies < COPIES:
        raise judges.Refused(f"{copies} copies by TMA in its code; two stages have {COPIES}")
    return note


def _cycles_a_product(tried: Tried) -> float:
    """Stall counts of the loop that multiplies, over its products."""
    kernel = judges.for_hopper(tried.program).kernel()
    loops = [loop for loop in kernel.loops if loop.counts["HGMMA"]]
    if not loops:
        raise judges.Refused("no loop of its machine code has an HGMMA")
    return loops[0].issue_cycles / loops[0].counts["HGMMA"]


_hopper = functools.partial(Exercise, backend=MOSAIC_GPU, rungs=("interpret", "simulate"))

EXERCISES = (
    _hopper(
        "hopper_turns",
        "Write turns(x, *, interpret) for a Hopper GPU: [M, 64] float32 → 2 x, M a multiple of 64, "
        "a block for each 64 rows, which TMA copies into shared memory and out of it.",
        lambda x: 2 * x,
        drawn("m n"),
        cases("m n", one=(64, 64), several=(192, 64)),
        hint="copy_gmem_to_smem and barrier_wait; then commit_smem, copy_smem_to_gmem and "
        "wait_smem_to_gmem.",
    ),
    _hopper(
        "hopper_handover",
        "Write handover(x, *, interpret) for a Hopper GPU: [64, N] float32 → 3 x + 1, N a multiple "
        "of 64, with two warpgroups: the first puts 3 x into shared memory, the second adds 1 on "
        "the way out.",
        lambda x: 3 * x + 1,
        drawn("m n"),
        cases("m n", tile=(64, 128), narrow=(64, 64)),
        magnitude=lambda x: np.abs(3 * x) + 1,
        hint="num_threads=2, and a plgpu.Barrier that one arrives at and the other waits for.",
    ),
    _hopper(
        "hopper_product",
        "Write product(x, y, *, interpret) for a Hopper GPU: [M, K], [K, N] bfloat16 → [M, N] "
        "bfloat16, sizes multiples of 256, by TMA and wgmma. Compiled for an H100 it multiplies by "
        f"{WIDE}, spills nothing, has at most {REGISTERS} registers a thread, and {BLOCKS} blocks "
        "fit into an SM.",
        lambda x, y: x @ y,
        drawn("m k", "k n"),
        cases("m k n", dtype="bfloat16", cube=(256, 256, 256), flat=(256, 512, 256)),
        magnitude=lambda x, y: np.abs(x) @ np.abs(y),
        judge=_wide,
        hint="An SM has 228 KiB of shared memory: count the stages and the tile of the result.",
    ),
    _hopper(
        "hopper_lean",
        "Write product(x, y, *, interpret) for a Hopper GPU: [M, K], [K, N] bfloat16 → [M, N] "
        "bfloat16, sizes multiples of 256, with at least two stages of tiles in flight. Compiled "
        f"for an H100 it spills nothing, and its loop takes a warp at most {CYCLES:.0f} cycles for "
        "each HGMMA, by the stall counts.",
        lambda x, y: x @ y,
        drawn("m k", "k n"),
        cases("m k n", dtype="bfloat16", flat=(256, 512, 256), cube=(256, 256, 256)),
        magnitude=lambda x, y: np.abs(x) @ np.abs(y),
        judge=_overlapped,
        bar=Bar(
            "cycles a product in the loop",
            _cycles_a_product,
            bar=CYCLES,
            ours=21.6,
            spec=".1f",
            workload=Workload("bar", {"m": 1024, "k": 1024, "n": 1024}, "bfloat16"),
        ),
        hint="A round waits, tells a barrier and counts, however many products it holds.",
    ),
)
