"""One page in the terminal that says where a program's time goes on a TPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kernels.pallas.calls import FAST
from kernels.pallas.work import matmul_flops
from kernels.tpu.chips import CHIPS
from kernels.tpu.diagnose import mib
from kernels.tpu.estimate.result import Estimate, OpEstimate
from kernels.tpu.export import Program
from kernels.tpu.scheduler import KernelSchedule

BAR = 24  # characters of a full bar
OPS = 8  # operations shown; the others are summed up

_SLOTS = ("MXU", "VPU", "XLU", "EUP", "vector load", "vector store", "scalar")


def explain(program: Program, found: Estimate, title: str, console: Console) -> None:
    """Print the page: verdict, roofline, operations, slots, VMEM, HBM traffic, relayouts."""
    chip = CHIPS[found.chip]
    console.print(Text(f"{title}  on {chip.name}", style="bold"))
    console.print(_verdict(found), highlight=False, soft_wrap=True)
    console.print(Group(*_roofline(found)), highlight=False)
    flops = matmul_flops(program.jaxpr, program.calls)
    if flops.get("float32", 0) > sum(flops.values()) / 2:
        console.print(PASSES, highlight=False, soft_wrap=True)
    console.print(_operations(found))
    for op in [op for op in found.ops if op.kind == "kernel"][:3]:
        schedule = next((s for s in found.schedule.kernels if s.name == op.name), None)
        if schedule:
            limit = op.vmem_limit_bytes or chip.vmem_limit_bytes
            console.print(_slots(schedule, limit), highlight=False)
    if not any(op.kind == "kernel" for op in found.ops):
        for schedule in found.schedule.kernels[:1]:
            console.print(_slots(schedule, chip.vmem_limit_bytes), highlight=False)
    for call in program.calls[:3]:
        console.print(_traffic(call))
    _relayouts(found, console)
    console.print(f"[dim]by {found.method}[/]", highlight=False, soft_wrap=True)
    console.print(
        f"[dim]libtpu {found.libtpu}, the compiler's own model; nothing here was measured[/]",
        highlight=False,
    )


def _verdict(found: Estimate) -> str:
    if found.depends:
        least, most = found.range
        upto = f" to {format_seconds(most)}" if math.isfinite(most) else ", and no most"
        names = ", ".join(found.depends)
        return f"estimated at least {format_seconds(least)}{upto}: it depends on {names}"
    return (
        f"estimated {format_seconds(found.seconds)}, {found.cycles:,.0f} cycles at "
        f"{CHIPS[found.chip].clock_hz / 1e9:g} GHz, {found.band_text}: {BINDS[found.bound]}"
    )


PASSES = "float32 products take several bfloat16 passes, so the MXUs are full below the bf16 peak"
BINDS = {
    "compute": "the core's units bind",
    "HBM": "the bandwidth of HBM binds",
    "latency": "waiting binds: neither the units nor the bandwidth are full",
}


def format_seconds(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _size(count: float) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else mib(count)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _bar(share: float) -> Text:
    full = round(min(max(share, 0), 1) * BAR)
    return Text("█" * full + "·" * (BAR - full))


def _roofline(found: Estimate) -> Iterator[Any]:
    chip = CHIPS[found.chip]
    grid = Table.grid(padding=(0, 2))
    reached, peak = found.flops / found.seconds / 1e12, chip.bf16_flops / 1e12
    grid.add_row(
        "of the MXUs' peak",
        _bar(found.utilisation),
        f"{found.utilisation:.0%}",
        f"{_rate(reached)} of {peak:.0f} TFLOP/s (bf16)" if found.flops else "no matrix products",
    )
    grid.add_row(
        "of HBM's bandwidth",
        _bar(found.hbm_utilisation),
        f"{found.hbm_utilisation:.0%}",
        f"{_size(found.hbm_bytes)} at {_rate(found.hbm_bytes / found.seconds / 1e9)} of "
        f"{chip.hbm_bytes_per_second / 1e9:.0f} GB/s",
    )
    yield grid
    if found.flops:
        intensity = found.flops / max(found.hbm_bytes, 1)
        ridge = chip.bf16_flops / chip.hbm_bytes_per_second
        side = "right of it, under the roof" if intensity >= ridge else "left of it, on the slope"
        roof = min(chip.bf16_flops, intensity * chip.hbm_bytes_per_second)
        yield (
            f"roofline: {intensity:.3g} FLOP a byte, the ridge is at {ridge:.0f}: {side}; the roof "
            f"there is {_rate(roof / 1e12)} TFLOP/s"
        )
    if found.optimal_seconds:
        yield f"XLA's own lower bound (optimal_seconds): {format_seconds(found.optimal_seconds)}"


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _titled(title: str, table: Table) -> Group:
    """A title of its own is not folded to the table's width."""
    return Group(Text(title, style="bold"), table)


