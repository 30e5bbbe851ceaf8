"""Pictures of kernels, drawn from what JAX traced or the simulator recorded, never by hand; and of
machines, drawn from their data.

Each function returns a Picture: one SVG that takes its text colour from the page, so that it
reads in light and in dark, and that prints.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels.neuron.chips import ENGINES, Chip
from kernels.pallas.calls import Call, Operand
from kernels.tpu.hlo import Instruction, Module
from kernels.tpu.simulator import Simulation

# Mid tones that hold on white and on black; in greyscale the labels and hatching still tell.
COLOURS = ("#3b78c2", "#d07b1f", "#2a9168", "#a2508f", "#7a6cc4", "#8a7a2d")
CORE_COLOURS = ("#3b78c2", "#d07b1f")
FONT = "ui-sans-serif, system-ui, sans-serif"


@dataclass(frozen=True)
class Picture:
    """An SVG, with what it shows in words for those who cannot see it."""

    svg: str = field(repr=False)
    says: str

    def _repr_html_(self) -> str:
        return f'<div class="kernel-picture" tabindex="0">{self.svg}</div>'


def programs(call: Call, first: int = 12) -> Picture:
    """The first programs of a grid in order, and which block of each operand every one touches.

    A solid block moves: an input is fetched for this program, an output is written back after it.
    A hatched block stays where it is, in fast memory.
    """
    shown = min(first, len(call.programs))
    if not shown:
        canvas = _Canvas(460, _legend(_Canvas(0, 0), call) + 20)
        canvas.text(0, 14 + _legend(canvas, call), "an empty grid: no program runs", size=12)
        return canvas.picture("An empty grid: no program runs")
    stacked = any(len(operand.shape) > 2 for operand in call.operands)
    boxes = _fit(call.operands, 160 if stacked else 92)
    widths = [max(width, 7 * len(o.name) + 8) for o, (width, _) in zip(call.operands, boxes)]
    card_width = sum(widths) + 14 * (len(widths) - 1) + 20
    card_height = max(height for _, height in boxes) + 54
    rows = math.ceil(shown / max(1, 940 // (card_width + 12)))
    columns = math.ceil(shown / rows)  # as many in each row as in the others
    canvas = _Canvas(columns * (card_width + 12), 0)
    top = _legend(canvas, call)
    for step in range(shown):
        left = step % columns * (card_width + 12)
        y = top + step // columns * (card_height + 12)
        canvas.rect(left, y, card_width, card_height, stroke_opacity=0.25, radius=6)
        number = ", ".join(str(int(i)) for i in call.programs[step])
        canvas.text(left + 10, y + 17, f"program ({number})", size=12, weight=600)
        x = left + 10
        for i, (operand, (width, height)) in enumerate(zip(call.operands, boxes)):
            _array(canvas, operand, i, x, y + 28, width, height, step, hatch=_stays(operand, step))
            canvas.text(x, y + 28 + height + 14, operand.name, size=11)
            x += widths[i] + 14
    canvas.height = top + rows * (card_height + 12)
    left_out = len(call.programs) - shown
    if left_out:
        canvas.text(0, canvas.height + 8, f"… and {left_out} more programs", size=12)
        canvas.height += 16
    grid = " × ".join(map(str, call.grid)) or "no"
    says = f"Grid {grid}: the blocks that {shown} of {len(call.programs)} programs touch, in order"
    return canvas.picture(says)


def traffic(call: Call) -> Picture:
    """How often each block of each operand moves between HBM and fast memory over the grid."""
    boxes = _fit(call.operands, 200)
    canvas = _Canvas(0, 0)
    x = 0.0
    for i, (operand, (width, height)) in enumerate(zip(call.operands, boxes)):
        canvas.text(x, 14, f"{operand.name} {_dims(operand.shape)}", size=13, weight=600)
        moved = operand.starts[operand.moved]
        blocks, counts = np.unique(moved, axis=0, return_counts=True)
        for start, count in zip(blocks, counts):
            px, py, w, h = _place(operand, start, width, height)
            canvas.rect(x + px, 24 + py, w, h, fill=_colour(i), fill_opacity=0.3, stroke=_colour(i))
            if w > 14 and h > 12:
                canvas.text(
                    x + px + w / 2, 24 + py + h / 2 + 4, f"×{count}", size=11, anchor="middle"
                )
        canvas.rect(x, 24, width, height, stroke_opacity=0.8)
        verb = "fetched" if operand.role == "input" else "written"
        canvas.text(x, height + 42, f"{len(moved)} blocks {verb}", size=12)
        canvas.text(x, height + 58, _bytes(operand.traffic), size=12)
        x += max(width, 150) + 30
        canvas.height = max(canvas.height, height + 66)
    canvas.width = x - 30
    total = sum(operand.traffic for operand in call.operands)
    return canvas.picture(f"{_bytes(total)} move between HBM and fast memory")


def memory(call: Call) -> Picture:
    """Where each operand lives, where a block of it goes, and who moves it."""
    tpu = call.machine == "tpu"
    fast = "VMEM and SMEM" if tpu else "caches and shared memory"
    columns = (("HBM", 0, 210), (fast, 330, 230), ("registers", 670, 150))
    canvas = _Canvas(830, 0)
    height = 44 + 66 * len(call.operands)
    for title, x, width in columns:
        canvas.rect(x, 0, width, height, stroke_opacity=0.35, radius=8)
        canvas.text(x + 12, 20, title, size=13, weight=600)
    for i, operand in enumerate(call.operands):
        y = 36 + 66 * i
        reads = operand.role == "input"
        canvas.rect(12, y, 186, 44, fill=_colour(i), fill_opacity=0.25, stroke=_colour(i), radius=4)
        canvas.text(22, y + 18, f"{operand.name} {_dims(operand.shape)}", size=12, weight=600)
        canvas.text(22, y + 35, operand.dtype, size=11)
        staged = operand.memory in ("vmem", "smem")
        if staged:
            canvas.rect(
                342, y, 206, 44, fill=_colour(i), fill_opacity=0.25, stroke=_colour(i), radius=4
            )
            block = "all of it" if not operand.blocked else f"block {_dims(operand.block)}"
            canvas.text(352, y + 18, f"{operand.memory.upper()}: {block}", size=12, weight=600)
            canvas.text(352, y + 35, f"{operand.name}_ref", size=11)
            canvas.arrow(198, 342, y + 22, reads, "DMA", "the pipeline's")
            canvas.arrow(548, 682, y + 22, reads, "load" if reads else "store", "the kernel's")
        else:
            verb = "load" if reads else "store"
            canvas.arrow(198, 682, y + 22, reads, verb, f"{operand.name}_ref, the kernel's")
    canvas.rect(682, 36, 126, height - 58, stroke_opacity=0.8, radius=4)
    middle = 36 + (height - 58) / 2
    canvas.text(745, middle - 2, "kernel body", size=12, weight=600, anchor="middle")
    canvas.text(745, middle + 15, call.name, size=11, anchor="middle")
    canvas.height = height
    where = ", ".join(f"{o.name} in {o.memory.upper()}" for o in call.operands)
    return canvas.picture(f"Memory spaces of {call.name}: {where}")


def neuron_core(chip: Chip) -> Picture:
    """One NeuronCore-v2: its engines, its two memories on the chip, and the way to main memory."""
    canvas = _Canvas(900, 300)
    canvas.rect(150, 0, 750, 300, stroke_opacity=0.35, radius=8)
    canvas.text(166, 22, f"NeuronCore-v2, one of {chip.cores} on a chip", size=13, weight=600)
    for x, colour, name, lines in (
        (
            0,
            COLOURS[3],
            "HBM",
            (_bytes(chip.hbm_bytes), f"{chip.hbm_bytes_per_second / 1e9:.0f} GB/s"),
        ),
        (310, COLOURS[0], "SBUF", (f"{chip.lanes} partitions", f"of {_bytes(chip.sbuf_bytes)}")),
        (770, COLOURS[2], "PSUM", (f"{chip.lanes} partitions", f"of {_bytes(chip.psum_bytes)}")),
    ):
        height = 256 if name != "HBM" else 300
        canvas.rect(
            x,
            300 - height - (12 if name != "HBM" else 0),
            110,
            height,
            fill=colour,
            fill_opacity=0.2,
            stroke=colour,
            radius=6,
        )
        top = 62 if name != "HBM" else 24
        canvas.text(x + 12, top, name, size=13, weight=600)
        for i, line in enumerate(lines):
            canvas.text(x + 12, top + 20 + 16 * i, line, size=11)
        if name != "HBM":
            for i in range(8):  # rows of a memory are partitions
                y = 120 + 19 * i
                canvas.parts.append(
                    f'<path d="M{x + 8} {y}h94" stroke="{colour}" stroke-opacity="0.7"/>'
                )
            canvas.text(x + 12, 278, f"0 … {chip.lanes - 1}", size=11)
    queues = f"{chip.dma_queues} queues"
    canvas.arrow(110, 310, 150, True, "DMA", queues)
    canvas.arrow(110, 310, 210, False, "DMA", queues)
    says = {
        "Tensor": "matrix products, SBUF → PSUM",
        "Vector": "two tiles at a time",
        "Scalar": "functions of one tile",
        "GpSimd": "8 cores, for all the rest; no PSUM",
    }
    for i, engine in enumerate(ENGINES):
        y = 44 + 62 * i
        canvas.rect(500, y, 190, 48, fill=COLOURS[1], fill_opacity=0.2, stroke=COLOURS[1], radius=4)
        canvas.text(510, y + 20, engine, size=12, weight=600)
        canvas.text(680, y + 20, f"{chip.clock_hz[engine] / 1e9:.2f} GHz", size=11, anchor="end")
        canvas.text(510, y + 37, says[engine], size=11)
        canvas.parts.append(
            f'<path d="M420 {y + 24}h80" stroke="currentColor" stroke-width="1.2"/>'
        )
        if engine != "GpSimd":
            canvas.parts.append(
                f'<path d="M690 {y + 24}h80" stroke="currentColor" stroke-width="1.2"/>'
            )
    return canvas.picture(
        "A NeuronCore-v2: DMA queues move data between HBM and SBUF; the Tensor, Vector, Scalar "
        "and GpSimd engines work on SBUF, all but the last also on PSUM"
    )


@dataclass(frozen=True)
class Table:
    """A table of text that takes its look from the page."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self.rows)
        return (
            f'<table class="kernel-table table"><thead>{row(self.columns, "th")}</thead>'
            f"<tbody>{body}</tbody></table>"
        )


