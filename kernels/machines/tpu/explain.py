"""Where a program's time goes on a TPU: as plain data, and as one page in the terminal."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kernels.machines.base import Seconds
from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.exporting import ExportedProgram
from kernels.machines.pallas.calls import FAST
from kernels.machines.pallas.work import kernel_flops, matmul_flops
from kernels.machines.tpu.chips import CHIPS
from kernels.machines.tpu.diagnose import TpuCompileError, mib
from kernels.machines.tpu.estimate.result import Estimate
from kernels.machines.tpu.plan import vmem_limit
from kernels.machines.tpu.scheduler import KernelSchedule

HERE = Path(__file__).parent
BAR = 24  # characters of a full bar
OPS = 8  # operations shown; the others are summed up
KERNELS = 3  # shown one by one
LINES = 12  # of the source, those with the most work
FETCHES = 512  # fetches written down of an operand

_SLOTS = ("MXU", "VPU", "XLU", "EUP", "vector load", "vector store", "scalar")
PASSES = "float32 products take several bfloat16 passes, so the MXUs are full below the bf16 peak"
BINDS = {
    "compute": "the core's units bind",
    "HBM": "the bandwidth of HBM binds",
    "latency": "latency binds: it waits, and neither the units nor the bandwidth are full",
}
# Primitives by the unit that does most of their work; what is in none of them moves nothing.
EUP = (
    "exp",
    "exp2",
    "log",
    "log1p",
    "tanh",
    "logistic",
    "rsqrt",
    "sqrt",
    "erf",
    "pow",
    "sin",
    "cos",
)
XLU = ("reduce_sum", "reduce_max", "reduce_min", "transpose", "argmax", "argmin", "roll")
MOVES = ("get", "swap", "load", "masked_load", "masked_swap")
FREE = ("broadcast_in_dim", "reshape", "squeeze", "program_id", "num_programs", "expand_dims")


# --- as data --------------------------------------------------------------------------------------


def facts(program: ExportedProgram, found: Estimate, title: str) -> dict[str, Any]:
    """All that is known of an estimated program, as JSON can hold it.

    Args:
        program: as it was exported.
        found: its estimate.
        title: what it is called.

    Returns:
        Seconds, cycles and bytes are numbers without a unit's letters; `kernels` has, of each
        pallas_call, grid, operands, VMEM arithmetic, schedule and the work of each source line.
    """
    chip = CHIPS[found.chip]
    flops = matmul_flops(program.jaxpr, program.calls)
    total = sum(op.cycles for op in found.ops) or 1
    schedules = {s.name: s for s in found.schedule.kernels}
    kernels = []
    ops = [op for op in found.ops if op.kind == "kernel"]
    for place, call in enumerate(program.calls):
        op = next((o for o in ops if o.call is call), ops[place] if place < len(ops) else None)
        schedule = schedules.get(op.name) if op else None
        kernels.append(_kernel(call, found.chip, schedule))
    if not kernels:
        kernels = [_scheduled(s) for s in found.schedule.kernels[:1]]
    made = {
        "title": title,
        "chip": found.chip,
        "libtpu": found.libtpu,
        "seconds": found.cycles / chip.clock_hz,
        "cycles": found.cycles,
        "clock_hz": chip.clock_hz,
        "band": found.band_text,
        "bound": found.bound,
        "method": found.method,
        "notes": list(found.notes),
        "depends": list(found.depends),
        "by_data": _by_data(program, found),
        "trips": dict(program.trips),
        "least": found.seconds.low,
        "most": found.seconds.high if math.isfinite(found.seconds.high) else None,
        "flops": found.flops,
        "hbm_bytes": found.hbm_bytes,
        "utilisation": found.utilisation,
        "hbm_utilisation": found.hbm_utilisation,
        "peak_flops": chip.bf16_flops,
        "hbm_bytes_per_second": chip.hbm_bytes_per_second,
        "optimal_seconds": found.optimal_seconds,
        "float32_products": flops.get("float32", 0) > sum(flops.values()) / 2,
        "operations": [
            {
                "name": op.name,
                "times": op.times,
                "kind": op.kind,
                "cycles": op.cycles,
                "share": op.cycles / total,
                "hbm_bytes": op.hbm_bytes,
                "bound": op.bound if op.cycles else "",
                "shape": op.shape,
            }
            for op in sorted(found.ops, key=lambda op: (-op.cycles, -op.hbm_bytes))
        ],
        "kernels": kernels,
        "dtypes": dtypes(program, found.chip),
    }
    made["advice"] = _advice(made)
    return made


def refusal(program: ExportedProgram | None, error: TpuCompileError, title: str, chip: str) -> dict:
    """What is known of a program that the compiler refused: why, and the same arithmetic.

    Args:
        program: None where it could not even be exported.
        error: the refusal.
        title: what it is called.
        chip: that it was meant for.
    """
    calls: tuple[Any, ...] = ()
    if program is not None:
        try:
            calls = program.calls
        except ValueError:  # a grid too long to look at
            calls = ()
    kernels = [_kernel(call, chip, None) for call in calls]
    return {
        "title": title,
        "chip": chip,
        "error": {"kind": error.kind, "message": str(error), "source": error.source or ""},
        "kernels": kernels,
        "dtypes": dtypes(program, chip) if program is not None else [],
        "advice": [_first_change(error, kernels, chip)],
    }


def _kernel(call: Any, chip: str, schedule: KernelSchedule | None) -> dict[str, Any]:
    buffers = call.buffers()
    made: dict[str, Any] = {
        "name": call.name,
        "grid": list(call.grid),
        "semantics": list(call.semantics),
        "programs": math.prod(call.grid),
        "scratch": list(call.scratch),
        "vmem": {
            "buffers": [[name, size] for name, size in buffers],
            "held": sum(size for _, size in buffers),
            "limit": vmem_limit(call, chip),
            "chip": CHIPS[chip].vmem_bytes,
            "laid_out": schedule.vmem_bytes if schedule else None,
        },
        "operands": [_operand(call, o) for o in call.operands],
        "flops": sum(kernel_flops(call).values()),
        "lines": work_by_line(call.equation),
    }
    if schedule is not None:
        made |= _scheduled(schedule) | {"name": call.name, "schedule_name": schedule.name}
    return made


def _operand(call: Any, operand: Any) -> dict[str, Any]:
    moved = np.flatnonzero(operand.moved) if operand.memory in FAST else np.zeros(0, int)
    return {
        "name": operand.name,
        "role": operand.role,
        "shape": list(operand.shape),
        "dtype": operand.dtype,
        "block": list(operand.block),
        "memory": operand.memory,
        "known": operand.known,
        "aliased": operand.aliased,
        "block_bytes": operand.block_bytes,
        "array_bytes": math.prod(operand.shape) * np.dtype(operand.dtype).itemsize,
        "traffic": call.moved(operand),
        "fetches": len(moved),
        # Program, first element of its block, bytes: one for each fetch or write-back.
        "moves": [
            [int(p), [int(i) for i in operand.starts[p]], int(operand.moved_bytes[p])]
            for p in moved[:FETCHES]
        ]
        if operand.known
        else [],
    }


def _scheduled(schedule: KernelSchedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "bundles": len(schedule.bundles),
        "loop_bundles": schedule.loop_bundles,
        "step_bundles": schedule.step_bundles,
        "spills": schedule.spills,
        "fills": schedule.fills,
        "slots": {
            s: schedule.loop_utilisation[s] for s in _SLOTS if s in schedule.loop_utilisation
        },
        "regions": regions(schedule),
        "laid_out": schedule.vmem_bytes,
    }


def regions(schedule: KernelSchedule) -> list[dict[str, Any]]:
    """A kernel's bundles in the parts that its control flow makes of them, in order.

    Args:
        schedule: of a kernel.

    Returns:
        Of each run of bundles of one loop depth: its first bundle, how many, the depth, and the
        slot that is fullest, with its share.
    """
    found: list[dict[str, Any]] = []
    depths = [bundle.depth for bundle in schedule.bundles]
    start = 0
    for place in range(1, len(depths) + 1):
        if place < len(depths) and depths[place] == depths[start]:
            continue
        rows = schedule.occupancy[start:place]
        if len(rows):
            shares = rows.sum(0) / np.maximum(schedule.capacity * len(rows), 1)
            named = [(float(s), n) for n, s in zip(schedule.slots, shares) if n in _SLOTS]
            share, slot = max(named, default=(0.0, ""))
            held = {n: int(c) for n, c in zip(schedule.slots, rows.sum(0))}
            found.append(
                {
                    "start": start,
                    "bundles": place - start,
                    "depth": depths[start],
                    "fullest": slot,
                    "share": share,
                    "spills": held.get("spill", 0),
                    "fills": held.get("fill", 0),
                }
            )
        start = place
    return found


def work_by_line(equation: Any) -> list[dict[str, Any]]:
    """What each line of a kernel's source asks of a program, by the unit that does it.

    Args:
        equation: a pallas_call of a jaxpr.

    Returns:
        Of each line its place, its text, and `flops` of matrix products, elements through the
        `eup` (exponentials, roots), the `xlu` (reductions, transposes), the `vpu` (the rest), and
        `bytes` loaded and stored; in order of the source. A branch counts as if it were taken, a
        loop as often as it runs where that is known.
    """
    lines: dict[tuple[str, int], dict[str, float]] = {}
    _count(jax_pallas.kernel(equation), 1, None, lines)
    made = []
    for (file, line), counts in lines.items():
        text = " ".join(linecache.getline(file, line).split())
        place = f"{Path(file).name}:{line}"
        made.append({"source": place, "text": text, **{k: round(v) for k, v in counts.items()}})
    return sorted(made, key=lambda each: _order(each["source"]))


def _is_source(file: str) -> bool:
    """Whether a kernel's author wrote it, and not JAX's."""
    return "/jax/_src/" not in file and not file.startswith("<") and Path(file).parent != HERE


def _order(source: str) -> tuple[str, int]:
    file, _, line = source.rpartition(":")
    return file, int(line)


def _count(
    jaxpr: Any,
    times: int,
    outer: tuple[str, int] | None,
    lines: dict[tuple[str, int], dict[str, float]],
) -> None:
    for equation in jaxprs.own_equations(jaxpr):
        own = next((f for f in jaxprs.frames(equation) if _is_source(f[0])), outer)
        name = jaxprs.operation(equation)
        inner = list(jaxprs.inner_jaxprs(equation))
        if inner:
            runs = times
            if name in ("scan", "while"):
                runs = times * (jaxprs.loop(equation)[1] or 1)
            for each in inner:
                _count(each, runs, own, lines)
            continue
        if own is None or name in FREE:
            continue
        shapes = [
            jaxprs.shape(v) or () for v in (*jaxprs.inputs(equation), *jaxprs.outputs(equation))
        ]
        elements = max((math.prod(s) for s in shapes), default=0)
        if elements <= 1:
            continue
        counts = lines.setdefault(own, dict.fromkeys(("flops", "eup", "xlu", "vpu", "bytes"), 0.0))
        if name == "dot_general":
            out = math.prod(jaxprs.shape(jaxprs.outputs(equation)[0]))
            counts["flops"] += times * 2 * out * math.prod(jaxprs.contracted(equation))
        elif name in MOVES:
            value = jaxprs.outputs(equation)[0]
            size = math.prod(jaxprs.shape(value)) * np.dtype(jaxprs.dtype(value)).itemsize
            counts["bytes"] += times * size
        else:
            unit = "eup" if name in EUP else "xlu" if name in XLU else "vpu"
            counts[unit] += times * elements


def dtypes(program: ExportedProgram, chip: str) -> list[str]:
    """What a chip makes of a program's dtypes, a sentence each.

    Args:
        program: as it was exported.
        chip: one of CHIPS.
    """
    products = {name for name, count in matmul_flops(program.jaxpr).items() if count}
    inside: set[str] = set()
    for call in jax_pallas.outside_kernels(program.jaxpr):
        if jax_pallas.is_kernel(call):
            inside |= _vector_dtypes(jax_pallas.kernel(call))
    told = []
    peak = CHIPS[chip].bf16_flops / 1e12
    if "float32" in products:
        told.append(
            f"products of float32: in several bfloat16 passes; in bfloat16 they reach {peak:.0f} "
            "TFLOP/s"
        )
    if "bfloat16" in products:
        told.append(f"products of bfloat16: the MXU's own, {peak:.0f} TFLOP/s at most")
    if products & {"int8", "uint8"}:
        told.append(f"products of int8: {CHIPS[chip].int8_ops / 1e12:.0f} TOP/s at most")
    for odd in sorted(products - {"float32", "bfloat16", "int8", "uint8"}):
        told.append(f"products of {odd}: no rate is published for this chip; look at the schedule")
    if "bfloat16" in inside:
        told.append(
            "arithmetic of bfloat16 in the kernel: "
            + (
                "a v5e has no bfloat16 vector unit, so each operation is done in float32, with "
                "conversions around it"
                if chip == "v5e"
                else "the vector unit takes it, two numbers in a lane"
            )
        )
    if inside & {"float16", "float64", "int64"}:
        odd = ", ".join(sorted(inside & {"float16", "float64", "int64"}))
        told.append(f"arithmetic of {odd}: no TPU has it")
    return told


def _vector_dtypes(jaxpr: Any) -> set[str]:
    found = set()
    for equation in jaxprs.equations(jaxpr):
        name = jaxprs.operation(equation)
        if name in (*MOVES, *FREE, "dot_general", "convert_element_type") or not (
            outputs := jaxprs.outputs(equation)
        ):
            continue
        if jaxprs.shape(outputs[0]):
            found.add(jaxprs.dtype(outputs[0]))
    return found


def _advice(made: Mapping[str, Any]) -> list[str]:
    """What to change first, the most promising before the others."""
    told = []
    for kernel in made["kernels"]:
        if kernel.get("spills"):
            told.append(
                f"{kernel['name']} runs out of registers: {kernel['spills']:,} spills; work on "
                "smaller pieces of a block at a time"
            )
        if made["bound"] == "HBM":
            again = [
                o
                for o in kernel.get("operands", ())
                if o["role"] == "input" and o["traffic"] > 1.5 * o["array_bytes"]
            ]
            for o in sorted(again, key=lambda o: o["array_bytes"] - o["traffic"])[:1]:
                told.append(
                    f"{o['name']} comes from HBM {o['traffic'] / o['array_bytes']:.1f} times over: "
                    "larger blocks along the other operands' dimensions, or another order of the "
                    "grid, fetch it less often"
                )
        steps = kernel.get("programs", 0)
        if made["bound"] == "latency" and steps > 1 and made["cycles"] / steps < 1000:
            told.append(
                f"a grid step takes {made['cycles'] / steps:,.0f} cycles, too few to hide the next "
                "fetch behind: make the blocks larger"
            )
    moved = sum(op["share"] for op in made["operations"] if op["kind"] == "relayout")
    if moved > 0.1:
        told.append(
            f"{moved:.0%} of the time only moves data into another layout: hand the kernel its "
            "operands in the layout in which they are"
        )
    if made["bound"] == "compute" and made["float32_products"]:
        told.append("the products are of float32: bfloat16 operands need a fraction of the passes")
    return told


def _first_change(error: TpuCompileError, kernels: Sequence[Mapping[str, Any]], chip: str) -> str:
    if error.kind != "vmem" or not kernels:
        return error.accepted or "what the message says"
    kernel = max(kernels, key=lambda each: each["vmem"]["held"])
    vmem = kernel["vmem"]
    asked = error.asked_bytes or vmem["held"]
    if asked <= 0.9 * vmem["chip"] and vmem["limit"] < vmem["chip"]:
        return (
            f"{kernel['name']}: a {chip} has {mib(vmem['chip'])} of VMEM, and grants "
            f"{mib(vmem['limit'])} unasked: "
            f"CompilerParams(vmem_limit_bytes={math.ceil(asked * 1.1 / 2**20)} << 20)"
        )
    blocks = [o for o in kernel["operands"] if o["memory"] == "vmem"]
    if not blocks:
        return f"{kernel['name']}: make the scratch smaller"
    largest = max(blocks, key=lambda o: o["block_bytes"])
    halved = [*largest["block"]]
    axis = max(range(len(halved)), key=lambda i: halved[i])
    halved[axis] = max(halved[axis] // 2, 1)
    double = 2 if largest["fetches"] > 1 else 1
    return (
        f"{kernel['name']}: halve the block of {largest['name']}, {_dims(largest['block'])}, to "
        f"{_dims(halved)}: {mib(largest['block_bytes'] * double / 2)} less of "
        f"{mib(vmem['held'])}, where {mib(vmem['limit'])} may be used"
    )


# --- in the terminal ------------------------------------------------------------------------------


def explain(program: ExportedProgram, found: Estimate, title: str, console: Console) -> None:
    """Print the page of an estimated program."""
    page(facts(program, found, title), console)


def _verdict(made: Mapping[str, Any]) -> str:
    if made["depends"]:
        most = made["most"]
        upto = ", and no most" if most is None else f" to {format_seconds(most)}"
        names = ", ".join(made["depends"])
        return f"estimated at least {format_seconds(made['least'])}{upto}: it depends on {names}"
    return (
        f"estimated {format_seconds(made['seconds'])}, {made['cycles']:,.0f} cycles at "
        f"{made['clock_hz'] / 1e9:g} GHz ({made['band']}): {BINDS[made['bound']]}"
    )


def _by_data(program: ExportedProgram, found: Estimate) -> list[str]:
    """The loops and grids whose length is data that is not given, in words."""
    names = dict.fromkeys(words for call in program.calls for words in call.by_data)
    if found.compiled and not all(each.counted for each in found.compiled.module.run):
        names["a loop of the program"] = None
    return list(names)


def decided_by_data(made: Mapping[str, Any]) -> str:
    """Which loops and grids are as long as data says, and how long they were taken to be."""
    if not made["by_data"]:
        return ""
    names = ", ".join(made["by_data"])
    if not made["trips"]:
        return f"data decides how long these are: {names}; each counts once, --trips says otherwise"
    said = ", ".join(f"{k}={v}" if k else f"{v}" for k, v in made["trips"].items())
    return f"data decides how long these are: {names}; counted with --trips {said}"


def page(made: Mapping[str, Any], console: Console) -> None:
    """Print what `facts` or `refusal` gives: verdict, roofline, operations, slots, VMEM, traffic.

    Args:
        made: the facts.
        console: where to.
    """
    console.print(Text(f"{made['title']}  on {made['chip']}", style="bold"))
    if "error" in made:
        console.print(Text(made["error"]["message"], style="red"), soft_wrap=True)
    else:
        console.print(_verdict(made), highlight=False, soft_wrap=True)
        if words := decided_by_data(made):
            console.print(words, highlight=False, soft_wrap=True)
        console.print(Group(*_roofline(made)), highlight=False)
        if made["float32_products"]:
            console.print(PASSES, highlight=False, soft_wrap=True)
        console.print(_operations(made))
    for kernel in made["kernels"][:KERNELS]:
        if "bundles" in kernel:
            console.print(_slots(kernel), highlight=False)
        if "operands" in kernel:
            console.print(_vmem(kernel), highlight=False)
            console.print(_traffic(kernel))
            if kernel["lines"]:
                console.print(_lines(kernel))
    if "error" not in made:
        _relayouts(made, console)
    for words in made["dtypes"]:
        console.print(words, highlight=False, soft_wrap=True)
    for place, words in enumerate(made["advice"]):
        head = "first" if not place else "then"
        console.print(Text.assemble((f"{head}: ", "bold"), words), soft_wrap=True)
    if "error" not in made:
        console.print(f"[dim]by {made['method']}[/]", highlight=False, soft_wrap=True)
        console.print(
            f"[dim]libtpu {made['libtpu']}, the compiler's own model; nothing here was measured[/]",
            highlight=False,
        )


def compare(first: Mapping[str, Any], second: Mapping[str, Any], console: Console) -> None:
    """Print two explained programs side by side.

    Args:
        first, second: as `facts` gives them.
        console: where to.
    """
    table = _table()
    table.add_column("", no_wrap=True)
    for each in (first, second):
        table.add_column(f"{each['title']} on {each['chip']}", justify="right", overflow="fold")
    table.add_column("change", justify="right", no_wrap=True)
    for row in compared(first, second):
        table.add_row(*row)
    console.print(table)


def compared(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Two explained programs, a row for each figure: its name, both, and the change."""
    rows: list[tuple[str, ...]] = []

    def row(name: str, key: str, form: Any, of: Any = lambda made: made) -> None:
        values = [of(made).get(key) if of(made) else None for made in (first, second)]
        shown = ["" if v is None else form(v) for v in values]
        a, b = values
        number = all(isinstance(v, (int, float)) for v in values)
        rows.append((name, *shown, f"{b / a - 1:+.1%}" if number and a else ""))

    words = lambda value: str(value)
    if any("error" in made for made in (first, second)):
        told = [made.get("error", {}).get("message", "compiles") for made in (first, second)]
        rows.append(("compiler", *told, ""))
    row("time", "seconds", format_seconds)
    row("cycles", "cycles", lambda v: f"{v:,.0f}")
    row("binds", "bound", words)
    row("moved in HBM", "hbm_bytes", size)
    row("of the MXUs' peak", "utilisation", lambda v: f"{v:.0%}")
    row("of HBM's bandwidth", "hbm_utilisation", lambda v: f"{v:.0%}")
    kernel = lambda made: made["kernels"][0] if made["kernels"] else {}
    row("grid steps", "programs", lambda v: f"{v:,}", kernel)
    row("bundles", "bundles", lambda v: f"{v:,}", kernel)
    row("bundles in the loop", "loop_bundles", lambda v: f"{v:,}", kernel)
    row("spills", "spills", lambda v: f"{v:,}", kernel)
    row("held in VMEM", "held", mib, lambda made: kernel(made).get("vmem", {}))
    return [r for r in rows if any(r[1:3])]


