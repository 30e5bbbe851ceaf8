"""A program as its HLO has it, drawn as a graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.lessons.pictures.canvas import Canvas, Picture, colour_of
from kernels.machines.hlo import HloInstruction, Module


def graph(module: Module, layouts: bool = False) -> Picture:
    """A program as its HLO has it: a box for each instruction, an arrow for each use.

    A fusion is opened: the boxes of one colour and one name are one kernel. Loops and calls stay
    closed.

    Args:
        module: the program, as kernels.machines.hlo reads it.
        layouts: write how each array lies in memory, with its tiles.
    """
    nodes = _opened(module)
    layers = _layers(nodes)
    lanes, routes = _lanes(nodes, layers)
    kernels = {name: i for i, name in enumerate(dict.fromkeys(n.kernel for n in nodes if n.kernel))}
    words = {node: _node_words(node, layouts) for node in nodes}
    widths = {node: max(7.2 * len(line) for line in words[node]) + 20 for node in nodes}
    gap, row, height = 18, 72, 50
    sizes = [sum(widths.get(n, 10) + gap for n in lane) - gap for lane in lanes]
    canvas = Canvas(max(sizes, default=0), row * len(lanes) - (row - height))
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
        canvas.path(f"{path}m-4 -7l4 7l4 -7", stroke_opacity=0.55, stroke_width=1.2)
    for node in nodes:
        x, y = places[node]
        look: dict[str, Any] = {"stroke_opacity": 0.45}
        if node.kernel:
            colour = colour_of(kernels[node.kernel])
            look = {"fill": colour, "opacity": 0.22, "stroke": colour}
        canvas.rect(x - widths[node] / 2, y, widths[node], height, radius=5, **look)
        for i, (line, size, weight) in enumerate(zip(words[node], (12, 11, 10), (600, 400, 400))):
            canvas.text(x, y + 17 + 14 * i, line, size=size, weight=weight, anchor="middle")
    summary = f"{len(nodes)} instructions"
    if kernels:
        summary += ", " + "; ".join(
            f"{name} holds {sum(n.kernel == name for n in nodes)}" for name in kernels
        )
    return canvas.picture(f"Graph of {module.entry}: {summary}")


@dataclass(frozen=True, eq=False)
class _Node:
    """One instruction of a drawn graph. kernel: the fusion that it belongs to, or ""."""

    instruction: HloInstruction
    inputs: tuple[_Node, ...]
    kernel: str


def _opened(module: Module) -> list[_Node]:
    """The entry computation with its fusions opened, in an order that respects the uses."""
    nodes: list[_Node] = []

    def walk(name: str, arguments: Sequence[_Node] | None, kernel: str) -> _Node | None:
        drawn: dict[str, _Node] = {}
        last = None
        for instruction in module.computations.get(name, ()):
            inputs = tuple(drawn[o] for o in instruction.inputs if o in drawn)
            if instruction.opcode == "parameter" and arguments is not None:
                last = drawn[instruction.name] = arguments[int(instruction.value)]
                continue
            inner = module.computations.get(instruction.called[0], ()) if instruction.called else ()
            if instruction.opcode == "fusion" and inner:
                last = walk(instruction.called[0], inputs, kernel or instruction.name)
                if last:
                    drawn[instruction.name] = last
                continue
            last = drawn[instruction.name] = _Node(instruction, inputs, kernel)
            nodes.append(last)
        return drawn.get(module.roots.get(name, ""), last)

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
) -> tuple[list[list[Any]], list[tuple[Any, ...]]]:
    """The nodes of each row from left to right, and the way of each arrow through the rows.

    Where an arrow passes a row, a place is kept for it. A few sweeps put each node near the middle
    of those that it is tied to.
    """
    lanes: list[list[Any]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
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
    instruction = node.instruction
    name = instruction.opcode
    if name == "parameter":
        name = f"parameter {instruction.value}"
    elif name == "constant" and instruction.value:
        name = f"constant {instruction.value}"[:24]
    shown = instruction.results[: 1 if name == "copy-start" else 2]
    shape = ", ".join(str(a) if layouts else str(a).partition("{")[0] for a in shown)
    if layouts and any(a.space == 1 for a in shown):
        shape += " in VMEM"
    return name, shape, *((node.kernel,) if node.kernel else ())
