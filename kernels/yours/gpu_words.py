"""A compiled program of a GPU in words: its bracket, its tables, and what to change first."""

from collections.abc import Iterator

from kernels.figures.table import Paragraph, Table, format_seconds
from kernels.machines.gpu.explain import GpuFacts, GpuKernelFacts

PASSES = 24  # shown by name in a terminal
KERNELS = 3  # shown one by one
LINES = 12  # of a loop, those that wait longest
LOW = 0.25  # of the warps that an SM could keep: below it, latency shows


def advice(facts: GpuFacts) -> list[str]:
    """What to change first."""
    words = []
    for kernel in facts.kernels:
        name, full, busy = kernel.name, kernel.occupancy, kernel.busy
        if kernel.spills:
            words.append(
                f"{name} spills {kernel.spills} bytes a thread: give the same tile more warps, "
                "or make it smaller"
            )
        if full and full.share < LOW and not kernel.tensor_cores:
            words.append(
                f"{name} keeps {full.share:.0%} of an SM's warps, {full.limiter} allowing no "
                "more: a smaller block, or fewer numbers a thread, would hide more latency"
            )
        if busy is None or busy >= 0.7:
            continue
        if kernel.waves == 1:
            words.append(
                f"{name} has {kernel.blocks:,} blocks, which fill {busy:.0%} of the "
                "GPU's places: more and smaller blocks would use more of it"
            )
        else:
            words.append(
                f"{name} has {kernel.blocks:,} blocks for {kernel.waves} waves that are "
                f"{busy:.0%} full: another tile would waste fewer places"
            )
    return words


def page(facts: GpuFacts, whole: bool) -> Iterator[Table | Paragraph]:
    """Bracket, passes, steps, kernels, and where each stands longest."""
    yield Paragraph(_verdict(facts))
    names = [changed["name"] for changed in facts.passes]
    more = f" and {len(names) - PASSES} more" if len(names) > PASSES and not whole else ""
    shown = ", ".join(names if whole else names[:PASSES])
    yield Paragraph(f"{len(names)} passes changed it: {shown}{more}")
    dims = lambda sizes: " × ".join(map(str, sizes))
    named = ((s, s.name if s.name != s.kind else "") for s in facts.thunks)
    steps = [(s.kind, name, dims(s.grid), dims(s.threads)) for s, name in named]
    yield Table(("step", "name", "blocks", "threads"), steps)
    columns = ("kernel", "registers", "spilled", "shared", "blocks/SM", "occupancy", "limit")
    yield Table((*columns, "waves"), [_row(kernel) for kernel in facts.kernels])
    for kernel in facts.kernels[:KERNELS]:
        loop = kernel.loop
        part = f"{kernel.name}, which has no loop" if loop.whole else f"{kernel.name}'s loop"
        yield Paragraph(
            f"{part}: {loop.instructions} instructions, {loop.issue_cycles} cycles for a warp "
            "that waits for nothing. Where it stands longest:"
        )
        yield _schedule(kernel)


def footer(facts: GpuFacts) -> Iterator[Paragraph]:
    """What there is no figure of, and where the figures come from."""
    yield from (Paragraph(words, lead="note: ") for words in facts.notes)
    if facts.method:
        yield Paragraph(f"by {facts.method}; nothing here was measured", style="dim")


def figures(facts: GpuFacts) -> dict[str, tuple[float | None, str]]:
    """What programs are compared by: the name of a figure → its value, and how it is written."""
    times = {"least, µs": facts.seconds, "figure, µs": facts.figure, "most, µs": facts.most}
    values = {name: time * 1e6 for name, time in times.items() if time is not None}
    shown: dict[str, tuple[float | None, str]] = {n: (v, f"{v:,.4g}") for n, v in values.items()}
    if facts.kernels:
        parts = {"spilled, bytes": "spills", "shared, bytes": "shared_bytes"}
        for name in ("registers", *parts, "instructions"):
            count = max(getattr(kernel, parts.get(name, name)) for kernel in facts.kernels)
            shown[name] = (count, f"{count:,}")
    return shown


def _verdict(facts: GpuFacts) -> str:
    if facts.seconds is None or facts.most is None:
        return "How long it would take is not known."
    low, high = facts.seconds * 1e6, facts.most * 1e6
    if low == high:
        return f"{low:,.3g} µs, estimated as cuBLAS's products are; {facts.bound} binds"
    words = f"{low:,.3g} to {high:,.3g} µs, estimated; {facts.bound} binds"
    if facts.figure is None:
        return f"{words}. No one figure: {facts.band}"
    return f"{words}. In one figure {format_seconds(facts.figure)} ({facts.band})"


def _row(kernel: GpuKernelFacts) -> tuple[str, ...]:
    full = kernel.occupancy
    held = (str(full.blocks), f"{full.share:.0%}", full.limiter) if full else ("",) * 3
    waves = "" if kernel.waves is None else str(kernel.waves)
    own = kernel.name, str(kernel.registers), f"{kernel.spills} B", f"{kernel.shared_bytes:,} B"
    return (*own, *held, waves)


def _schedule(kernel: GpuKernelFacts) -> Table:
    """The instructions of a kernel's loop that wait longest, in their order."""
    lines = kernel.loop.schedule
    slow = sorted(range(len(lines)), key=lambda i: (-lines[i][1] - 16 * len(lines[i][2]), i))
    joined = lambda numbers: "".join(map(str, numbers)) or "·"
    rows = [
        (f"{at:x}", str(stall), joined(waits), joined(sets), text[:70])
        for at, stall, waits, sets, text in (lines[i] for i in sorted(slow[:LINES]))
    ]
    return Table(("at", "stall", "waits", "sets", "instruction"), rows)