def format_seconds(seconds: float) -> str:
    """Seconds in the unit that reads best; of a range, both ends."""
    if isinstance(seconds, Seconds) and seconds.is_range:
        return " to ".join(map(format_seconds, seconds))
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def size(count: float) -> str:
    """Bytes in the unit that reads best."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else mib(count)


def _dims(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes)) or "1"


def _short(dtype: str) -> str:
    """A dtype in the letters of the compiler: bf16, f32, s8."""
    letters = {"bfloat": "bf", "float": "f", "uint": "u", "int": "s"}
    for word, letter in letters.items():
        if dtype.startswith(word):
            return letter + dtype.removeprefix(word)
    return dtype


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _count_of(value: float) -> str:
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.0f}"


def _bar(share: float) -> Text:
    full = round(min(max(share, 0), 1) * BAR)
    return Text("█" * full + "·" * (BAR - full))


def _roofline(made: Mapping[str, Any]) -> Iterator[Any]:
    grid = Table.grid(padding=(0, 2))
    seconds, flops = made["seconds"] or 1e-12, made["flops"]
    peak, rate = made["peak_flops"], made["hbm_bytes_per_second"]
    grid.add_row(
        "of the MXUs' peak",
        _bar(made["utilisation"]),
        f"{made['utilisation']:.0%}",
        f"{_rate(flops / seconds / 1e12)} of {peak / 1e12:.0f} TFLOP/s (bf16)"
        if flops
        else "no matrix products",
    )
    grid.add_row(
        "of HBM's bandwidth",
        _bar(made["hbm_utilisation"]),
        f"{made['hbm_utilisation']:.0%}",
        f"{size(made['hbm_bytes'])} at {_rate(made['hbm_bytes'] / seconds / 1e9)} of "
        f"{rate / 1e9:.0f} GB/s",
    )
    yield grid
    if flops:
        intensity, ridge = flops / max(made["hbm_bytes"], 1), peak / rate
        side = "right of it, under the roof" if intensity >= ridge else "left of it, on the slope"
        yield (
            f"roofline: {intensity:.3g} FLOP a byte, the ridge is at {ridge:.0f}: {side}; the roof "
            f"there is {_rate(min(peak, intensity * rate) / 1e12)} TFLOP/s"
        )
    if made["optimal_seconds"]:
        yield f"XLA's own estimate (optimal_seconds): {format_seconds(made['optimal_seconds'])}"


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _titled(title: str, table: Table) -> Group:
    """A title of its own is not folded to the table's width."""
    return Group(Text(title, style="bold"), table)


