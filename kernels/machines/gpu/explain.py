"""What a GPU would run of a program: as plain data, and as one page in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernels.machines.gpu.chips import chip as chip_of
from kernels.machines.gpu.compiler import GpuProgram
from kernels.machines.gpu.errors import GpuCompileError
from kernels.machines.gpu.estimate import GpuEstimate
from kernels.machines.gpu.kernel import GpuKernel
from kernels.machines.gpu.sass import SassLoop

PASSES = 24  # shown by name
KERNELS = 3  # shown one by one
LINES = 12  # of a loop, those that wait longest
OPERATIONS = 8  # of a kernel, the most frequent
LOW = 0.25  # of the warps that an SM could keep: below it, latency shows


def facts(compiled: GpuProgram, found: GpuEstimate | str, title: str) -> dict[str, Any]:
    """All that is known of a compiled program, as JSON can hold it.

    Args:
        compiled: with its passes.
        found: its bracket, or why there is none.
        title: what it is called.

    Returns:
        Seconds and bytes are numbers; `seconds` is the least and `most` the most, both None where
        there is no bracket.
    """
    bracket = isinstance(found, GpuEstimate)
    made: dict[str, Any] = {
        "title": title,
        "chip": compiled.chip,
        "seconds": found.seconds[0] if isinstance(found, GpuEstimate) else None,
        "most": found.seconds[1] if isinstance(found, GpuEstimate) else None,
        "bound": found.bound if isinstance(found, GpuEstimate) else "",
        "method": found.method if isinstance(found, GpuEstimate) else "",
        "notes": [] if bracket else [f"no bracket: {found}"],
        "compile_seconds": compiled.seconds,
        "memory": dict(compiled.memory),
        "passes": [{"name": each.name, "pipeline": each.pipeline} for each in compiled.passes],
        "thunks": [
            {
                "kind": each.kind,
                "name": each.name,
                "grid": list(each.grid),
                "threads": list(each.threads),
                "shared_bytes": each.shared_bytes,
            }
            for each in compiled.thunks
        ],
        "kernels": [_kernel(each) for each in compiled.kernels],
        "dtypes": [],
    }
    made["advice"] = advice(made)
    return made


def refusal(error: GpuCompileError, title: str, chip: str) -> dict[str, Any]:
    """What is known of a program that a compiler refused: why.

    Args:
        error: the refusal.
        title: what it is called.
        chip: that it was meant for.
    """
    return {
        "title": title,
        "chip": chip,
        "error": {"kind": error.kind, "message": str(error), "source": ""},
        "kernels": [],
        "advice": [],
        "dtypes": [],
    }


def _kernel(kernel: GpuKernel) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": kernel.name,
        "blocks": kernel.blocks,
        "threads": kernel.threads,
        "registers": kernel.registers,
        "spills": kernel.spills,
        "shared_bytes": kernel.shared_bytes,
        "instructions": len(kernel.instructions),
        "counts": dict(kernel.counts.most_common(OPERATIONS)),
        "tensor_cores": kernel.products,
    }
    if kernel.threads:
        full = kernel.occupancy
        places = full.blocks * chip_of(kernel.chip).sms
        waves = -(-kernel.blocks // places)
        made["occupancy"] = {
            "blocks": full.blocks,
            "warps": full.warps,
            "share": full.share,
            "limiter": full.limiter,
            "limits": dict(full.limits),
        }
        made["waves"] = waves
        made["busy"] = kernel.blocks / (waves * places) if waves else None
    whole = SassLoop(kernel.instructions)
    made["loop"] = _loop(max(kernel.loops, key=_weight, default=whole)) | {
        "whole": not kernel.loops
    }
    return made


def _weight(loop: SassLoop) -> tuple[int, int]:
    """The loop that counts is the one that multiplies, and of those the shortest."""
    products = sum(n for name, n in loop.counts.items() if name.endswith("MMA") or name == "FFMA")
    return products, -len(loop.instructions)


def _loop(loop: SassLoop) -> dict[str, Any]:
    return {
        "instructions": len(loop.instructions),
        "issue_cycles": loop.issue_cycles,
        "counts": dict(loop.counts.most_common(OPERATIONS)),
        "schedule": [
            [each.address, each.stall, list(each.waits), list(each.sets), each.text]
            for each in loop.instructions
        ],
    }


def advice(made: Mapping[str, Any]) -> list[str]:
    """What to change first.

    Args:
        made: as `facts` has it so far.
    """
    found = []
    for kernel in made["kernels"]:
        name, full = kernel["name"], kernel.get("occupancy")
        if kernel["spills"]:
            found.append(
                f"{name} spills {kernel['spills']} bytes a thread: give the same tile more warps, "
                "or make it smaller"
            )
        if full and full["share"] < LOW and not kernel["tensor_cores"]:
            found.append(
                f"{name} keeps {full['share']:.0%} of an SM's warps, {full['limiter']} allowing no "
                "more: a smaller block, or fewer numbers a thread, would hide more latency"
            )
        if kernel.get("waves") == 1 and kernel["busy"] < 0.7:
            found.append(
                f"{name} has {kernel['blocks']:,} blocks, which fill {kernel['busy']:.0%} of the "
                "GPU's places: more and smaller blocks would use more of it"
            )
        elif kernel.get("waves") and kernel["busy"] < 0.7:
            found.append(
                f"{name} has {kernel['blocks']:,} blocks for {kernel['waves']} waves that are "
                f"{kernel['busy']:.0%} full: another tile would waste fewer places"
            )
    return found


# --- in the terminal ------------------------------------------------------------------------------


def page(made: Mapping[str, Any], console: Console) -> None:
    """Print what `facts` or `refusal` gives.

    Args:
        made: the facts.
        console: where to.
    """
    console.print(Text(f"{made['title']}  on {made['chip']}", style="bold"))
    if "error" in made:
        console.print(Text(made["error"]["message"], style="red"), soft_wrap=True)
        return
    console.print(verdict(made), highlight=False, soft_wrap=True)
    names = [each["name"] for each in made["passes"]]
    more = f" and {len(names) - PASSES} more" if len(names) > PASSES else ""
    console.print(
        f"{len(names)} passes changed it: {', '.join(names[:PASSES])}{more}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(("step", "name", "blocks", "threads"), thunks(made)))
    console.print(_table(KERNEL, kernels(made)))
    for kernel in made["kernels"][:KERNELS]:
        console.print(slowest(kernel), highlight=False, soft_wrap=True)
        console.print(_table(SCHEDULE, schedule(kernel["loop"])))
    for place, words in enumerate((*made["advice"], *made["notes"])):
        head = "first" if not place else "then"
        head = "note" if words in made["notes"] else head
        console.print(Text.assemble((f"{head}: ", "bold"), words), soft_wrap=True)
    if made["method"]:
        console.print(f"[dim]by {made['method']}; nothing here was measured[/]", highlight=False)


SCHEDULE = ("at", "stall", "waits", "sets", "instruction")
KERNEL = ("kernel", "registers", "spilled", "shared", "blocks/SM", "occupancy", "limit", "waves")


def verdict(made: Mapping[str, Any]) -> str:
    """The bracket in a line."""
    if made["seconds"] is None:
        return "How long it would take is not known."
    low, high = made["seconds"] * 1e6, made["most"] * 1e6
    if low == high:
        return f"{low:,.3g} µs, estimated as cuBLAS's products are; {made['bound']} binds"
    return f"{low:,.3g} to {high:,.3g} µs, estimated; {made['bound']} binds"


def thunks(made: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The program's steps as rows."""
    return [
        (
            each["kind"],
            each["name"] if each["name"] != each["kind"] else "",
            " × ".join(map(str, each["grid"])),
            " × ".join(map(str, each["threads"])),
        )
        for each in made["thunks"]
    ]


