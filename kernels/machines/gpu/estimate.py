"""What a program would take on a GPU: a bracket, and one figure for what a library multiplies.

A GPU's compiler leaves to the hardware what runs at the same time as what. So an estimate says the
least and the most: as if memory, arithmetic and the issue of instructions all overlapped, and as if
they stood in line. How much of each rate a program reaches where it stands in line was fitted to
half of the published times of results/gpu_validation.csv, and the other half says how good that is.
Only of matrix products by cuBLAS there are enough measurements to say one figure: XLA carries them
in its plugin, and two constants a chip were fitted to every other one of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

from kernels.machines.base import Seconds
from kernels.machines.checks import fail, one_of
from kernels.machines.compat import xla_gpu
from kernels.machines.exporting import ExportedProgram
from kernels.machines.gpu import sass
from kernels.machines.gpu.chips import GpuChip
from kernels.machines.gpu.chips import chip as chip_of
from kernels.machines.gpu.compiler import TIMEOUT, GpuProgram, compile_program
from kernels.machines.gpu.export import export
from kernels.machines.gpu.kernel import GpuKernel
from kernels.machines.gpu.operations import GpuOperation, operations
from kernels.machines.pallas.work import kernel_flops

# Seconds of a launch, and the share of the tensor cores' rate that whole tiles reach, by chip:
# fitted to half of XLA's measured products in bfloat16, as JAX 0.10's plugin carries them
# (kernels.machines.compat.xla_tables).
LIBRARY = {"h100": (5.5e-6, 0.80), "b200": (6.0e-6, 0.66)}
TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
# The best that anybody published, of the memory's rate and of the tensor cores': a sum of 2^30
# numbers at 3,240 of 3,350 GB/s, and a product of 8192³ at 808 of 989 TFLOP/s (both H100,
# pranjalssh/fast.cu). Nothing is taken to be faster.
BEST = {"memory": 0.968, "products": 0.817}
# What the parts reach of their rates where they stand in line, by who wrote the kernel: fitted to
# half of the published times (validation.gpu_times). None was fitted for CUDA C++: it has the
# geometric mean of both.
IN_LINE = {"xla": 0.47, "pallas": 0.73, "cuda": 0.59}
STREAMS = ("fusion", "copy")  # what reads its operands once and writes its result
LAUNCH = 5e-6  # seconds of a kernel besides its work, where nothing overlaps
# What keeps an SM's memory pipe busy for a cycle: one access of a warp, shared or global.
ACCESSES = ("LDS", "STS", "LDSM", "STSM", "LDG", "STG", "LDGSTS")


@dataclass(frozen=True)
class GpuStep:
    """A step of the program.

    Args:
        name: of the instruction.
        kind: "library", "kernel" (XLA's) or "pallas".
        seconds: a range; a figure for a library's product.
        bound: "memory", "compute", "issue" or "accesses", whichever takes longest.
    """

    name: str
    kind: str
    seconds: Seconds
    bound: str


@dataclass(frozen=True)
class Parts:
    """What a kernel is made of: the seconds of each part, had it the chip to itself.

    Args:
        memory: of the bytes that it has to move, each array once.
        products: of its multiply-adds at the peak.
        issue: of the instructions of its loop, four a cycle and SM.
        accesses: of the loop's accesses to memory, shared or global, one a cycle and SM.
    """

    memory: float
    products: float = 0.0
    issue: float = 0.0
    accesses: float = 0.0

    @property
    def bound(self) -> str:
        """The longest part: "memory", "compute", "issue" or "accesses"."""
        named = dict(zip(("memory", "compute", "issue", "accesses"), astuple(self), strict=True))
        return max(named, key=named.__getitem__)

    def bracket(self, who: str, launches: int = 1) -> Seconds:
        """The least and the most seconds.

        Args:
            who: wrote the kernel: one of IN_LINE.
            launches: how many kernels it is.

        Raises:
            ValueError: for another `who`.
        """
        one_of("who", who, IN_LINE)
        best = self.memory / BEST["memory"], self.products / BEST["products"]
        low = max(*best, self.issue, self.accesses)
        line = self.memory + self.products + self.issue + self.accesses
        return Seconds(low, launches * LAUNCH + line / IN_LINE[who])


@dataclass(frozen=True)
class GpuEstimate:
    """What a program would take. Nothing of it was measured.

    Args:
        name: of the function.
        chip: one of CHIPS.
        seconds: a range, (low, high): all overlapped, and all in line; a figure where all is a
            library's product.
        bound: that of the step that takes most of the least.
        method: where the figures come from, in words.
        steps: of the program.
    """

    name: str
    chip: str
    seconds: Seconds
    bound: str
    method: str
    steps: tuple[GpuStep, ...] = field(repr=False)


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


def parts(
    kernel: GpuKernel,
    flops: float,
    moved: float,
    dtype: str = "bfloat16",
    extra_accesses: float = 0,
) -> Parts:
    """What a kernel is made of, as its machine code tells.

    Its multiply-adds are taken to be done in the innermost loop that does any: how many of them a
    round does tells how often the loop runs.

    Args:
        kernel: compiled.
        flops: that it has to do, a multiply-add counting two.
        moved: bytes that it has to move, each array once.
        dtype: of what it multiplies; "" where CUDA cores multiply and no tensor core.
        extra_accesses: of a round and a warp, beyond one for each instruction: the further lines
            of an access that is not coalesced.

    Returns:
        The parts. Of Blackwell's products one thread issues a whole tile, whose size the machine
        code does not say: their issue and accesses count nothing.

    Raises:
        ValueError: for flops of a kernel whose code multiplies nothing.
    """
    target = chip_of(kernel.chip)
    memory = moved / target.bytes_per_second
    if not flops:
        return Parts(memory)
    products = flops / (target.peak(dtype) if dtype else target.float32_flops)
    if kernel.counts["UTCHMMA"]:
        return Parts(memory, products)
    whole = sass.SassLoop(kernel.instructions)  # of a loop that was unrolled, all of the code
    loop = next((candidate for candidate in (*kernel.loops, whole) if sass.flops(candidate)), None)
    if loop is None:
        fail("kernel", f"{kernel.name}, whose code multiplies nothing", "one that multiplies")
    rounds = flops / sass.flops(loop)  # of all warps
    cycles = rounds / (target.sms * target.tensor_clock_hz)  # of one SM, if all have as many
    accesses = sum(loop.counts[name] for name in ACCESSES) + extra_accesses
    return Parts(memory, products, cycles * len(loop.instructions) / 4, cycles * accesses)


def estimate(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "h100",
    flops: float | None = None,
    timeout: float = TIMEOUT,
) -> GpuEstimate:
    """Say how long `function(*args)` would take on `chip`, at least and at most.

    Args:
        function: of arrays.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.
        flops: of its Pallas kernel's products, a multiply-add counting two. Those of a kernel for
            Triton are counted where this is left out; Mosaic GPU's have to be said.
        timeout: seconds for the compiler.

    Returns:
        An estimate; its seconds are a figure where all is a library's product, else a range.

    Raises:
        GpuCompileError: as compile does.
        ValueError: for an unknown chip, and for a program with more in it than cuBLAS's products,
            what XLA fuses, and Pallas kernels.
        MissingPackage: without the plugin or NVIDIA's tools.
    """
    chip_of(chip)
    program = export(function, *args, chip=chip)
    compiled = compile_program(program, timeout=timeout)
    return estimate_compiled(program, compiled, flops=flops)


def estimate_compiled(
    program: ExportedProgram, compiled: GpuProgram, *, flops: float | None = None
) -> GpuEstimate:
    """The same of a program that is compiled already.

    Args:
        program: as it was exported.
        compiled: the same, compiled.
        flops: as for estimate.

    Raises:
        ValueError: as estimate does.
    """
    target = chip_of(compiled.chip)
    calls, kernels = iter(program.calls), {kernel.name: kernel for kernel in compiled.kernels}
    steps = tuple(
        _kernel(compiled, operation, next(calls, None), flops)
        if operation.target in (xla_gpu.TRITON, xla_gpu.MOSAIC)
        # The names of XLA's kernels lose the dots of their instructions.
        else _step(target, operation, kernels.get(operation.name.replace(".", "_")))
        for operation in operations(compiled.module)
    )
    if not steps:
        fail("function", "one that does nothing on the GPU", "one with an operation")
    return _sum(compiled, steps)


def _kernel(
    compiled: GpuProgram, operation: GpuOperation, call: Any, flops: float | None
) -> GpuStep:
    """A Pallas kernel: its machine code, and the products that its author wrote."""
    launched = [candidate for candidate in compiled.kernels if candidate.grid and candidate.threads]
    names = operation.name, getattr(call, "name", "")
    named = [candidate for candidate in launched if candidate.name in names]
    kernel = next(iter(named or launched), None)
    if kernel is None:
        fail("function", f"one whose kernel {operation.name} was not found", "one with its code")
    counted = dict(kernel_flops(call)) if call is not None and flops is None else {}
    many = sum(counted.values()) if flops is None else flops
    if flops is None and not many and kernel.products:
        fail("flops", None, f"what {kernel.name} multiplies: nothing here counts it")
    dtype = max(counted, key=lambda name: counted[name]) if counted else "bfloat16"
    made_of = parts(kernel, many, operation.bytes, dtype)
    return GpuStep(kernel.name, "pallas", made_of.bracket("pallas"), made_of.bound)


def _sum(compiled: GpuProgram, steps: tuple[GpuStep, ...]) -> GpuEstimate:
    low, high = (sum(step.seconds[end] for step in steps) for end in (0, 1))
    bounds: dict[str, float] = defaultdict(float)
    for step in steps:
        bounds[step.bound] += step.seconds[0]
    kinds = {step.kind for step in steps}
    method = {
        "library": "whole waves of cuBLAS's tiles, fitted to XLA's measured products",
        "kernel": "bytes and operations: all overlapped, and all in line",
        "pallas": "bytes, products and machine code: all overlapped, and all in line",
    }
    words = "; ".join(method[kind] for kind in sorted(kinds, reverse=True))
    bound = max(bounds, key=bounds.__getitem__)
    return GpuEstimate(compiled.name, compiled.chip, Seconds(low, high), bound, words, steps)


def _step(chip: GpuChip, operation: GpuOperation, kernel: GpuKernel | None) -> GpuStep:
    if not (operation.target in STREAMS or operation.target.startswith("__cublas")):
        fail(
            "function",
            f"one with {operation.target} in it, {operation.name}",
            "one of matrix products and of what XLA fuses: of the rest nothing is known here",
        )
    # Of a kernel without their instructions, tensor cores do nothing.
    slow = kernel is not None and not kernel.products
    rate = chip.float32_flops if slow else chip.peak(operation.dtype)
    made_of = Parts(operation.bytes / chip.bytes_per_second, operation.flops / rate)
    if operation.product and chip.name in LIBRARY:
        batch, m, k, n = operation.product
        itemsize = 4 if operation.dtype == "float32" else 2
        seconds = library_product(
            chip.name, m, k, n, batch=batch, itemsize=itemsize, dtype=operation.dtype
        )
        return GpuStep(operation.name, "library", Seconds(seconds), made_of.bound)
    return GpuStep(operation.name, "kernel", made_of.bracket("xla"), made_of.bound)