def _operations(made: Mapping[str, Any]) -> Group:
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
    shown, rest = made["operations"][:OPS], made["operations"][OPS:]
    for op in shown:
        times = f" ×{op['times']}" if op["times"] > 1 else ""
        table.add_row(
            op["name"] + times,
            op["kind"],
            f"{op['cycles']:,.0f}",
            f"{op['share']:.0%}",
            size(op["hbm_bytes"]),
            op["bound"],
        )
    if rest:
        table.add_row(
            f"{len(rest)} more",
            "",
            f"{sum(op['cycles'] for op in rest):,.0f}",
            f"{sum(op['share'] for op in rest):.0%}",
            size(sum(op["hbm_bytes"] for op in rest)),
            "",
        )
    return _titled("Operations, the longest first (estimated)", table)


def _slots(kernel: Mapping[str, Any]) -> Group:
    grid = Table.grid(padding=(0, 2))
    for slot, share in kernel["slots"].items():
        grid.add_row(f"  {slot}", _bar(share), f"{share:.0%}")
    vmem = ""
    if kernel["laid_out"]:
        limit = kernel.get("vmem", {}).get("limit")
        vmem = f", {mib(kernel['laid_out'])}" + (f" of {mib(limit)}" if limit else "") + " VMEM"
    head = (
        f"[bold]{kernel.get('schedule_name', kernel['name'])}[/]: {kernel['bundles']:,} bundles, "
        f"{kernel['loop_bundles']:,} of them in the loop; {kernel['spills']:,} spills and "
        f"{kernel['fills']:,} fills{vmem}"
    )
    parts = Table.grid(padding=(0, 2))
    largest = sorted(kernel["regions"], key=lambda r: -r["bundles"])[:OPS]
    for region in sorted(largest, key=lambda r: r["start"]):
        where = f"in {region['depth']} loop{'s' * (region['depth'] > 1)}" if region["depth"] else ""
        lost = f"{region['spills']} spills" if region["spills"] else ""
        full = f"{region['fullest']} {region['share']:.0%}" if region["share"] >= 0.005 else ""
        span = f"  bundles {region['start']:,} to {region['start'] + region['bundles'] - 1:,}"
        parts.add_row(span, where or "once", full, lost)
    return Group(
        Text.from_markup(head),
        Text("  slots that the loop's bundles fill"),
        grid,
        Text("  the schedule in order, and the fullest slot of each part"),
        parts,
    )