def order(simulation: Simulation, grid: Sequence[int]) -> Picture:
    """The order in which the simulated TPU ran the programs, and on which core; grid rank 1 or 2.

    Times are counted on each core by itself: what two cores do at once has no order.
    """
    rows, columns = (1, *grid) if len(grid) == 1 else tuple(grid)
    cell = 44
    canvas = _Canvas(columns * cell + 90, rows * cell + 56)
    axes = ("", "j" if len(grid) == 2 else "i")
    canvas.text(columns * cell / 2, 14, axes[1], size=12, anchor="middle")
    clock = [0] * (int(simulation.core.max(initial=0)) + 1)
    for point, core in zip(simulation.order, simulation.core):
        i, j = (0, *point) if len(grid) == 1 else point
        clock[core] += 1
        colour = CORE_COLOURS[int(core) % len(CORE_COLOURS)]
        x, y = j * cell, 22 + i * cell
        canvas.rect(x + 2, y + 2, cell - 4, cell - 4, fill=colour, fill_opacity=0.3, stroke=colour)
        canvas.text(x + cell / 2, y + cell / 2 + 5, str(clock[core]), size=15, anchor="middle")
    if len(grid) == 2:
        canvas.text(columns * cell + 8, 22 + rows * cell / 2, "i", size=12)
    x = 0.0
    for core in sorted(set(map(int, simulation.core))):
        canvas.rect(x, 32 + rows * cell, 12, 12, fill=CORE_COLOURS[core], fill_opacity=0.5)
        canvas.text(x + 18, 42 + rows * cell, f"core {core}", size=12)
        x += 74
    run = ", ".join(str(tuple(map(int, point))) for point in simulation.order[:8])
    return canvas.picture(f"Programs in the order in which they ran: {run}")