def kernels(made: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The kernels as rows of KERNEL."""
    rows = []
    for each in made["kernels"]:
        full = each.get("occupancy")
        told = (str(full["blocks"]), f"{full['share']:.0%}", full["limiter"]) if full else ("",) * 3
        rows.append(
            (
                each["name"],
                str(each["registers"]),
                f"{each['spills']} B",
                f"{each['shared_bytes']:,} B",
                *told,
                str(each.get("waves", "")),
            )
        )
    return rows


def slowest(kernel: Mapping[str, Any]) -> str:
    """What `schedule` shows of a kernel."""
    loop = kernel["loop"]
    what = f"{kernel['name']}, which has no loop" if loop["whole"] else f"{kernel['name']}'s loop"
    return (
        f"{what}: {loop['instructions']} instructions, {loop['issue_cycles']} cycles for a warp "
        "that waits for nothing. Where it stands longest:"
    )


def schedule(loop: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The instructions of a loop that wait longest, in their order."""
    lines = loop["schedule"]
    slow = sorted(range(len(lines)), key=lambda i: (-lines[i][1] - 16 * len(lines[i][2]), i))
    return [
        (
            f"{at:x}",
            str(stall),
            "".join(map(str, waits)) or "·",
            "".join(map(str, sets)) or "·",
            text[:70],
        )
        for at, stall, waits, sets, text in (lines[i] for i in sorted(slow[:LINES]))
    ]


def compare(first: Mapping[str, Any], second: Mapping[str, Any], console: Console) -> None:
    """Print two explained programs side by side.

    Args:
        first, second: as `facts` or `refusal` gives them.
        console: where to.
    """
    titles = ("", *(f"{each['title']} on {each['chip']}" for each in (first, second)), "change")
    console.print(_table(titles, compared(first, second)))


def compared(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Two explained programs: a row for each figure, with its name, both, and the change.

    Args:
        first, second: as `facts` or `refusal` gives them.
    """
    rows: list[tuple[str, ...]] = []

    def row(name: str, of: Callable[[Mapping[str, Any]], Any], form: str = "{:,.4g}") -> None:
        one, two = of(first), of(second)
        told = ["refused" if each is None else form.format(each) for each in (one, two)]
        change = f"{two / one - 1:+.0%}" if one and two else ""
        rows.append((name, *told, change))

    def most(key: str) -> Callable[[Mapping[str, Any]], Any]:
        return lambda made: max((kernel[key] for kernel in made["kernels"]), default=None)

    row("least, µs", lambda made: made["seconds"] * 1e6 if made.get("seconds") else None)
    row("most, µs", lambda made: made["most"] * 1e6 if made.get("most") else None)
    row("registers", most("registers"), "{:,}")
    row("spilled, bytes", most("spills"), "{:,}")
    row("shared, bytes", most("shared_bytes"), "{:,}")
    row("instructions", most("instructions"), "{:,}")
    return rows


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        made.add_column(title, overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made
