"""What a program would take on a GPU: a bracket, and one figure for what a library multiplies.

A GPU's compiler leaves to the hardware what runs at the same time as what. So an estimate says the
least and the most: as if memory, arithmetic and launches all overlapped, and as if they stood in
line. Only of matrix products by cuBLAS there are enough measurements to say one figure: XLA carries
them in its plugin, and two constants a chip were fitted to every other one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernels.checks import fail
from kernels.compat import xla_gpu
from kernels.gpu.chips import Chip
from kernels.gpu.chips import chip as chip_of
from kernels.gpu.compiler import TIMEOUT, Compiled, compile

# Seconds of a launch, and the share of the tensor cores' rate that whole tiles reach, by chip:
# fitted to half of XLA's measured products in bfloat16 (kernels.compat.xla_tables).
LIBRARY = {"h100": (5.5e-6, 0.80), "b200": (6.0e-6, 0.66)}
TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
# What the pieces reach where they stand in line: of the memory's rate, and of the tensor cores'.
REACHED = 0.7
STREAMS = ("fusion", "copy")  # what reads its operands once and writes its result
LAUNCH = 5e-6  # seconds of a kernel besides its work, where nothing overlaps


@dataclass(frozen=True)
class Step:
    """A step of the program.

    Args:
        name: of the instruction.
        kind: "library" or "kernel".
        seconds: the least and the most; the same for a library's product.
        bound: "memory" or "compute", whichever takes longer.
    """

    name: str
    kind: str
    seconds: tuple[float, float]
    bound: str


@dataclass(frozen=True)
class Estimate:
    """What a program would take. Nothing of it was measured.

    Args:
        name: of the function.
        chip: one of CHIPS.
        seconds: the least and the most.
        bound: "memory" or "compute", whichever takes more of the least.
        method: where the figures come from, in words.
        steps: of the program.
    """

    name: str
    chip: str
    seconds: tuple[float, float]
    bound: str
    method: str
    steps: tuple[Step, ...] = field(repr=False)


def library_product(
    chip: str, m: int, k: int, n: int, *, batch: int = 1, itemsize: int = 2, dtype: str = "bfloat16"
) -> float:
    """Seconds of a matrix product by cuBLAS: whole waves of whole tiles, or memory, and a launch.

    Args:
        chip: one that LIBRARY has constants of.
        m, k, n: rows, depth and columns.
        batch: how many products.
        itemsize: bytes of a number.
        dtype: of the operands.

    Raises:
        ValueError: for a chip without measurements.
    """
    target = chip_of(chip)
    if chip not in LIBRARY:
        fail("chip", repr(chip), f"{', '.join(LIBRARY)}: of others no products are measured")
    launch, share = LIBRARY[chip]
    rate = target.peak(dtype) * share / target.sms

    def waves(tile: tuple[int, int]) -> float:
        blocks = batch * math.ceil(m / tile[0]) * math.ceil(n / tile[1])
        return math.ceil(blocks / target.sms) * 2 * tile[0] * tile[1] * k / rate

    moved = batch * (m * k + k * n + m * n) * itemsize / target.bytes_per_second
    return launch + max(min(map(waves, TILES)), moved)


def estimate(
    function: Callable[..., Any], *args: Any, chip: str = "h100", timeout: float = TIMEOUT
) -> Estimate:
    """Say how long `function(*args)` would take on `chip`, at least and at most.

    Args:
        function: of arrays, of what XLA compiles; a Pallas kernel's arithmetic is not counted.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.
        timeout: seconds for the compiler.

    Returns:
        An estimate; both of its seconds are the same where all is a library's product.

    Raises:
        GpuCompileError: as compile does.
        ValueError: for an unknown chip, and for a program with more in it than cuBLAS's products
            and what XLA fuses.
        MissingPackage: without the plugin or NVIDIA's tools.
    """
    compiled = compile(function, *args, chip=chip, passes=False, timeout=timeout)
    target = chip_of(chip)
    steps = tuple(_step(target, each) for each in xla_gpu.operations(compiled.hlo))
    if not steps:
        fail("function", "one that does nothing on the GPU", "one with an operation")
    return _sum(compiled, steps)


def _sum(compiled: Compiled, steps: tuple[Step, ...]) -> Estimate:
    low, high = (sum(step.seconds[end] for step in steps) for end in (0, 1))
    memory = sum(step.seconds[0] for step in steps if step.bound == "memory")
    kinds = {step.kind for step in steps}
    method = {
        "library": "whole waves of cuBLAS's tiles, fitted to XLA's measured products",
        "kernel": "bytes and operations: all overlapped, and all in line; of no measurement",
    }
    told = "; ".join(method[kind] for kind in sorted(kinds, reverse=True))
    bound = "memory" if memory >= low / 2 else "compute"
    return Estimate(compiled.name, compiled.chip, (low, high), bound, told, steps)


def _step(chip: Chip, operation: xla_gpu.Operation) -> Step:
    if operation.target in (xla_gpu.TRITON, xla_gpu.MOSAIC):
        fail("function", f"one with the Pallas kernel {operation.name}", "one that XLA compiles")
    if not (operation.target in STREAMS or operation.target.startswith("__cublas")):
        fail(
            "function",
            f"one with {operation.target} in it, {operation.name}",
            "one of matrix products and of what XLA fuses: of the rest nothing is known here",
        )
    memory = operation.bytes / chip.bytes_per_second
    compute = operation.flops / chip.peak(operation.dtype)
    bound = "memory" if memory >= compute else "compute"
    if operation.product and chip.name in LIBRARY:
        batch, m, k, n = operation.product
        itemsize = 4 if operation.dtype == "float32" else 2
        seconds = library_product(
            chip.name, m, k, n, batch=batch, itemsize=itemsize, dtype=operation.dtype
        )
        return Step(operation.name, "library", (seconds, seconds), bound)
    high = LAUNCH + (memory + compute) / REACHED
    return Step(operation.name, "kernel", (max(memory, compute), high), bound)
