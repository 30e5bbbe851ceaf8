"""Exercises of the chapter "Matmul on Hopper"."""

import functools
from typing import Any

import numpy as np

from kernels.lessons.exercises import judges
from kernels.lessons.exercises.bars import Bar, Tried, at
from kernels.lessons.exercises.exercise import Exercise, drawn, product
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.workload import cases

REGISTERS = 168  # of a thread of the fast product
BLOCKS = 2  # of it that an SM keeps
WIDE = "HGMMA.64x128x16"
CUBE = at("bfloat16", m=1024, k=1024, n=1024)
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
    note = judges.on_gpu(uses="HGMMA")(programs)
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


HOPPER: dict[str, Any] = {"backend": MOSAIC_GPU, "rungs": ("interpret", "simulate")}
_hopper, _product = (functools.partial(kind, **HOPPER) for kind in (Exercise, product))

EXERCISES = (
    _hopper(
        "hopper_turns",
        lambda x: 2 * x,
        drawn("m n"),
        cases("m n", one=(64, 64), several=(192, 64)),
        judge=judges.on_gpu(uses="UTMALDG FENCE DEPBAR"),
    ),
    _hopper(
        "hopper_handover",
        lambda x: 3 * x + 1,
        drawn("m n"),
        cases("m n", tile=(64, 128), narrow=(64, 64)),
        magnitude=lambda x: np.abs(3 * x) + 1,
        judge=judges.on_gpu(uses="SYNCS"),
    ),
    _product(
        "hopper_product",
        problems=cases("m k n", dtype="bfloat16", cube=(256, 256, 256), flat=(256, 512, 256)),
        judge=_wide,
    ),
    _product(
        "hopper_lean",
        problems=cases("m k n", dtype="bfloat16", flat=(256, 512, 256), cube=(256, 256, 256)),
        judge=_overlapped,
        bar=Bar("cycles a product in the loop", _cycles_a_product, CYCLES, 21.6, ".1f", CUBE),
    ),
)
