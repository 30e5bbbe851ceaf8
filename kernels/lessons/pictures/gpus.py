"""A kernel on a GPU: how full it keeps an SM, the schedule of its loop, and its last wave."""

import html
from collections.abc import Mapping
from typing import Any

from kernels.lessons.pictures.canvas import Canvas, Picture, Player, in_bytes
from kernels.machines.checks import fail, one_of
from kernels.machines.gpu import sass
from kernels.machines.gpu.chips import chip
from kernels.machines.gpu.compiler import GpuProgram
from kernels.machines.gpu.kernel import GpuKernel

BINDS, ROOM = "#c8443c", "#3b78c2"
HEAT = "#d07b1f"
PER_ROW = 32  # instructions in a row of a heat map
MOST = 15  # cycles: the stall count has four bits
SHOWN = 4  # waves in the still picture


def occupancy(kernel: GpuKernel) -> Picture:
    """How many blocks of a kernel an SM keeps, by each of the limits; the least binds.

    Args:
        kernel: a kernels.gpu.GpuKernel whose threads are known.

    Raises:
        ValueError: for one whose launch is not known.
    """
    if not kernel.threads:
        fail("kernel", f"{kernel.name}, whose threads are not known", "one that is launched")
    full = kernel.occupancy
    most = max(full.limits.values())
    left, width, tall = 130, 420, 24
    canvas = Canvas(left + width + 60, 34 + len(full.limits) * tall)
    head = f"{full.blocks} blocks, {full.warps} warps: {full.share:.0%} of an SM"
    canvas.text(0, 14, head, size=14, weight=600)
    for place, (name, blocks) in enumerate(full.limits.items()):
        y = 26 + place * tall
        binds = name == full.limiter
        canvas.text(left - 8, y + 14, name, anchor="end", weight=600 if binds else 400)
        fill = canvas.hatch(BINDS) if binds else ROOM
        wide = width * blocks / most
        canvas.rect(left, y + 2, wide, tall - 8, fill=fill, opacity=1 if binds else 0.6)
        canvas.text(left + wide + 8, y + 14, str(blocks), weight=600 if binds else 400)
    edge = left + width * full.blocks / most
    canvas.path(f"M{edge:.1f} 22V{canvas.height - 4:.1f}", stroke_dasharray="4 3")
    limits = ", ".join(f"{name} {blocks}" for name, blocks in full.limits.items())
    return canvas.picture(
        f"{kernel.name} on {kernel.chip}: {head}; blocks that each limit allows: {limits}"
    )


