"""What is known of a program that was estimated for a TPU: plain data, that JSON can hold.

kernels.yours says it in words.
"""

import itertools
import linecache
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.exporting import ExportedProgram
from kernels.machines.pallas.calls import FAST, Call, Operand
from kernels.machines.pallas.work import kernel_flops, matmul_flops
from kernels.machines.tpu.chips import CHIPS
from kernels.machines.tpu.estimate.result import Estimate
from kernels.machines.tpu.plan import vmem_limit
from kernels.machines.tpu.scheduler import KernelSchedule

HERE = Path(__file__).parent
FETCHES = 512  # fetches written down of an operand

_SLOTS = ("MXU", "VPU", "XLU", "EUP", "vector load", "vector store", "scalar")
# Primitives by the unit that does most of their work; what is in none of them moves nothing.
EUP = (
    *("exp", "exp2", "log", "log1p", "tanh", "logistic", "rsqrt", "sqrt", "erf", "pow"),
    *("sin", "cos"),
)
XLU = ("reduce_sum", "reduce_max", "reduce_min", "transpose", "argmax", "argmin", "roll")
MOVES = ("get", "swap", "load", "masked_load", "masked_swap")
FREE = ("broadcast_in_dim", "reshape", "squeeze", "program_id", "num_programs", "expand_dims")


@dataclass(frozen=True)
class OperationFacts:
    """One operation of a program, all of its runs together: see kernels.tpu.OpEstimate."""

    name: str
    times: int
    kind: str
    cycles: float
    share: float  # of the program's cycles
    hbm_bytes: int
    bound: str  # "" where it takes no time
    shape: str


@dataclass(frozen=True)
class VmemFacts:
    """What a kernel keeps in VMEM, in bytes."""

    buffers: tuple[tuple[str, int], ...]  # name and size of each
    held: int
    limit: int  # that the kernel may take
    chip: int  # that there is
    laid_out: int | None  # by the compiler, where it says so


@dataclass(frozen=True)
class OperandFacts:
    """One operand of a kernel, and what moves of it: see kernels.pallas.Operand."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...]
    memory: str
    known: bool
    aliased: bool
    block_bytes: int
    array_bytes: int
    traffic: int  # bytes moved between HBM and fast memory
    fetches: int  # or write-backs
    # Of the first FETCHES of them: the program, the first element of its block, bytes.
    moves: tuple[tuple[int, tuple[int, ...], int], ...]


@dataclass(frozen=True)
class LineFacts:
    """What a line of a kernel's source asks of a program, by the unit that does it."""

    source: str  # "file.py:line"
    text: str
    flops: int  # of matrix products
    eup: int  # elements: exponentials, roots
    xlu: int  # elements: reductions, transposes
    vpu: int  # elements: the rest
    bytes: int  # loaded and stored


@dataclass(frozen=True)
class RegionFacts:
    """A run of bundles of one loop depth."""

    start: int  # its first bundle
    bundles: int  # how many
    depth: int  # loops around them
    fullest: str  # slot
    share: float  # of that slot
    spills: int
    fills: int


@dataclass(frozen=True)
class KernelFacts:
    """One kernel: its pallas_call where there is one, its schedule where the compiler has one."""

    name: str
    # Of the pallas_call: see kernels.pallas.Call.
    grid: tuple[int, ...] = ()
    semantics: tuple[str, ...] = ()
    programs: int = 0
    scratch: tuple[str, ...] = ()
    vmem: VmemFacts | None = None
    operands: tuple[OperandFacts, ...] = ()
    flops: float = 0  # over the grid
    lines: tuple[LineFacts, ...] = ()  # in the order of the source
    # Of the schedule: see kernels.tpu.KernelSchedule; no bundles where there is none.
    schedule_name: str = ""
    bundles: int = 0
    loop_bundles: int = 0
    step_bundles: int = 0
    spills: int = 0
    fills: int = 0
    slots: Mapping[str, float] = field(default_factory=dict)  # how full in the loop
    regions: tuple[RegionFacts, ...] = ()
    laid_out: int | None = None  # bytes of VMEM, by the compiler


