"""What a program would take on a GPU: a bracket, and one figure for what a library multiplies.

A GPU's compiler leaves to the hardware what runs at the same time as what. So an estimate says the
least and the most: as if memory, arithmetic and the issue of instructions all overlapped, and as if
they stood in line. How much of each rate a program reaches where it stands in line was fitted to
half of the published times of results/gpu_validation.csv, and the other half says how good that is.
Only of matrix products by cuBLAS there are enough measurements to say one figure: XLA carries them
in its plugin, and two constants a chip were fitted to every other one of them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from kernels.machines.tpu.estimate.bands import Band

# Seconds of a launch, and the share of the tensor cores' rate that whole tiles reach, by chip:
# fitted to half of XLA's measured products in bfloat16, as JAX 0.10's plugin carries them
# (kernels.machines.compat.xla_gpu.products).
LIBRARY = {"h100": (5.5e-6, 0.80), "b200": (6.0e-6, 0.66)}
TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
# The best that anybody published, of the memory's rate and of the tensor cores': a sum of 2^30
# numbers at 3,240 of 3,350 GB/s, and a product of 8192³ at 808 of 989 TFLOP/s (both H100,
# pranjalssh/fast.cu). Of the memory's rate what a loop finds in the cache has more: tokamax's
# normalisation of 147456 × 64 moves 37.7 MB in 8.4 µs. Nothing is taken to be faster.
BEST = {"memory": 0.968, "products": 0.817, "cache": 1.33}
# What the parts reach of their rates where they stand in line, by who wrote the kernel: fitted to
# half of the published times (validation.gpu_times). None was fitted for CUDA C++: it has the
# geometric mean of both.
IN_LINE = {"xla": 0.47, "pallas": 0.73, "cuda": 0.59}
STREAMS = ("fusion", "copy")  # what reads its operands once and writes its result
LAUNCH = 5e-6  # seconds of a kernel besides its work, where nothing overlaps
# What keeps an SM's memory pipe busy for a cycle: a warp's access, shared, global or either.
ACCESSES = ("LD", "ST", "LDS", "STS", "LDSM", "STSM", "LDG", "STG", "LDGSTS")

WRITERS = {"triton": "Triton", "mosaic": "Mosaic GPU"}
# Ends of the names of terms that are numbers, of kernels in loops too.
COUNTED = "launches", "rounds"
EMITTED = "emitted"  # the term of what XLA's own kernels multiply
# What each part of a program takes for a second at its published rate, in seconds, and a launch in
# all; how far figures so made are off, by kind: the middle 80 %, of how many rows, and the seconds
# of the shortest of these, below which there is no figure. Fitted by
# validation.gpu_rates to half of the published times; what has no factor took no time of its own.
# An array is taken to be in the cache as far as it fits.
_XLA = dict(cache=1.06, launches=1.39e-6, memory=1.24, products=1.06, products_float32=1.29)
_XLA |= dict(products_launches=1.67e-6, products_cache=0.857, products_memory=1.43)
_TRITON = dict(
    launches=1.1e-6, memory=0.908, cache=0.483, products=1.62, issue=0.848, accesses=2.12
)
_MOSAIC = dict(launches=2.1e-6, memory=3.81, cache=0.865, products=0.774, issue=0.995)
_MOSAIC |= dict(stream_memory=1.07, stream_cache=1.47)
_PALLAS = (("triton", _TRITON), ("mosaic", _MOSAIC))
FACTORS = {"h100": _XLA | {f"{who}_{part}": f for who, fs in _PALLAS for part, f in fs.items()}}
NOTHING = (0.0, 0.0, 0, 0.0)
BANDS = {
    ("h100", "Mosaic GPU"): (-0.259, 0.383, 49, 2.8e-06),
    ("h100", "Triton"): (-0.249, 0.244, 39, 8.4e-06),
    ("h100", "XLA"): (-0.297, 0.155, 124, 2e-06),
    ("h100", "XLA loops"): (-0.284, 1.051, 20, 2.7e-04),
}


@dataclass(frozen=True)
class GpuStep:
    """A step of the program.

    Args:
        name: of the instruction.
        kind: "library", "kernel" (XLA's) or "pallas".
        seconds: of all its runs, a range; a figure for a library's product.
        bound: "memory", "compute", "issue" or "accesses", whichever takes longest.
        parts: of one run.
        times: how often it runs, as the loops around it tell.
        terms: of all its runs, what FACTORS has factors of: how many launches, how many
            in rounds of a loop, and of everything else the seconds at its published rate.
    """

    name: str
    kind: str
    seconds: Seconds
    bound: str
    parts: Parts = field(repr=False)
    times: int = 1
    terms: Mapping[str, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Parts:
    """What a kernel is made of: the seconds of each part, had it the chip to itself.

    Args:
        memory: of the bytes that it has to move, each array once.
        products: of its multiply-adds at the peak.
        issue: of the instructions of its loop, four a cycle and SM.
        accesses: of the loop's accesses to memory, shared or global, one a cycle and SM.
        cached: of the memory's, what a loop may find in the cache.
    """

    memory: float
    products: float = 0.0
    issue: float = 0.0
    accesses: float = 0.0
    cached: float = 0.0

    @property
    def line(self) -> float:
        """All one after the other."""
        return self.memory + self.products + self.issue + self.accesses

    @property
    def bound(self) -> str:
        """The longest part: "memory", "compute", "issue" or "accesses"."""
        named = dict(zip(("memory", "compute", "issue", "accesses"), astuple(self)))
        return max(named, key=named.__getitem__)

    def bracket(self, who: str, launches: int = 1) -> Seconds:
        """The least and the most seconds of so many kernels, written by one of IN_LINE."""
        one_of("who", who, IN_LINE)
        memory = (self.memory - self.cached) / BEST["memory"] + self.cached / BEST["cache"]
        low = max(memory, self.products / BEST["products"], self.issue, self.accesses)
        return Seconds(low, launches * LAUNCH + self.line / IN_LINE[who])


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

    @property
    def terms(self) -> dict[str, float]:
        """What the figure is made of: the sums of the steps' terms."""
        total: Counter[str] = Counter()
        for step in self.steps:
            total.update(step.terms)
        return dict(total)

    @property
    def kind(self) -> str:
        """Whose code would take longest at the published rates: "Triton", "Mosaic GPU", "XLA" or
        "XLA loops"; "" with products in XLA's own kernels, of which none was timed."""
        seconds: dict[str, float] = defaultdict(float)
        for step in self.steps:
            for term, value in step.terms.items():
                writer = "XLA loops" if step.times > 1 else "XLA"
                writer = WRITERS.get(term.partition("_")[0], writer)
                seconds[writer] += 0 if term.endswith(COUNTED) else value
        return "" if EMITTED in self.terms else max(seconds, key=seconds.__getitem__)

    @property
    def figure(self) -> Seconds | None:
        """One figure, where programs of its kind and no shorter ones were timed on this chip."""
        factors = FACTORS.get(self.chip, {})
        seconds = sum(factors.get(term, 0.0) * value for term, value in self.terms.items())
        return Seconds(seconds) if self._known[2] and seconds >= self._known[3] else None

    @property
    def band(self) -> Band | None:
        """How far figures of this kind are off on this chip, as validation.gpu_rates finds it in
        the fitting half; None without a figure, or with too few rows."""
        from kernels.machines.tpu.estimate.bands import FEWEST, Band

        low, high, rows, _ = self._known
        few = rows < FEWEST or self.figure is None
        return None if few else Band(self.chip, self.kind, low, high, rows)

    @property
    def band_text(self) -> str:
        """The band in words, such as "−8 … +15 %", or why there is none."""
        from kernels.machines.tpu.estimate.bands import none

        return self.band.text if self.band else none(self._known[2] if self.figure else 0)

    @property
    def _known(self) -> tuple[float, float, int, float]:
        return BANDS.get((self.chip, self.kind), NOTHING)


def library_product(
    chip: str, m: int, k: int, n: int, *, batch: int = 1, itemsize: int = 2, dtype: str = "bfloat16"
) -> float:
    """Seconds of a matrix product by cuBLAS: whole waves of whole tiles, or memory, and a launch.

    Args:
        chip: one that LIBRARY has constants of; ValueError for another.
        m, k, n: rows, depth and columns.
        batch: how many products.
        itemsize: bytes of a number.
        dtype: of the operands.
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


def parts(kernel: GpuKernel, flops: float, moved: float, dtype: str = "bfloat16") -> Parts:
    """What a kernel is made of, as its machine code tells; ValueError for flops of a kernel whose
    code multiplies nothing.

    Its multiply-adds are taken to be done in the innermost loop that does any: how many of them a
    round does tells how often the loop runs. Of Blackwell's products one thread issues a whole
    tile, whose size the machine code does not say: their issue and accesses count nothing.

    Args:
        kernel: compiled.
        flops: that it has to do, a multiply-add counting two.
        moved: bytes that it has to move, each array once.
        dtype: of what it multiplies; "" where CUDA cores multiply and no tensor core.
    """
    target = chip_of(kernel.chip)
    memory = moved / target.bytes_per_second
    if not flops:
        return Parts(memory)
    products = flops / (target.peak(dtype) if dtype else target.float32_flops)
    if kernel.counts["UTCHMMA"]:
        return Parts(memory, products)
    loop = _loop(kernel)
    if not loop.instructions:
        fail("kernel", f"{kernel.name}, whose code multiplies nothing", "one that multiplies")
    rounds = flops / sass.flops(loop)  # of all warps
    cycles = rounds / (target.sms * target.tensor_clock_hz)  # of one SM, if all have as many
    accesses = sum(loop.counts[name] for name in ACCESSES)
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
        flops: of its Pallas kernels' products together, a multiply-add counting two; several
            share them as a round of each's loop multiplies. Those of kernels for Triton are counted
            where this is left out; Mosaic GPU's have to be said.
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
    return estimate_compiled(program, compile_program(program, timeout=timeout), flops=flops)


def estimate_compiled(
    program: ExportedProgram, compiled: GpuProgram, *, flops: float | None = None
) -> GpuEstimate:
    """The same of a program that is compiled already.

    Args:
        program: as it was exported.
        compiled: the same, compiled.
        flops: as for estimate, and so are errors.
    """
    target = chip_of(compiled.chip)
    kernels = {kernel.name: kernel for kernel in compiled.kernels}
    done = operations(compiled.module)
    pallas = [step for step in done if step.target in (xla_gpu.TRITON, xla_gpu.MOSAIC)]
    counted = program.calls[: len(pallas)] if flops is None else ()
    calls = dict(itertools.zip_longest(pallas, counted))
    code = {step: _code(compiled, step, calls[step], pallas) for step in pallas}
    whole = sum(sass.flops(_loop(kernel)) for kernel in code.values()) if flops else 0.0
    steps = []
    for operation in done:
        if kernel := code.get(operation):
            share = flops * sass.flops(_loop(kernel)) / whole if flops and whole else flops
            step = _kernel(kernel, operation, calls[operation], share)
        else:  # the names of XLA's kernels lose the dots of their instructions
            step = _step(target, operation, kernels.get(operation.name.replace(".", "_")))
        times = operation.times
        terms = {term: times * value for term, value in step.terms.items()}
        if times > 1 and "launches" in terms:  # while one round runs, the next is launched
            terms["rounds"] = terms.pop("launches")
        span = Seconds(*(times * end for end in step.seconds))
        steps.append(replace(step, seconds=span, times=times, terms=terms))
    if not steps:
        fail("function", "one that does nothing on the GPU", "one with an operation")
    return _sum(compiled, tuple(steps))


def _code(
    compiled: GpuProgram, step: GpuOperation, call: Any, pallas: Sequence[GpuOperation]
) -> GpuKernel:
    """A Pallas kernel's code. Triton's has its step's name, or its author's; Mosaic GPU's are those
    that XLA launches by no name, in the order of their steps, like ones once."""
    launched = [kernel for kernel in compiled.kernels if kernel.grid and kernel.threads]
    if step.target == xla_gpu.MOSAIC:
        named = {thunk.name for thunk in compiled.thunks}
        candidates = [kernel for kernel in launched if kernel.name not in named]
        candidates = candidates[pallas.index(step) :] or candidates[-1:]
    else:
        names = step.name, getattr(call, "name", "")
        candidates = [kernel for kernel in launched if kernel.name in names] or launched
    if not candidates:
        fail("function", f"one whose kernel {step.name} was not found", "one with its code")
    return candidates[0]


def _loop(kernel: GpuKernel) -> sass.SassLoop:
    """The innermost loop that multiplies; of one that was unrolled, all of the code."""
    whole = sass.SassLoop(kernel.instructions)
    return next((loop for loop in (*kernel.loops, whole) if sass.flops(loop)), sass.SassLoop(()))


def _kernel(kernel: GpuKernel, operation: GpuOperation, call: Any, flops: float | None) -> GpuStep:
    """A Pallas kernel: its machine code, and the products that its author wrote."""
    counted = sum(kernel_flops(call).values()) if call is not None and flops is None else 0.0
    many = counted if flops is None else flops
    if flops is None and not many and kernel.products:
        fail("flops", None, f"what {kernel.name} multiplies: nothing here counts it")
    cores = [i.name for i in kernel.instructions if i.operation.endswith("MMA")]
    dtype = "float32" if any("TF32" in name for name in cores) else "bfloat16"
    dtype = "int8" if any(name.startswith("I") for name in cores) else dtype
    made_of = parts(kernel, many, operation.bytes, dtype if cores else "")
    # The SM with the most blocks ends last: what each SM does takes as long as its share of blocks.
    sms, blocks = chip_of(kernel.chip).sms, max(kernel.blocks, 1)
    share = math.ceil(blocks / sms) * sms / blocks
    busiest = {name: share * getattr(made_of, name) for name in ("products", "issue", "accesses")}
    terms = {"launches": 1.0} | busiest | _moves(chip_of(kernel.chip), operation)
    writer = "triton"
    if operation.target == xla_gpu.MOSAIC:  # what multiplies nothing waits for its bytes
        writer = "mosaic" if many else "mosaic_stream"
    terms = {f"{writer}_{part}": seconds for part, seconds in terms.items() if seconds}
    span = made_of.bracket("pallas")
    return GpuStep(kernel.name, "pallas", span, made_of.bound, made_of, terms=terms)


def _moves(chip: GpuChip, operation: GpuOperation) -> dict[str, float]:
    """Seconds of its bytes at the memory's rate: of an array, what does not fit in the cache."""
    missed = sum(max(0.0, 1 - chip.l2_bytes / whole) * moved for whole, moved in operation.moves)
    bytes_ = {"memory": missed, "cache": operation.bytes - missed}
    return {place: count / chip.bytes_per_second for place, count in bytes_.items()}


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
    name = operation.name
    # Of a kernel without their instructions, tensor cores do nothing.
    slow = operation.flops and kernel is not None and not kernel.products
    rate = chip.float32_flops if slow else chip.peak(operation.dtype)
    moves = {"launches": 1.0} | _moves(chip, operation)
    cached = moves["cache"] if operation.times > 1 else 0.0
    memory = operation.bytes / chip.bytes_per_second
    made_of = Parts(memory, operation.flops / rate, cached=cached)
    if operation.product and chip.name in LIBRARY:
        batch, m, k, n = operation.product
        itemsize = 4 if operation.dtype == "float32" else 2
        product = library_product(
            chip.name, m, k, n, batch=batch, itemsize=itemsize, dtype=operation.dtype
        )
        work = product - LIBRARY[chip.name][0]
        wide = "_float32" if operation.dtype == "float32" else ""
        terms = {"launches": 1.0, f"products{wide}": work}
        if work <= made_of.memory:
            terms = {f"products_{term}": value for term, value in moves.items()}
        return GpuStep(name, "library", Seconds(product), made_of.bound, made_of, terms=terms)
    if operation.flops:
        moves[EMITTED] = made_of.products
    return GpuStep(name, "kernel", made_of.bracket("xla"), made_of.bound, made_of, terms=moves)