def graph(module: Module, layouts: bool = False) -> Picture:
    """A program as its HLO has it: a box for each instruction, an arrow for each use.

    A fusion is opened: the boxes of one colour and one name are one kernel. layouts: write how
    each array lies in memory, with its tiles. Loops and calls stay closed.
    """
    nodes = _opened(module)
    layers = _layers(nodes)
    lanes, routes = _lanes(nodes, layers)
    kernels = {name: i for i, name in enumerate(dict.fromkeys(n.kernel for n in nodes if n.kernel))}
    words = {node: _node_words(node, layouts) for node in nodes}
    widths = {node: max(7.2 * len(line) for line in words[node]) + 20 for node in nodes}
    gap, row, height = 18, 72, 50
    sizes = [sum(widths.get(n, 10) + gap for n in lane) - gap for lane in lanes]
    canvas = _Canvas(max(sizes, default=0), row * len(lanes) - (row - height))
    places = {}
    for i, lane in enumerate(lanes):
        x = (canvas.width - sizes[i]) / 2
        for node in lane:
            width = widths.get(node, 10)
            places[node] = (x + width / 2, i * row)
            x += width + gap
    for start, *between, end in routes:
        x, y = places[start][0], places[start][1] + height
        path = f"M{x:.1f} {y:.1f}"
        for stop in (*between, end):
            to, below = places[stop]
            middle = (y + below) / 2
            path += f"C{x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {below:.1f}"
            x, y = to, below
            if stop is not end:
                y = below + height
                path += f"V{y:.1f}"
        canvas.parts.append(
            f'<path d="{path}m-4 -7l4 7l4 -7" fill="none" stroke="currentColor" '
            'stroke-opacity="0.55" stroke-width="1.2"/>'
        )
    for node in nodes:
        x, y = places[node]
        left, width = x - widths[node] / 2, widths[node]
        if node.kernel:
            colour = _colour(kernels[node.kernel])
            canvas.rect(
                left, y, width, height, fill=colour, fill_opacity=0.22, stroke=colour, radius=5
            )
        else:
            canvas.rect(left, y, width, height, stroke_opacity=0.45, radius=5)
        for i, (line, size, weight) in enumerate(zip(words[node], (12, 11, 10), (600, 400, 400))):
            canvas.text(x, y + 17 + 14 * i, line, size=size, weight=weight, anchor="middle")
    told = f"{len(nodes)} instructions"
    if kernels:
        told += ", " + "; ".join(
            f"{name} holds {sum(n.kernel == name for n in nodes)}" for name in kernels
        )
    return canvas.picture(f"Graph of {module.entry}: {told}")