def _vmem(kernel: Mapping[str, Any]) -> Text:
    vmem = kernel["vmem"]
    sums = " + ".join(f"{name} {mib(count)}" for name, count in vmem["buffers"]) or "nothing"
    fits = "fits" if vmem["held"] <= vmem["limit"] else "does not fit"
    return Text(
        f"VMEM of {kernel['name']}: {sums} = {mib(vmem['held'])}, of {mib(vmem['limit'])} that it "
        f"may have: {fits}, before the compiler's own temporaries"
    )


def _traffic(kernel: Mapping[str, Any]) -> Group:
    table = _table()
    for name in ("operand", "array", "block", "moved"):
        table.add_column(name, no_wrap=True)
    table.add_column("times", justify="right")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("at step", overflow="fold")
    for o in kernel["operands"]:
        fast = o["memory"] in FAST
        table.add_row(
            f"{o['role']} {o['name']}",
            f"{_short(o['dtype'])}[{','.join(map(str, o['shape']))}]",
            _dims(o["block"]) if fast else "copied by hand",
            o["memory"] if o["known"] else f"{o['memory']}, at most",
            f"{o['fetches']:,}" if fast else "",
            size(o["traffic"]),
            _steps([move[0] for move in o["moves"]], o["fetches"]),
        )
    grid = _dims(kernel["grid"])
    title = (
        f"HBM traffic of {kernel['name']}, grid {grid}, counted from its index maps and its copies"
    )
    return _titled(title, table)


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
    shown = ", ".join(map(str, steps[:3]))
    return shown + (" …" if count > 3 else "")