def _operations(found: Estimate) -> Group:
    table = _table()
    for name, options in (
        ("operation", {"overflow": "ellipsis", "max_width": 34, "no_wrap": True}),
        ("kind", {"no_wrap": True}),
        ("cycles", {"justify": "right", "no_wrap": True}),
        ("share", {"justify": "right"}),
        ("HBM", {"justify": "right", "no_wrap": True}),
        ("binds", {"no_wrap": True}),
    ):
        table.add_column(name, **options)
    ranked = sorted(found.ops, key=lambda op: (-op.cycles, -op.hbm_bytes))
    shown, rest = ranked[:OPS], ranked[OPS:]
    total = sum(op.cycles for op in found.ops) or 1
    for op in shown:
        table.add_row(*_row(op, total))
    if rest:
        table.add_row(
            f"{len(rest)} more",
            "",
            f"{sum(op.cycles for op in rest):,.0f}",
            f"{sum(op.cycles for op in rest) / total:.0%}",
            _size(sum(op.hbm_bytes for op in rest)),
            "",
        )
    return _titled("Operations, the longest first (estimated)", table)


def _row(op: OpEstimate, total: float) -> tuple[str, ...]:
    times = f" ×{op.times}" if op.times > 1 else ""
    return (
        op.name + times,
        op.kind,
        f"{op.cycles:,.0f}",
        f"{op.cycles / total:.0%}",
        _size(op.hbm_bytes),
        op.bound if op.cycles else "",
    )


def _slots(schedule: KernelSchedule, limit: int) -> Group:
    used = schedule.loop_utilisation
    grid = Table.grid(padding=(0, 2))
    for slot in [s for s in _SLOTS if s in used]:
        grid.add_row(f"  {slot}", _bar(used[slot]), f"{used[slot]:.0%}")
    vmem = ""
    if schedule.vmem_bytes:
        vmem = f", {mib(schedule.vmem_bytes)} of {mib(limit)} VMEM"
    head = (
        f"[bold]{schedule.name}[/]: {len(schedule.bundles):,} bundles, "
        f"{schedule.loop_bundles:,} of them in the loop; {schedule.spills:,} spills and "
        f"{schedule.fills:,} fills{vmem}"
    )
    return Group(Text.from_markup(head), Text("  slots that the loop's bundles fill"), grid)


def _traffic(call: Any) -> Group:
    table = _table()
    for name in ("operand", "array", "block", "moved"):
        table.add_column(name, no_wrap=True)
    table.add_column("times", justify="right")
    table.add_column("bytes", justify="right", no_wrap=True)
    for o in call.operands:
        table.add_row(
            f"{o.role} {o.name}",
            f"{o.dtype}[{', '.join(map(str, o.shape))}]",
            "×".join(map(str, o.block)) if o.memory in FAST else "copied by hand",
            o.memory if o.known else f"{o.memory}, at most",
            f"{int(o.moved.sum()):,}" if o.memory in FAST else "",
            _size(call.moved(o)),
        )
    grid = "×".join(map(str, call.grid)) or "1"
    title = f"HBM traffic of {call.name}, grid {grid}, counted from its index maps and its copies"
    return _titled(title, table)


def _relayouts(found: Estimate, console: Console) -> None:
    if not found.relayouts:
        console.print("relayouts: none")
        return
    table = _table()
    table.add_column("operation", no_wrap=True)
    table.add_column("becomes", overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("cycles", justify="right", no_wrap=True)
    for op in sorted(found.relayouts, key=lambda op: -op.cycles)[:OPS]:
        table.add_row(op.name, op.shape, _size(op.hbm_bytes), f"{op.cycles:,.0f}")
    console.print(_titled("Relayouts: data that only changes its place", table))