@dataclass(frozen=True, eq=False)
class _Node:
    """One instruction of a drawn graph. kernel: the fusion that it belongs to, or ""."""

    instruction: Instruction
    inputs: tuple[_Node, ...]
    kernel: str


def _opened(module: Module) -> list[_Node]:
    """The entry computation with its fusions opened, in an order that respects the uses."""
    nodes: list[_Node] = []

    def walk(name: str, arguments: Sequence[_Node] | None, kernel: str) -> _Node | None:
        made: dict[str, _Node] = {}
        last = None
        for each in module.computations.get(name, ()):
            inputs = tuple(made[o] for o in each.inputs if o in made)
            if each.opcode == "parameter" and arguments is not None:
                last = made[each.name] = arguments[int(each.value)]
                continue
            inner = module.computations.get(each.called[0], ()) if each.called else ()
            if each.opcode == "fusion" and inner:
                last = made[each.name] = walk(each.called[0], inputs, kernel or each.name)
                continue
            last = made[each.name] = _Node(each, inputs, kernel)
            nodes.append(last)
        return made.get(module.roots.get(name, ""), last)

    walk(module.entry, None, "")
    return nodes


def _layers(nodes: Sequence[_Node]) -> dict[_Node, int]:
    """A row for each node: below all that it reads, and sources just above their first use."""
    layers: dict[_Node, int] = {}
    for node in nodes:
        layers[node] = 1 + max((layers[i] for i in node.inputs), default=-1)
    for node in nodes:
        if not node.inputs:
            uses = [layers[n] for n in nodes if node in n.inputs]
            layers[node] = min(uses, default=layers[node] + 1) - 1
    return layers