@dataclass(frozen=True)
class TpuFacts:
    """All that is known of an estimated program, in plain numbers: see kernels.tpu.Estimate."""

    title: str
    chip: str
    libtpu: str
    seconds: float | None  # None where data decide that were not given
    cycles: float
    clock_hz: float  # of the chip
    band: str  # how far such estimates were off, in words
    bound: str
    method: str
    notes: tuple[str, ...]
    depends: tuple[str, ...]
    on_data: str  # the same in words
    by_data: tuple[str, ...]  # loops and grids whose length is data that is not given, in words
    trips: Mapping[str, int]  # how often somebody says that they run
    least: float  # seconds
    most: float | None  # seconds; None where a loop's length is unknown
    flops: float
    hbm_bytes: int
    utilisation: float
    hbm_utilisation: float
    peak_flops: float  # of the chip
    hbm_bytes_per_second: float  # of the chip
    optimal_seconds: float | None
    # Of bfloat16, that the MXUs make of a float32 product: 1, 3 or 6, as its precision asks. Empty
    # where most products are of another dtype.
    float32_passes: tuple[int, ...]
    operations: tuple[OperationFacts, ...]  # the longest first
    kernels: tuple[KernelFacts, ...]  # of each pallas_call, or else the longest fusion
    dtypes: tuple[str, ...]  # what the chip makes of the program's, a sentence each


# What has one name there and here.
_OF_ESTIMATE = (
    *("chip", "libtpu", "cycles", "bound", "method", "notes", "depends", "on_data", "flops"),
    *("hbm_bytes", "utilisation", "hbm_utilisation", "optimal_seconds"),
)
_OF_OPERATION = ("name", "times", "kind", "cycles", "hbm_bytes", "shape")
_OF_OPERAND = (
    *("name", "role", "shape", "dtype", "block", "memory", "known", "aliased", "block_bytes"),
)
_OF_SCHEDULE = ("loop_bundles", "step_bundles", "spills", "fills")


def facts(program: ExportedProgram, estimate: Estimate, title: str) -> TpuFacts:
    """All that is known of an estimated program."""
    chip = CHIPS[estimate.chip]
    flops = matmul_flops(program.jaxpr, program.calls)
    in_float32 = flops.get("float32", 0) > sum(flops.values()) / 2
    passes = {jaxprs.passes(equation) for equation in jaxprs.equations(program.jaxpr)} - {0}
    total = sum(op.cycles for op in estimate.ops) or 1
    schedules = {schedule.name: schedule for schedule in estimate.schedule.kernels}
    kernels = []
    ops = [op for op in estimate.ops if op.kind == "kernel"]
    for place, call in enumerate(program.calls):
        op = next((o for o in ops if o.call is call), ops[place] if place < len(ops) else None)
        kernels.append(_of_call(call, estimate.chip, schedules.get(op.name) if op else None))
    if not kernels:
        fusions = estimate.schedule.kernels[:1]
        kernels = [_scheduled(KernelFacts(fusion.name), fusion) for fusion in fusions]
    return TpuFacts(
        **{name: getattr(estimate, name) for name in _OF_ESTIMATE},
        title=title,
        seconds=None if estimate.depends else estimate.cycles / chip.clock_hz,
        clock_hz=chip.clock_hz,
        band=estimate.band_text,
        by_data=_by_data(program, estimate),
        trips=dict(program.trips),
        least=estimate.seconds.low,
        most=estimate.seconds.high if math.isfinite(estimate.seconds.high) else None,
        peak_flops=chip.bf16_flops,
        hbm_bytes_per_second=chip.hbm_bytes_per_second,
        float32_passes=tuple(sorted(passes)) * in_float32,
        operations=tuple(
            OperationFacts(
                **{name: getattr(op, name) for name in _OF_OPERATION},
                share=op.cycles / total,
                bound=op.bound if op.cycles else "",
            )
            for op in sorted(estimate.ops, key=lambda op: (-op.cycles, -op.hbm_bytes))
        ),
        kernels=tuple(kernels),
        dtypes=dtypes(program, estimate.chip),
    )


