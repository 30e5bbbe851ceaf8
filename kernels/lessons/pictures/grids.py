"""A pallas_call in pictures: its programs, its traffic, its memory spaces, the order of a run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.lessons.pictures.canvas import Canvas, Picture, Player, colour_of, in_bytes, in_dims
from kernels.machines.checks import fail
from kernels.machines.pallas.calls import FAST, Affine, Call, Operand, affine
from kernels.machines.tpu.chips import CHIPS
from kernels.machines.tpu.simulator import Simulation

MOST_PROGRAMS = 1 << 18  # that a browser counts without a pause
MOST_RECORDED = 10_000  # numbers of a player whose index maps are not affine
FLOORS = "name", "vmem_limit_bytes", "vmem_bytes", "hbm_bytes_per_second", "bf16_flops"  # of a v5e


def programs(call: Call, first: int = 12) -> Picture:
    """The first programs of a grid in order, and which block of each operand every one touches.

    A solid block moves: an input is fetched for this program, an output is written back after it.
    A hatched block stays where it is, in fast memory.

    Args:
        call: the pallas_call.
        first: how many programs are drawn.
    """
    shown = min(first, len(call.programs))
    if not shown:
        canvas = Canvas(460, _legend(Canvas(0, 0), call) + 20)
        canvas.text(0, 14 + _legend(canvas, call), "an empty grid: no program runs", size=12)
        return canvas.picture("An empty grid: no program runs")
    stacked = any(len(operand.shape) > 2 for operand in call.operands)
    boxes = _fit(call.operands, 160 if stacked else 92)
    widths = [max(width, 7 * len(o.name) + 8) for o, (width, _) in zip(call.operands, boxes)]
    card_width = sum(widths) + 14 * (len(widths) - 1) + 20
    card_height = max(height for _, height in boxes) + 54
    rows = math.ceil(shown / max(1, 940 // (card_width + 12)))
    columns = math.ceil(shown / rows)  # as many in each row as in the others
    canvas = Canvas(columns * (card_width + 12), 0)
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
    canvas = Canvas(0, 0)
    x = 0.0
    for i, (operand, (width, height)) in enumerate(zip(call.operands, boxes)):
        canvas.text(x, 14, f"{operand.name} {in_dims(operand.shape)}", size=13, weight=600)
        moved = operand.starts[operand.moved]
        blocks, counts = np.unique(moved, axis=0, return_counts=True)
        for start, count in zip(blocks, counts):
            px, py, w, h = _place(operand, start, width, height)
            canvas.rect(x + px, 24 + py, w, h, fill=colour_of(i), opacity=0.3, stroke=colour_of(i))
            if w > 14 and h > 12:
                canvas.text(
                    x + px + w / 2, 24 + py + h / 2 + 4, f"×{count}", size=11, anchor="middle"
                )
        canvas.rect(x, 24, width, height, stroke_opacity=0.8)
        verb = "fetched" if operand.role == "input" else "written"
        canvas.text(x, height + 42, f"{len(moved)} blocks {verb}", size=12)
        canvas.text(x, height + 58, in_bytes(operand.traffic), size=12)
        x += max(width, 150) + 30
        canvas.height = max(canvas.height, height + 66)
    canvas.width = x - 30
    total = sum(operand.traffic for operand in call.operands)
    return canvas.picture(f"{in_bytes(total)} move between HBM and fast memory")


def memory(call: Call) -> Picture:
    """Where each operand lives, where a block of it goes, and who moves it."""
    tpu = call.machine == "tpu"
    fast = "VMEM and SMEM" if tpu else "caches and shared memory"
    columns = (("HBM", 0, 210), (fast, 330, 230), ("registers", 670, 150))
    canvas = Canvas(830, 0)
    height = 44 + 66 * len(call.operands)
    for title, x, width in columns:
        canvas.rect(x, 0, width, height, stroke_opacity=0.35, radius=8)
        canvas.text(x + 12, 20, title, size=13, weight=600)
    for i, operand in enumerate(call.operands):
        y = 36 + 66 * i
        reads = operand.role == "input"
        colour = colour_of(i)
        look: dict[str, Any] = {"fill": colour, "opacity": 0.25, "stroke": colour, "radius": 4}
        canvas.rect(12, y, 186, 44, **look)
        canvas.text(22, y + 18, f"{operand.name} {in_dims(operand.shape)}", size=12, weight=600)
        canvas.text(22, y + 35, operand.dtype, size=11)
        staged = operand.memory in ("vmem", "smem")
        if staged:
            canvas.rect(342, y, 206, 44, **look)
            block = "all of it" if not operand.blocked else f"block {in_dims(operand.block)}"
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


def order(simulation: Simulation, grid: Sequence[int]) -> Picture:
    """The order in which the simulated TPU ran the programs, and on which core.

    Times are counted on each core by itself: what two cores do at once has no order.

    Args:
        simulation: a run of the kernel.
        grid: programs in each dimension, of rank 1 or 2.
    """
    rows, columns = (1, *grid) if len(grid) == 1 else tuple(grid)
    cell = 44
    canvas = Canvas(columns * cell + 90, rows * cell + 56)
    axes = ("", "j" if len(grid) == 2 else "i")
    canvas.text(columns * cell / 2, 14, axes[1], size=12, anchor="middle")
    clock = [0] * (int(simulation.core.max(initial=0)) + 1)
    for point, core in zip(simulation.order, simulation.core):
        i, j = (0, *point) if len(grid) == 1 else point
        clock[core] += 1
        colour = colour_of(int(core))
        x, y = j * cell, 22 + i * cell
        canvas.rect(x + 2, y + 2, cell - 4, cell - 4, fill=colour, opacity=0.3, stroke=colour)
        canvas.text(x + cell / 2, y + cell / 2 + 5, str(clock[core]), size=15, anchor="middle")
    if len(grid) == 2:
        canvas.text(columns * cell + 8, 22 + rows * cell / 2, "i", size=12)
    x = 0.0
    for core in sorted(set(map(int, simulation.core))):
        canvas.rect(x, 32 + rows * cell, 12, 12, fill=colour_of(core), opacity=0.5)
        canvas.text(x + 18, 42 + rows * cell, f"core {core}", size=12)
        x += 74
    run = ", ".join(str(tuple(map(int, point))) for point in simulation.order[:8])
    return canvas.picture(f"Programs in the order in which they ran: {run}")


def play(call: Call, first: int = 6) -> Player:
    """A pallas_call to step through: which block of each operand a program fetches, keeps, writes.

    Where each index map is affine in the program ids, a reader can change the blocks, the grid and
    the order of its loops. Otherwise the blocks are those that the maps gave.

    Args:
        call: the pallas_call.
        first: programs of the still picture.

    Raises:
        ValueError: for a call without a program, or with too many.
    """
    if not 0 < len(call.programs) <= MOST_PROGRAMS:
        fail("call.grid", call.grid, f"1 to {MOST_PROGRAMS} programs")
    maps = affine(call)
    shown = len(call.programs)
    operands, varying = [], 0
    for operand, index in zip(call.operands, maps):
        known: dict[str, Any] = {
            "name": operand.name,
            "role": operand.role,
            "dtype": operand.dtype,
            "bytes": np.dtype(operand.dtype).itemsize,
            "shape": operand.shape,
            "block": operand.block,
            "moves": operand.memory in FAST,
            "memory": operand.memory,
        }
        if index is not None:
            known |= {name: getattr(index, name).tolist() for name in ("offset", "steps", "unit")}
        elif operand.known:
            varying += int(np.any(operand.starts != operand.starts[:1], axis=0).sum())
        operands.append(known)
    if varying:
        shown = min(shown, MOST_RECORDED // varying)
    for known, operand, index in zip(operands, call.operands, maps):
        if index is None and operand.known:
            columns = operand.starts[:shown].T
            known["starts"] = [
                int(c[0]) if (operand.starts[:, d] == c[0]).all() else c.tolist()
                for d, c in enumerate(columns)
            ]
    data = {
        "name": call.name,
        "machine": call.machine,
        "programs": len(call.programs),
        "shown": shown,
        "most": MOST_PROGRAMS,
        "axes": [_axis(call, maps, axis) for axis in range(len(call.grid))],
        "operands": operands,
        "traffic": [operand.traffic for operand in call.operands],
        "fixed": _fixed(call, maps),
        "chip": {name: getattr(CHIPS["v5e"], name) for name in FLOORS},
    }
    still = programs(call, first)
    return Player(still.svg, still.says, "grid", data)


def _fixed(call: Call, maps: Sequence[Affine | None]) -> str:
    """Why a player's blocks cannot be changed, or ""."""
    for operand, index in zip(call.operands, maps):
        if not operand.known:
            return (
                f"Which block of {operand.name} a program gets depends on numbers that are fetched "
                "ahead, which only the run knows."
            )
        if index is None:
            return (
                f"The index map of {operand.name} is no sum of multiples of the program ids. The "
                "blocks are those that it gave for this grid, and cannot be changed here."
            )
        if (index.unit != operand.block).any():
            return (
                f"The index map of {operand.name} counts elements, not blocks. The blocks cannot "
                "be changed here."
            )
    return ""