def _lanes(
    nodes: Sequence[_Node], layers: dict[_Node, int]
) -> tuple[list[list[object]], list[tuple[object, ...]]]:
    """The nodes of each row from left to right, and the way of each arrow through the rows.

    Where an arrow passes a row, a place is kept for it. A few sweeps put each node near the middle
    of those that it is tied to.
    """
    lanes: list[list[object]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in nodes:
        lanes[layers[node]].append(node)
    routes = []
    for node in nodes:
        for source in dict.fromkeys(node.inputs):
            between = [object() for _ in range(layers[source] + 1, layers[node])]
            for row, stop in enumerate(between, layers[source] + 1):
                lanes[row].append(stop)
            routes.append((source, *between, node))
    above: dict[object, list[object]] = {}
    below: dict[object, list[object]] = {}
    for route in routes:
        for a, b in itertools.pairwise(route):
            below.setdefault(a, []).append(b)
            above.setdefault(b, []).append(a)
    place = {}
    for lane in lanes:
        place.update({node: i - len(lane) / 2 for i, node in enumerate(lane)})
    for sweep in range(6):
        ties = above if sweep % 2 == 0 else below
        for lane in lanes if sweep % 2 == 0 else reversed(lanes):
            lane.sort(key=lambda n: np.mean([place[t] for t in ties[n]]) if n in ties else place[n])
            place.update({node: i - len(lane) / 2 for i, node in enumerate(lane)})
    return lanes, routes


def _node_words(node: _Node, layouts: bool) -> tuple[str, ...]:
    """What stands in a box: the operation, its array, and the kernel that it is part of."""
    each = node.instruction
    name = each.opcode
    if each.opcode == "parameter":
        name = f"parameter {each.value}"
    elif each.opcode == "constant" and each.value:
        name = f"constant {each.value}"[:24]
    shown = each.results[:1] if each.opcode == "copy-start" else each.results[:2]
    shape = ", ".join(str(a) if layouts else str(a).partition("{")[0] for a in shown)
    if layouts and any(a.space == 1 for a in shown):
        shape += " in VMEM"
    return name, shape, *((node.kernel,) if node.kernel else ())


class _Canvas:
    """Collects SVG elements."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.hatches: dict[str, str] = {}

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        fill_opacity: float = 1,
        stroke: str = "currentColor",
        stroke_opacity: float = 1,
        radius: float = 0,
    ) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{radius}" fill="{fill}" fill-opacity="{fill_opacity}" '
            f'stroke="{stroke}" stroke-opacity="{stroke_opacity}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 12,
        weight: int = 400,
        anchor: str = "start",
    ) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}" fill="currentColor">{html.escape(text)}</text>'
        )

    def arrow(
        self, start: float, end: float, y: float, forward: bool, label: str, sub: str
    ) -> None:
        """A horizontal arrow with a label above and a remark below."""
        a, b = (start + 6, end - 6) if forward else (end - 6, start + 6)
        tip = -7 if forward else 7
        self.parts.append(
            f'<path d="M{a:.1f} {y:.1f}H{b:.1f}m{tip} -4l{-tip} 4l{tip} 4" fill="none" '
            'stroke="currentColor" stroke-width="1.4"/>'
        )
        middle = (start + end) / 2
        self.text(middle, y - 7, label, size=12, weight=600, anchor="middle")
        self.text(middle, y + 16, sub, size=11, anchor="middle")

    def hatch(self, colour: str) -> str:
        """A fill of diagonal lines; its name is its colour, so that pictures can share a page."""
        name = f"hatch-{colour[1:]}"
        self.hatches[name] = (
            f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{colour}" '
            f'fill-opacity="0.12"/><path d="M0 0V6" stroke="{colour}" stroke-width="2.4"/>'
            "</pattern>"
        )
        return f"url(#{name})"

    def picture(self, says: str) -> Picture:
        width, height = self.width + 4, self.height + 4
        title = html.escape(says)
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 -2 {width:.0f} {height:.0f}" '
            f'role="img" aria-label="{title}" font-family="{FONT}" '
            f'style="max-width:100%;width:{width:.0f}px;height:auto"><title>{title}</title>'
            f"<defs>{''.join(self.hatches.values())}</defs>{''.join(self.parts)}</svg>"
        )
        return Picture(svg, says)


def _legend(canvas: _Canvas, call: Call) -> float:
    """One line for each operand, and what solid and hatched mean; returns the height it took."""
    y = 14.0
    for i, operand in enumerate(call.operands):
        canvas.rect(0, y - 10, 12, 12, fill=_colour(i), fill_opacity=0.55, stroke=_colour(i))
        cut = f" in blocks of {_dims(operand.block)}" if operand.blocked else ", in one block"
        line = f"{operand.name}: {operand.role}, {operand.dtype} {_dims(operand.shape)}{cut}"
        canvas.text(20, y, line, size=12)
        y += 18
    if len(call.programs) > 1:
        canvas.rect(0, y - 10, 12, 12, fill="currentColor", fill_opacity=0.5)
        canvas.text(20, y, "solid: fetched for this program, or written back after it", size=12)
        y += 18
        canvas.rect(0, y - 10, 12, 12, fill=canvas.hatch("#888888"), stroke="#888888")
        canvas.text(20, y, "hatched: in fast memory already, or staying there", size=12)
        y += 18
    canvas.width = max(canvas.width, 460)
    return y


def _array(
    canvas: _Canvas,
    operand: Operand,
    index: int,
    x: float,
    y: float,
    width: float,
    height: float,
    step: int,
    *,
    hatch: bool,
) -> None:
    """One operand's outline, its block grid, and the block that program `step` touches."""
    colour = _colour(index)
    px, py, w, h = _place(operand, operand.starts[step], width, height)
    fill = canvas.hatch(colour) if hatch else colour
    canvas.rect(x + px, y + py, w, h, fill=fill, fill_opacity=1 if hatch else 0.6, stroke=colour)
    rows, columns = _two(operand.shape)
    block_rows, block_columns = _two(operand.block)
    for size, block, length, vertical in (
        (columns, block_columns, width, True),
        (rows, block_rows, height, False),
    ):
        if 1 < math.ceil(size / block) <= 32:
            for cut in range(block, size, block):
                at = cut / size * length
                line = f"M{x + at:.1f} {y}v{height}" if vertical else f"M{x} {y + at:.1f}h{width}"
                canvas.parts.append(f'<path d="{line}" stroke="currentColor" opacity="0.25"/>')
    canvas.rect(x, y, width, height, stroke_opacity=0.8)


def _stays(operand: Operand, step: int) -> bool:
    """Whether the block neither arrives before this program nor leaves after it."""
    if operand.role == "input":
        return not operand.moved[step]
    last = step + 1 == len(operand.moved)
    return not last and not operand.moved[step + 1]


def _two(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns to draw: leading dimensions are stacked on top of each other."""
    if not shape:
        return 1, 1
    return (math.prod(shape[:-1]), shape[-1]) if len(shape) > 1 else (1, shape[0])


def _place(
    operand: Operand, start: np.ndarray, width: float, height: float
) -> tuple[float, float, float, float]:
    """Where a block lies inside its array's outline: x, y, width, height."""
    rows, columns = _two(operand.shape)
    block_rows, block_columns = _two(operand.block)
    if len(operand.shape) > 1:
        row = int(np.ravel_multi_index([int(i) for i in start[:-1]], operand.shape[:-1]))
    else:
        row = 0
    column = int(start[-1]) if len(operand.shape) else 0
    block_rows, block_columns = min(block_rows, rows - row), min(block_columns, columns - column)
    return (
        column / columns * width,
        row / rows * height,
        max(block_columns / columns * width, 1.5),
        max(block_rows / rows * height, 1.5),
    )


def _fit(operands: Sequence[Operand], longest: float) -> list[tuple[float, float]]:
    """Widths and heights that keep the arrays' proportions, the longest side being `longest`."""
    sizes = [_two(operand.shape) for operand in operands]
    scale = longest / max(max(pair) for pair in sizes)
    return [(max(c * scale, 14.0), max(r * scale, 14.0)) for r, c in sizes]


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _dims(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