def kernels_of(program: ExportedProgram, chip: str) -> tuple[KernelFacts, ...]:
    """What is known of a program's kernels before they are compiled."""
    try:
        return tuple(_of_call(call, chip, None) for call in program.calls)
    except ValueError:  # a grid too long to look at
        return ()


def _of_call(call: Call, chip: str, schedule: KernelSchedule | None) -> KernelFacts:
    buffers = call.buffers()
    kernel = KernelFacts(
        name=call.name,
        grid=call.grid,
        semantics=call.semantics,
        programs=math.prod(call.grid),
        scratch=call.scratch,
        vmem=VmemFacts(
            buffers=buffers,
            held=sum(size for _, size in buffers),
            limit=vmem_limit(call, chip),
            chip=CHIPS[chip].vmem_bytes,
            laid_out=schedule.vmem_bytes if schedule else None,
        ),
        operands=tuple(_operand(call, operand) for operand in call.operands),
        flops=sum(kernel_flops(call).values()),
        lines=_work_by_line(call.equation),
    )
    return _scheduled(kernel, schedule) if schedule else kernel


def _operand(call: Call, operand: Operand) -> OperandFacts:
    moved = np.flatnonzero(operand.moved) if operand.memory in FAST else np.zeros(0, int)
    return OperandFacts(
        **{name: getattr(operand, name) for name in _OF_OPERAND},
        array_bytes=math.prod(operand.shape) * np.dtype(operand.dtype).itemsize,
        traffic=call.moved(operand),
        fetches=len(moved),
        moves=tuple(
            (int(p), tuple(int(i) for i in operand.starts[p]), int(operand.moved_bytes[p]))
            for p in (moved[:FETCHES] if operand.known else ())
        ),
    )


def _scheduled(kernel: KernelFacts, schedule: KernelSchedule) -> KernelFacts:
    inside = schedule.loop_utilisation
    return replace(
        kernel,
        **{name: getattr(schedule, name) for name in _OF_SCHEDULE},
        schedule_name=schedule.name,
        bundles=len(schedule.bundles),
        slots={slot: inside[slot] for slot in _SLOTS if slot in inside},
        regions=_regions(schedule),
        laid_out=schedule.vmem_bytes,
    )


def _regions(schedule: KernelSchedule) -> tuple[RegionFacts, ...]:
    """A kernel's bundles in the parts that its control flow makes of them, in order."""
    regions = []
    stop = 0
    for depth, group in itertools.groupby(bundle.depth for bundle in schedule.bundles):
        start, stop = stop, stop + len(list(group))
        rows = schedule.occupancy[start:stop]
        if len(rows):
            shares = rows.sum(0) / np.maximum(schedule.capacity * len(rows), 1)
            named = [(float(s), n) for n, s in zip(schedule.slots, shares) if n in _SLOTS]
            share, slot = max(named, default=(0.0, ""))
            held = {n: int(c) for n, c in zip(schedule.slots, rows.sum(0))}
            spills, fills = held.get("spill", 0), held.get("fill", 0)
            region = RegionFacts(start, stop - start, depth, slot, share, spills, fills)
            regions.append(region)
    return tuple(regions)


def _by_data(program: ExportedProgram, estimate: Estimate) -> tuple[str, ...]:
    """The loops and grids whose length is data that is not given, in words."""
    names = dict.fromkeys(words for call in program.calls for words in call.by_data)
    by_data = program.rounds is None or "" in program.trips
    if by_data and estimate.compiled and not all(i.counted for i in estimate.compiled.module.run):
        names["a loop of the program"] = None
    return tuple(names)


# --- the work of each line ------------------------------------------------------------------------


def _work_by_line(equation: Any) -> tuple[LineFacts, ...]:
    """What each line of a pallas_call's kernel asks of a program, in order of the source. A branch
    counts as if it were taken, a loop as often as it runs where that is known."""
    counts: dict[tuple[str, int], Counter[str]] = {}
    _count(jax_pallas.kernel(equation), 1, None, counts)
    ordered = sorted(counts.items(), key=lambda item: (Path(item[0][0]).name, item[0][1]))
    return tuple(
        LineFacts(
            f"{Path(file).name}:{line}",
            " ".join(linecache.getline(file, line).split()),
            **{unit: round(work[unit]) for unit in ("flops", "eup", "xlu", "vpu", "bytes")},
        )
        for (file, line), work in ordered
    )