def heat(kernel: GpuKernel) -> Picture:
    """The static schedule of the loop that multiplies, or else of the longest, as a heat map.

    A cell is an instruction, the darker the longer the warp stands before the next one; a dot marks
    one that waits for a scoreboard, which takes a time that the code does not tell.

    Args:
        kernel: a kernels.gpu.GpuKernel with a loop.

    Raises:
        ValueError: for one without a loop.
    """
    if not kernel.loops:
        fail("kernel", f"{kernel.name}, which has no loop", "one with a loop")
    loop = max(kernel.loops, key=lambda own: (sass.flops(own), len(own.instructions)))
    cell, left = 19, 56
    rows = -(-len(loop.instructions) // PER_ROW)
    canvas = Canvas(left + PER_ROW * cell, 58 + rows * cell)
    waits = sum(bool(instruction.waits) for instruction in loop.instructions)
    head = (
        f"{len(loop.instructions)} instructions, {loop.issue_cycles} cycles by their stall counts, "
        f"{waits} that wait"
    )
    canvas.text(0, 14, head, size=14, weight=600)
    for place, instruction in enumerate(loop.instructions):
        x, y = left + place % PER_ROW * cell, 26 + place // PER_ROW * cell
        if place % PER_ROW == 0:
            canvas.text(left - 8, y + 14, f"{instruction.address:x}", size=11, anchor="end")
        words = f"{instruction.text}: stall {instruction.stall}"
        if instruction.waits:
            words += f", waits for {', '.join(map(str, instruction.waits))}"
        canvas.parts.append(f"<g><title>{html.escape(words)}</title>")
        shade = 0.08 + 0.9 * instruction.stall / MOST
        canvas.rect(x, y, cell - 2, cell - 2, fill=HEAT, opacity=shade, stroke="none")
        if instruction.waits:
            canvas.parts.append(
                f'<circle cx="{x + 8.5:.1f}" cy="{y + 8.5:.1f}" r="3.4" fill="currentColor"/>'
            )
        canvas.parts.append("</g>")
    foot = canvas.height - 20
    canvas.text(left, foot + 12, "stall", size=11)
    for place, stall in enumerate((1, 4, 8, 15)):
        at = left + 36 + place * 52
        shade = 0.08 + 0.9 * stall / MOST
        canvas.rect(at, foot, 16, 16, fill=HEAT, opacity=shade, stroke="none")
        canvas.text(at + 20, foot + 12, str(stall), size=11)
    canvas.text(left + 260, foot + 12, "● waits for a scoreboard", size=11)
    return canvas.picture(f"The loop of {kernel.name} on {kernel.chip}: {head}")


def lives(compiled: GpuProgram) -> Picture:
    """When each value of a compiled program is alive, and how many bytes it takes meanwhile.

    Args:
        compiled: a kernels.gpu.GpuProgram.

    Raises:
        ValueError: for a program with nothing in memory.
    """
    shown = sorted((value for value in compiled.lives if value.size), key=lambda value: value.first)
    if not shown:
        fail("compiled", f"{compiled.name}, with nothing in memory", "a program with arrays")
    steps, left, cell, tall = len(compiled.order) + 1, 200, 64, 26
    canvas = Canvas(left + steps * cell + 110, 110 + len(shown) * tall)
    alive = [sum(e.size for e in shown if e.first <= at <= e.last) for at in range(steps)]
    peak = max(range(steps), key=lambda at: alive[at])
    names = (*compiled.order, "end")
    head = f"{in_bytes(alive[peak])} at most, at {names[peak]}"
    canvas.text(0, 14, head, size=14, weight=600)
    canvas.rect(left + peak * cell, 24, cell, len(shown) * tall + 4, fill=HEAT, opacity=0.14)
    for row, value in enumerate(shown):
        y = 28 + row * tall
        canvas.text(left - 8, y + 14, value.name, size=11, anchor="end")
        wide = (value.last - value.first + 1) * cell
        canvas.rect(left + value.first * cell + 1, y, wide - 2, tall - 8, fill=ROOM, opacity=0.6)
        canvas.text(left + (value.last + 1) * cell + 6, y + 14, in_bytes(value.size), size=11)
    foot = 40 + len(shown) * tall
    for at, name in enumerate(names):
        canvas.parts.append(
            f'<text transform="translate({left + at * cell + 8:.1f} {foot:.1f}) rotate(28)" '
            f'font-size="10" fill="currentColor">{html.escape(name)}</text>'
        )
    words = "; ".join(f"{e.name} {in_bytes(e.size)} from {names[e.first]}" for e in shown)
    return canvas.picture(f"What is alive when in {compiled.name}: {head}. {words}")


def waves(kernels: Mapping[str, GpuKernel], start: str | None = None) -> Player:
    """The waves in which a kernel's blocks run, and how full the last one is, for a choice of them.

    Args:
        kernels: what to call each choice, such as its tile → a kernels.gpu.GpuKernel with its grid.
        start: the choice that is shown first, by default the first.

    Raises:
        ValueError: for none, for a kernel whose launch is not known, and for an unknown start.
    """
    if not kernels:
        fail("kernels", "empty", "one or more")
    choices: list[dict[str, Any]] = []
    for label, kernel in kernels.items():
        if not (kernel.blocks and kernel.threads):
            fail(f"kernels[{label!r}]", "one whose launch is not known", "one that is launched")
        sms = chip(kernel.chip).sms
        places = sms * kernel.occupancy.blocks
        count = -(-kernel.blocks // places)
        choices.append(
            {
                "label": label,
                "blocks": kernel.blocks,
                "each": kernel.occupancy.blocks,
                "sms": sms,
                "places": places,
                "waves": count,
                "last": kernel.blocks - (count - 1) * places,
                "busy": round(kernel.blocks / (count * places), 4),
            }
        )
    labels = list(kernels)
    start = labels[0] if start is None else start
    one_of("start", start, labels)
    first = labels.index(start)
    data = {"choices": choices, "start": first, "shown": SHOWN}
    chosen = choices[first]
    left, width, tall = 70, 460, 26
    shown = min(SHOWN, chosen["waves"])
    canvas = Canvas(left + width + 90, 34 + shown * tall)
    head = f"{start}: {chosen['blocks']:,} blocks, {chosen['places']:,} at once"
    canvas.text(0, 14, head, size=14, weight=600)
    for row in range(shown):
        wave = chosen["waves"] - shown + row  # the last ones
        held = chosen["last"] if wave == chosen["waves"] - 1 else chosen["places"]
        y = 26 + row * tall
        canvas.text(left - 8, y + 14, f"wave {wave + 1}", size=11, anchor="end")
        canvas.rect(left, y + 2, width, tall - 8, fill="none", stroke_opacity=0.4)
        wide = width * held / chosen["places"]
        canvas.rect(left, y + 2, wide, tall - 8, fill=ROOM, opacity=0.6)
        canvas.text(left + width + 8, y + 14, f"{held / chosen['places']:.0%}", size=11)
    words = "; ".join(
        f"{choice['label']}: {choice['waves']} waves, {choice['busy']:.0%} of the places taken"
        for choice in choices
    )
    return canvas.player(words, "waves", data)