def _axis(call: Call, maps: Sequence[Affine | None], axis: int) -> dict[str, Any]:
    """One grid dimension of a player: the operands' dimensions that it cuts into blocks.

    fixed: why its blocks cannot be changed, or "".
    """
    known: dict[str, Any] = {
        "name": call.axes[axis],
        "count": call.grid[axis],
        "semantics": call.semantics[axis],
        "cuts": [],
        "fixed": "",
    }
    for number, (operand, index) in enumerate(zip(call.operands, maps)):
        if index is None:
            continue
        for d, steps in enumerate(index.steps):
            if not steps[axis]:
                continue
            known["cuts"].append((number, d))
            alone = steps[axis] == 1 and np.count_nonzero(steps) == 1 and not index.offset[d]
            if not alone:
                known["fixed"] = f"{operand.name} does not take its blocks one by one"
    for number, d in [] if known["fixed"] else known["cuts"][:1]:
        operand = call.operands[number]
        if -(-operand.shape[d] // operand.block[d]) != call.grid[axis]:
            known["fixed"] = f"the grid is not as long as {operand.name} has blocks"
    return known


def _legend(canvas: Canvas, call: Call) -> float:
    """One line for each operand, and what solid and hatched mean; returns the height it took."""
    y = 14.0
    for i, operand in enumerate(call.operands):
        canvas.rect(0, y - 10, 12, 12, fill=colour_of(i), opacity=0.55, stroke=colour_of(i))
        cut = f" in blocks of {in_dims(operand.block)}" if operand.blocked else ", in one block"
        line = f"{operand.name}: {operand.role}, {operand.dtype} {in_dims(operand.shape)}{cut}"
        canvas.text(20, y, line, size=12)
        y += 18
    if len(call.programs) > 1:
        canvas.rect(0, y - 10, 12, 12, fill="currentColor", opacity=0.5)
        canvas.text(20, y, "solid: fetched for this program, or written back after it", size=12)
        y += 18
        canvas.rect(0, y - 10, 12, 12, fill=canvas.hatch("#888888"), stroke="#888888")
        canvas.text(20, y, "hatched: in fast memory already, or staying there", size=12)
        y += 18
    canvas.width = max(canvas.width, 460)
    return y


def _array(
    canvas: Canvas,
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
    colour = colour_of(index)
    px, py, w, h = _place(operand, operand.starts[step], width, height)
    fill = canvas.hatch(colour) if hatch else colour
    canvas.rect(x + px, y + py, w, h, fill=fill, opacity=1 if hatch else 0.6, stroke=colour)
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
                canvas.path(line, opacity=0.25)
    canvas.rect(x, y, width, height, stroke_opacity=0.8)


def _stays(operand: Operand, step: int) -> bool:
    """Whether the block neither arrives before this program nor leaves after it."""
    now = step if operand.role == "input" else step + 1
    return bool((~operand.moved[now : now + 1]).any())


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
    row = 0
    if len(operand.shape) > 1:
        row = int(np.ravel_multi_index([int(i) for i in start[:-1]], operand.shape[:-1]))
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