def _count(
    jaxpr: Any,
    times: int,
    outer: tuple[str, int] | None,
    counts: dict[tuple[str, int], Counter[str]],
) -> None:
    for equation in jaxprs.own_equations(jaxpr):
        # What the kernel's author wrote, and not JAX's.
        frames = ((file, n) for file, n in jaxprs.frames(equation) if "/jax/_src/" not in file)
        own = (f for f in frames if f[0][:1] != "<" and Path(f[0]).parent != HERE)
        line = next(own, outer)
        name = jaxprs.operation(equation)
        inner = list(jaxprs.inner_jaxprs(equation))
        runs = jaxprs.loop(equation)[1] if name in ("scan", "while") else 1
        for body in inner:
            _count(body, times * (runs or 1), line, counts)
        if inner:
            continue
        if line is None or name in FREE:
            continue
        variables = (*jaxprs.inputs(equation), *jaxprs.outputs(equation))
        elements = max((math.prod(jaxprs.shape(v) or ()) for v in variables), default=0)
        if elements <= 1:
            continue
        work = counts.setdefault(line, Counter())
        if name == "dot_general":
            work["flops"] += times * jaxprs.dot_flops(equation)
        elif name in MOVES:
            value = jaxprs.outputs(equation)[0]
            size = math.prod(jaxprs.shape(value)) * np.dtype(jaxprs.dtype(value)).itemsize
            work["bytes"] += times * size
        else:
            work["eup" if name in EUP else "xlu" if name in XLU else "vpu"] += times * elements


# --- dtypes ---------------------------------------------------------------------------------------


def dtypes(program: ExportedProgram, chip: str) -> tuple[str, ...]:
    """What a chip makes of a program's dtypes, a sentence each."""
    products = {name for name, count in matmul_flops(program.jaxpr).items() if count}
    inside: set[str] = set()
    for call in jax_pallas.outside_kernels(program.jaxpr):
        if jax_pallas.is_kernel(call) and not jax_pallas.on_sparse_core(call):
            inside |= _vector_dtypes(jax_pallas.kernel(call))
    words = []
    peak = CHIPS[chip].bf16_flops / 1e12
    if "float32" in products:
        reach = f"{peak:.0f} TFLOP/s is one"
        words.append(
            f"products of float32: as many bfloat16 passes as their precision has; {reach}"
        )
    if "bfloat16" in products:
        words.append(f"products of bfloat16: the MXU's own, {peak:.0f} TFLOP/s at most")
    if products & {"int8", "uint8"}:
        words.append(f"products of int8: {CHIPS[chip].int8_ops / 1e12:.0f} TOP/s at most")
    for odd in sorted(products - {"float32", "bfloat16", "int8", "uint8"}):
        words.append(f"products of {odd}: no rate is published for this chip; look at the schedule")
    if "bfloat16" in inside:
        how = "the vector unit takes it, two numbers in a lane"
        if chip == "v5e":
            how = "a v5e has no bfloat16 vector unit, so each operation is done in float32, with "
            how += "conversions around it"
        words.append(f"arithmetic of bfloat16 in the kernel: {how}")
    if odd := ", ".join(sorted(inside & {"float16", "float64", "int64"})):
        words.append(f"arithmetic of {odd}: no TPU has it")
    return tuple(words)


def _vector_dtypes(jaxpr: Any) -> set[str]:
    plain = (*MOVES, *FREE, "dot_general", "convert_element_type")
    results = [
        jaxprs.outputs(equation)[0]
        for equation in jaxprs.equations(jaxpr)
        if jaxprs.operation(equation) not in plain and jaxprs.outputs(equation)
    ]
    return {jaxprs.dtype(result) for result in results if jaxprs.shape(result)}