def _lines(kernel: Mapping[str, Any]) -> Group:
    table = _table()
    table.add_column("line", no_wrap=True)
    table.add_column("source", overflow="ellipsis", max_width=30, no_wrap=True)
    for name in ("FLOP", "EUP", "XLU", "VPU", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    keys = ("flops", "eup", "xlu", "vpu", "bytes")
    weight = lambda each: each["flops"] / 256 + 4 * each["eup"] + 2 * each["xlu"] + each["vpu"]
    chosen = sorted(kernel["lines"], key=lambda each: -weight(each))[:LINES]
    for each in sorted(chosen, key=lambda each: _order(each["source"])):
        counts = [_count_of(each[key]) if each[key] else "" for key in keys]
        table.add_row(each["source"], each["text"], *counts)
    title = f"What each line of {kernel['name']} asks of a program, by the unit that does it"
    return _titled(title, table)


def _relayouts(made: Mapping[str, Any], console: Console) -> None:
    relayouts = [op for op in made["operations"] if op["kind"] == "relayout"]
    if not relayouts:
        console.print("relayouts: none")
        return
    table = _table()
    table.add_column("operation", no_wrap=True)
    table.add_column("becomes", overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("cycles", justify="right", no_wrap=True)
    for op in relayouts[:OPS]:
        table.add_row(op["name"], op["shape"], size(op["hbm_bytes"]), f"{op['cycles']:,.0f}")
    console.print(_titled("Relayouts: data that only changes its place", table))
