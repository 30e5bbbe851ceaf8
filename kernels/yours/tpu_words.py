"""An estimated program of a TPU in words: what binds it, its tables, and what to change first."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from kernels.figures.table import Paragraph, Table, format_bytes, format_dims, format_seconds
from kernels.machines.base import Seconds
from kernels.machines.hlo import DTYPES
from kernels.machines.pallas.calls import FAST
from kernels.machines.tpu.diagnose import TpuCompileError, mib
from kernels.machines.tpu.explain import KernelFacts, TpuFacts, VmemFacts

BAR = 24  # characters of a full bar
KERNELS = 3  # shown one by one
# Rows of a table, in a terminal and on a page.
OPERATIONS = (8, 20)
REGIONS = (8, 40)
LINES = (12, 40)  # of the source, those with the most work

SHORT = {name: short for short, name in DTYPES.items()}  # as the compiler writes a dtype
Figures = dict[str, tuple[float | None, str]]  # name → the value, and how it is written
PASSES = {
    1: "float32 products of default precision are one pass, of factors rounded to bfloat16",
    3: "float32 products of high precision are 3 bfloat16 passes",
    6: "float32 products of the highest precision are 6 bfloat16 passes: the MXUs are full at a "
    "sixth of the bf16 peak",
}
BINDS = {
    "compute": "the core's units bind",
    "HBM": "the bandwidth of HBM binds",
    "latency": "latency binds: it waits, and neither the units nor the bandwidth are full",
    "link": "the links to other chips bind",
}


# --- what to change first -------------------------------------------------------------------------


def advice(facts: TpuFacts) -> list[str]:
    """What to change first, the most promising before the others."""
    words: list[str] = []  # on what binds
    beside: list[str] = []  # on the rest
    bound = facts.bound if facts.seconds is not None else ""  # where data decide, nobody knows
    for kernel in facts.kernels:
        if kernel.spills:
            (words if bound == "compute" else beside).append(
                f"{kernel.name} runs out of registers: {kernel.spills:,} spills; work on "
                "smaller pieces of a block at a time"
            )
        if bound == "HBM":
            again = [
                o for o in kernel.operands if o.role == "input" and o.traffic > 1.5 * o.array_bytes
            ]
            for o in sorted(again, key=lambda o: o.array_bytes - o.traffic)[:1]:
                words.append(
                    f"{o.name} comes from HBM {o.traffic / o.array_bytes:.1f} times over: "
                    "larger blocks along the other operands' dimensions, or another order of the "
                    "grid, fetch it less often"
                )
        steps = kernel.programs
        if bound == "latency" and steps > 1 and facts.cycles / steps < 1000:
            words.append(
                f"a grid step takes {facts.cycles / steps:,.0f} cycles, too few to hide the next "
                "fetch behind: make the blocks larger"
            )
    if bound == "link":
        words.append(
            "links carry both ways at once: send half of the rows around the ring the other way, "
            "and multiply while they are under way"
        )
    moved = sum(op.share for op in facts.operations if op.kind == "relayout")
    if moved > 0.1 and bound:
        words.insert(
            0 if moved > 0.4 else len(words),
            f"{moved:.0%} of the time only moves data into another layout: hand the kernel its "
            "operands in the layout in which they are",
        )
    if bound == "compute" and max(facts.float32_passes, default=1) > 1:
        words.append("the products are of float32: bfloat16 operands need a fraction of the passes")
    return words + beside


def first_change(error: TpuCompileError, kernels: Sequence[KernelFacts], chip: str) -> str:
    """What to change first of a program that the compiler refused."""
    sized = [(kernel, kernel.vmem) for kernel in kernels if kernel.vmem]
    if error.kind != "vmem" or not sized:
        return error.accepted or "what the message says"
    kernel, vmem = max(sized, key=lambda pair: pair[1].held)
    asked = error.asked_bytes or vmem.held
    if asked <= 0.9 * vmem.chip and vmem.limit < vmem.chip:
        return (
            f"{kernel.name}: a {chip} has {mib(vmem.chip)} of VMEM, and grants "
            f"{mib(vmem.limit)} unasked: "
            f"CompilerParams(vmem_limit_bytes={math.ceil(asked * 1.1 / 2**20)} << 20)"
        )
    blocks = [o for o in kernel.operands if o.memory == "vmem"]
    if not blocks:
        return f"{kernel.name}: make the scratch smaller"
    largest = max(blocks, key=lambda o: o.block_bytes)
    halved = [*largest.block]
    axis = max(range(len(halved)), key=lambda i: halved[i])
    halved[axis] = max(halved[axis] // 2, 1)
    buffers = 2 if largest.fetches > 1 else 1
    return (
        f"{kernel.name}: halve the block of {largest.name}, {format_dims(largest.block)}, to "
        f"{format_dims(halved)}: {mib(largest.block_bytes * buffers / 2)} less of "
        f"{mib(vmem.held)}, where {mib(vmem.limit)} may be used"
    )


# --- a page ---------------------------------------------------------------------------------------


def page(facts: TpuFacts, whole: bool) -> Iterator[Table | Paragraph]:
    """Verdict, roofline, operations, slots, VMEM, traffic."""
    yield Paragraph(_verdict(facts))
    if facts.by_data:
        yield Paragraph(_decided_by_data(facts))
    if facts.seconds is not None:
        yield from _roofline(facts, facts.seconds)
    for count in facts.float32_passes:
        yield Paragraph(PASSES[count])
    yield _operations(facts, whole)
    for kernel in facts.kernels[:KERNELS]:
        yield from kernel_page(kernel, whole)
    yield _relayouts(facts)


def footer(facts: TpuFacts) -> Iterator[Paragraph]:
    """Where the figures come from."""
    yield Paragraph(f"by {facts.method}", style="dim")
    source = "the compiler's own model; nothing here was measured"
    yield Paragraph(f"libtpu {facts.libtpu}, {source}", style="dim")


def kernel_page(kernel: KernelFacts, whole: bool) -> Iterator[Table | Paragraph]:
    """Slots, VMEM, traffic and the work of each line."""
    if kernel.bundles:
        yield from _slots(kernel, whole)
    if kernel.vmem:
        yield _vmem(kernel.name, kernel.vmem)
        yield _traffic(kernel, whole)
        if kernel.lines:
            yield _lines(kernel, whole)


def figures(facts: TpuFacts) -> Figures:
    """What programs are compared by: the name of a figure → its value, and how it is written."""
    own = kernel_figures(facts.kernels)
    if facts.seconds is None:  # what is counted once is no figure
        own.pop("grid steps", None)
        least = f"at least {facts.least * facts.clock_hz:,.0f}"
        return {"time": (None, time_of(facts)), "cycles": (None, least), **own}
    return {
        "time": (facts.seconds, time_of(facts)),
        "cycles": (facts.cycles, f"{facts.cycles:,.0f}"),
        "binds": (None, facts.bound),
        "moved in HBM": (facts.hbm_bytes, format_bytes(facts.hbm_bytes)),
        "of the MXUs' peak": (facts.utilisation, f"{facts.utilisation:.0%}"),
        "of HBM's bandwidth": (facts.hbm_utilisation, f"{facts.hbm_utilisation:.0%}"),
        **own,
    }


def kernel_figures(kernels: Sequence[KernelFacts]) -> Figures:
    """The same of the first of some kernels."""
    figures: Figures = {}
    for kernel in kernels[:1]:
        counts = {}
        if kernel.vmem:
            counts["grid steps"] = kernel.programs
        if kernel.bundles:
            counts["bundles"] = kernel.bundles
            counts["bundles in the loop"] = kernel.loop_bundles
            counts["spills"] = kernel.spills
        figures = {name: (count, f"{count:,}") for name, count in counts.items()}
        if kernel.vmem:
            figures["held in VMEM"] = kernel.vmem.held, mib(kernel.vmem.held)
    return figures


def time_of(facts: TpuFacts) -> str:
    """The time in words: where data decide that were not given, from the least to the most."""
    return format_seconds(Seconds(facts.least, math.inf if facts.most is None else facts.most))


def _verdict(facts: TpuFacts) -> str:
    if facts.on_data:
        return f"estimated {time_of(facts)}; {facts.on_data}"
    return (
        f"estimated {time_of(facts)}, {facts.cycles:,.0f} cycles at "
        f"{facts.clock_hz / 1e9:g} GHz ({facts.band}): {BINDS[facts.bound]}"
    )


def _decided_by_data(facts: TpuFacts) -> str:
    """Which loops and grids are as long as data says, and how long they were taken to be."""
    names = ", ".join(facts.by_data)
    if not facts.trips:
        return f"data decides how long these are: {names}; each counts once, --trips says otherwise"
    said = ", ".join(f"{k}={v}" if k else f"{v}" for k, v in facts.trips.items())
    return f"data decides how long these are: {names}; counted with --trips {said}"


def _bar(share: float) -> str:
    full = round(min(max(share, 0), 1) * BAR)
    return "█" * full + "·" * (BAR - full)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _roofline(facts: TpuFacts, seconds: float) -> Iterator[Table | Paragraph]:
    seconds, moved = seconds or 1e-12, facts.hbm_bytes
    peak, bandwidth = facts.peak_flops, facts.hbm_bytes_per_second
    reached = f"{_rate(facts.flops / seconds / 1e12)} of {peak / 1e12:.0f} TFLOP/s (bf16)"
    from_hbm = f"{_rate(moved / seconds / 1e9)} of {bandwidth / 1e9:.0f} GB/s"
    rates = (
        ("of the MXUs' peak", facts.utilisation, reached if facts.flops else "no matrix products"),
        ("of HBM's bandwidth", facts.hbm_utilisation, f"{format_bytes(moved)} at {from_hbm}"),
    )
    yield Table((), [(name, _bar(share), f"{share:.0%}", words) for name, share, words in rates])
    if facts.flops:
        intensity, ridge = facts.flops / max(moved, 1), peak / bandwidth
        side = "right of it, under the roof" if intensity >= ridge else "left of it, on the slope"
        yield Paragraph(
            f"roofline: {intensity:.3g} FLOP a byte, the ridge is at {ridge:.0f}: {side}; the roof "
            f"there is {_rate(min(peak, intensity * bandwidth) / 1e12)} TFLOP/s"
        )
    if facts.optimal_seconds:
        seconds_by_xla = format_seconds(facts.optimal_seconds)
        yield Paragraph(f"XLA's own estimate (optimal_seconds): {seconds_by_xla}")


def _operations(facts: TpuFacts, whole: bool) -> Table:
    most = OPERATIONS[whole]
    rows = []
    for op in facts.operations[:most]:
        name = _clipped(op.name + f" ×{op.times}" * (op.times > 1), 34, whole)
        counts = f"{op.cycles:,.0f}", f"{op.share:.0%}", format_bytes(op.hbm_bytes)
        rows.append((name, op.kind, *counts, op.bound))
    if rest := facts.operations[most:]:
        cycles, share = (sum(values) for values in zip(*((op.cycles, op.share) for op in rest)))
        moved = format_bytes(sum(op.hbm_bytes for op in rest))
        rows.append((f"{len(rest)} more", "", f"{cycles:,.0f}", f"{share:.0%}", moved, ""))
    columns = ("operation", "kind", "cycles", "share", "HBM", "binds")
    counted = "; what data decides counts once" * (facts.seconds is None)
    title = f"Operations, the longest first (estimated{counted})"
    return Table(columns, rows, title, right=columns[2:5])


def _clipped(text: str, most: int, whole: bool) -> str:
    return text if whole or len(text) <= most else text[: most - 1] + "…"


def _slots(kernel: KernelFacts, whole: bool) -> Iterator[Table | Paragraph]:
    vmem = ""
    if kernel.laid_out:
        limit = f" of {mib(kernel.vmem.limit)}" if kernel.vmem else ""
        vmem = f", {mib(kernel.laid_out)}{limit} VMEM"
    yield Paragraph(
        f": {kernel.bundles:,} bundles, {kernel.loop_bundles:,} of them in the loop; "
        f"{kernel.spills:,} spills and {kernel.fills:,} fills{vmem}",
        lead=kernel.schedule_name,
    )
    slots = [(f"  {slot}", _bar(share), f"{share:.0%}") for slot, share in kernel.slots.items()]
    yield Table((), slots, "  slots that the loop's bundles fill")
    rows = []
    largest = sorted(kernel.regions, key=lambda r: -r.bundles)[: REGIONS[whole]]
    for region in sorted(largest, key=lambda r: r.start):
        where = f"in {region.depth} loop{'s' * (region.depth > 1)}" if region.depth else "once"
        full = f"{region.fullest} {region.share:.0%}" if region.share >= 0.005 else ""
        lost = f"{region.spills} spills" if region.spills else ""
        span = f"  bundles {region.start:,} to {region.start + region.bundles - 1:,}"
        rows.append((span, where, full, lost))
    yield Table((), rows, "  the schedule in order, and the fullest slot of each part")


def _vmem(name: str, vmem: VmemFacts) -> Paragraph:
    sums = " + ".join(f"{buffer} {mib(size)}" for buffer, size in vmem.buffers) or "nothing"
    fits = "fits" if vmem.held <= vmem.limit else "does not fit"
    return Paragraph(
        f"VMEM of {name}: {sums} = {mib(vmem.held)}, of {mib(vmem.limit)} that it "
        f"may have: {fits}, before the compiler's own temporaries"
    )


def _traffic(kernel: KernelFacts, whole: bool) -> Table:
    rows = []
    for o in kernel.operands:
        fast = o.memory in FAST
        array = f"{SHORT.get(o.dtype, o.dtype)}[{','.join(map(str, o.shape))}]"
        block = format_dims(o.block) if fast else "copied by hand"
        memory = o.memory if o.known else f"{o.memory}, at most"
        counts = f"{o.fetches:,}" if fast else "", format_bytes(o.traffic)
        steps = _steps([move[0] for move in o.moves], o.fetches)
        rows.append((f"{o.role} {o.name}", array, block, memory, *counts, steps))
    grid = format_dims(kernel.grid)
    if whole and kernel.semantics:
        grid += f" ({', '.join(kernel.semantics)})"
    columns = ("operand", "array", "block", "moved", "times", "bytes", "at step")
    title = f"HBM traffic of {kernel.name}, grid {grid}, counted from its index maps and its copies"
    return Table(columns, rows, title, right=columns[4:6])


def _steps(steps: Sequence[int], count: int) -> str:
    """Where blocks are fetched: 0, 8, 16 … or a stride that they keep."""
    if not steps:
        return ""
    if len(steps) > 3:
        strides = set(np.diff(steps).tolist())
        if len(strides) == 1:
            stride = strides.pop()
            every = "step" if stride == 1 else f"{stride} steps"
            return f"every {every}" + (f" from {steps[0]}" if steps[0] else "")
    return ", ".join(map(str, steps[:3])) + (" …" if count > 3 else "")


def _lines(kernel: KernelFacts, whole: bool) -> Table:
    units = {"FLOP": "flops", "EUP": "eup", "XLU": "xlu", "VPU": "vpu", "bytes": "bytes"}
    weight = lambda line: line.flops / 256 + 4 * line.eup + 2 * line.xlu + line.vpu
    heaviest = sorted(kernel.lines, key=weight, reverse=True)[: LINES[whole]]
    counts = lambda line: [_count_of(getattr(line, unit)) for unit in units.values()]
    shown = (line for line in kernel.lines if line in heaviest)
    rows = [(line.source, _clipped(line.text, 30, whole), *counts(line)) for line in shown]
    title = f"What each line of {kernel.name} asks of a program, by the unit that does it"
    return Table(("line", "source", *units), rows, title, right=tuple(units))


def _count_of(value: float) -> str:
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.0f}" if value else ""


def _relayouts(facts: TpuFacts) -> Table | Paragraph:
    relayouts = [op for op in facts.operations if op.kind == "relayout"]
    if not relayouts:
        return Paragraph("relayouts: none")
    rows = [
        (op.name, op.shape, format_bytes(op.hbm_bytes), f"{op.cycles:,.0f}")
        for op in relayouts[: OPERATIONS[0]]
    ]
    title = "Relayouts: data that only changes its place"
    return Table(("operation", "becomes", "bytes", "cycles"), rows, title, ("bytes", "cycles"))
