"""The bundles of a kernel, slot by slot, beside the roofline of its chip."""

import itertools
import math
import re
from typing import Any

import numpy as np

from kernels.lessons.pictures.canvas import COLOURS, Canvas, Player
from kernels.machines import tpu
from kernels.machines.checks import fail
from kernels.machines.pallas.work import kernel_flops
from kernels.machines.tpu.estimate.bands import Band

FILL, POINT = COLOURS[0], COLOURS[1]
LEVELS = 8  # shades of a slot that is not empty
COLUMNS = 160  # of the still picture
BUNDLES = 40_000  # that a reader may zoom into; a page carries two letters for each
LARGEST = 140_000  # letters that the bundles may take; the text of a short loop takes what is left
LETTERS = [chr(c) for c in range(35, 127) if chr(c) not in "<>&\\"]  # of the two


def schedule(estimate: tpu.Estimate, kernel: str | int = 0) -> Player:
    """How full each slot of a kernel's bundles is, and where the kernel stands under the roofline.

    Args:
        estimate: of a program with the kernel.
        kernel: its place or its name, as in kernels.tpu.Schedule.

    Raises:
        ValueError: for a kernel that the program does not have, and where the compiler wrote no
            schedule.
    """
    if not estimate.schedule.kernels:
        fail("estimate", f"{estimate.name}, without a schedule", "one with a kernel's schedule")
    scheduled = estimate.schedule[kernel]
    op = next((op for op in estimate.ops if op.name == scheduled.name), None)
    name = re.sub(r"\.\d+$", "", scheduled.name)  # without the compiler's number
    data = {"name": name, "chip": estimate.chip, **_bundles(scheduled)}
    roof, place = _roofline(op, estimate.chip, estimate.band)
    canvas = _draw(scheduled, data)
    left = canvas.width + 14
    canvas.width, canvas.height = left + roof.width, max(canvas.height, roof.height)
    canvas.parts.append(f'<g transform="translate({left} 0)">{"".join(roof.parts)}</g>')
    inside = scheduled.loop_utilisation
    best = max(inside, key=lambda slot: inside[slot])
    said = (
        f"{name} on a {estimate.chip}: {len(scheduled.occupancy):,} bundles, "
        f"{scheduled.loop_bundles:,} of them in a loop, where the {best} slots are the fullest, "
        f"{inside[best]:.0%}. {place}"
    )
    data |= {"place": place, "roof": roof.picture(place).svg}
    return canvas.player(said, "schedule", data)


def _bundles(schedule: tpu.KernelSchedule) -> dict[str, Any]:
    """What a player needs of a schedule: each bundle as two letters, which number a distinct one.

    A distinct one has two letters that number what it holds, a digit for each slot; and for each
    operation two that number its name, and one that tells how many there are.
    """
    count = min(len(schedule.occupancy), BUNDLES)
    pairs = ["".join(pair) for pair in itertools.product(LETTERS, repeat=2)]
    rows = ["".join(str(min(n, 9)) for n in row) for row in schedule.occupancy[:count]]
    while len(set(rows)) > len(pairs):  # more than can be numbered
        rows = rows[: len(rows) // 2]
    count = len(rows)
    named = [schedule.names(i) if i < len(schedule.bundles) else {} for i in range(count)]
    held = dict(zip(dict.fromkeys(rows), pairs))
    names = dict(zip(dict.fromkeys(itertools.chain(*named)), pairs))

    def letters(words: dict[str, int]) -> str:
        most = len(LETTERS) - 1
        return "".join(names[name] + LETTERS[min(n, most)] for name, n in sorted(words.items()))

    kinds = [held[row] + letters(words) for row, words in zip(rows, named)]
    distinct = dict.fromkeys(kinds)
    size = 2 * count + sum(len(part) + 3 for part in (*distinct, *held, *names))
    if len(distinct) > len(pairs) or size > LARGEST:
        kinds = [held[row] for row in rows]
        distinct, names = dict.fromkeys(kinds), {}
    code = dict(zip(distinct, pairs))
    depths = [bundle.depth for bundle in schedule.bundles[:count]]
    loops = []
    for depth, run in itertools.groupby(range(len(depths)), key=lambda i: depths[i]):
        places = list(run)
        if depth:
            loops.append([places[0], places[-1] + 1, depth])
    first = loops[0][0] if loops else 0
    last = loops[-1][1] if loops else count
    text = schedule.text(first, last, width=200) if last - first <= 1000 else ""
    return {
        "bundles": len(schedule.occupancy),
        "slots": list(schedule.slots),
        "capacity": [int(n) for n in schedule.capacity],
        "inside": [round(schedule.loop_utilisation[slot], 4) for slot in schedule.slots],
        "loops": loops,
        "held": list(held),
        "names": list(names),
        "kinds": list(distinct),
        "letters": "".join(LETTERS),
        "order": "".join(code[kind] for kind in kinds),
        "text": text.split("\n") if text and size + len(text) <= LARGEST else [],
        "first": first,
    }


def _draw(schedule: tpu.KernelSchedule, data: dict[str, Any]) -> Canvas:
    """The heat map: time from left to right, a row for each slot, the loop marked above."""
    left, width, row, top = 190, 440, 20, 44
    slots, count = schedule.slots, len(schedule.occupancy)
    canvas = Canvas(left + width, top + row * len(slots) + 66)
    canvas.text(0, 14, f"{data['name']}: {count:,} bundles", size=14, weight=600)
    full = schedule.occupancy / np.maximum(schedule.capacity, 1)
    parts = [part.mean(0) for part in np.array_split(full, min(COLUMNS, count))]
    wide = width / len(parts)
    for place, slot in enumerate(slots):
        y = top + place * row
        name = f"{slot}  {schedule.loop_utilisation[slot]:.0%}"
        canvas.text(left - 8, y + 14, name, anchor="end")
        canvas.rect(left, y, width, row - 2, fill="currentColor", opacity=0.05, stroke="none")
    shades: dict[int, str] = {}
    for column, part in enumerate(parts):
        for place, share in enumerate(part):
            if share > 0:
                level = max(1, round(share * LEVELS))
                box = f"h{wide + 0.2:.1f}v{row - 2}h{-wide - 0.2:.1f}z"
                corner = f"M{left + column * wide:.1f} {top + place * row}"
                shades[level] = shades.get(level, "") + corner + box
    for level, cells in sorted(shades.items()):
        canvas.parts.append(f'<path d="{cells}" fill="{FILL}" opacity="{_shade(level)}"/>')
    scale = width / count
    for start, stop, depth in data["loops"]:
        if depth == 1 and (stop - start) * scale > 3:
            x, y = left + start * scale, top - 8
            canvas.path(f"M{x:.1f} {y + 5}v-5h{(stop - start) * scale:.1f}v5", opacity=0.7)
    if data["loops"]:
        at = left + (data["loops"][0][0] + data["loops"][-1][1]) / 2 * scale
        canvas.text(at, top - 13, "in the loop over the grid", size=11, anchor="middle")
    y = top + row * len(slots) + 2
    canvas.path(f"M{left} {y}h{width}", opacity=0.5)
    for share, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        at = left + share * width
        canvas.text(at, y + 15, f"{round(share * count):,}", size=11, anchor=anchor)
    canvas.text(left - 8, y + 15, "bundle", size=11, anchor="end")
    for level in range(LEVELS + 1):
        x = left + 22 * level
        fill = FILL if level else "currentColor"
        shade = _shade(level) if level else 0.05
        canvas.rect(x, y + 28, 22, 12, fill=fill, opacity=shade, stroke="none")
    canvas.text(left - 8, y + 38, "empty", size=11, anchor="end")
    words = "all of the slots full; per cent: in the loop"
    canvas.text(left + 22 * LEVELS + 30, y + 38, words, size=11)
    return canvas


def _shade(level: int) -> float:
    """How dark a level is drawn: the lowest is still seen on black."""
    return round(0.2 + 0.8 * level / LEVELS, 3)


def _roofline(op: tpu.OpEstimate | None, chip: str, band: Band | None) -> tuple[Canvas, str]:
    """The roofline of a chip with one kernel under it, and where that stands, in words."""
    rates = tpu.CHIPS[chip]
    flops = kernel_flops(op.call) if op and op.call else {}
    dtype = max(flops, key=lambda d: flops[d]) if flops else "bfloat16"
    peak, bandwidth = rates.peak(dtype), rates.hbm_bytes_per_second
    ridge = peak / bandwidth
    total = sum(flops.values())
    left, right, top, bottom = 44.0, 268.0, 44.0, 238.0
    x_low, x_high = ridge / 300, ridge * 30
    y_low, y_high = peak / 3000, peak * 3
    said = "It multiplies no matrices, so it has no place under this roof"
    point = None
    if total and op and op.hbm_bytes and op.cycles:
        seconds = op.cycles / op.times / rates.clock_hz
        intensity, rate = total / (op.hbm_bytes / op.times), total / seconds
        point = intensity, rate
        x_low, x_high = min(x_low, intensity / 2), max(x_high, intensity * 2)
        y_low = min(y_low, rate / 3)
        share = f"{rate / peak:.0%}" if rate > 0.01 * peak else f"{rate / peak:.1%}"
        said = (
            f"{intensity:,.3g} operations for each byte of HBM, {rate / 1e12:.3g} TFLOP/s, "
            f"{share} of the peak: estimated"
        )

    def x(value: float) -> float:
        return left + math.log(value / x_low) / math.log(x_high / x_low) * (right - left)

    def y(value: float) -> float:
        return bottom - math.log(value / y_low) / math.log(y_high / y_low) * (bottom - top)

    canvas = Canvas(right + 8, bottom + 50)
    canvas.text(0, 14, f"Roofline of a {chip}, {dtype}", size=14, weight=600)
    grid = []
    for power in _powers(x_low, x_high):
        grid.append(f"M{x(10.0**power):.1f} {top}V{bottom}")
        canvas.text(x(10.0**power), bottom + 15, f"{10.0**power:,g}", size=11, anchor="middle")
    for power in _powers(y_low / 1e12, y_high / 1e12):
        at = y(10.0**power * 1e12)
        grid.append(f"M{left} {at:.1f}H{right}")
        canvas.text(left - 5, at + 4, f"{10.0**power:,g}", size=11, anchor="end")
    canvas.path("".join(grid), opacity=0.12)
    roof = f"M{left} {y(x_low * bandwidth):.1f}L{x(ridge):.1f} {y(peak):.1f}H{right}"
    if x_low * bandwidth < y_low:  # the slope leaves the frame below
        roof = f"M{x(y_low / bandwidth):.1f} {bottom}L{x(ridge):.1f} {y(peak):.1f}H{right}"
    canvas.path(roof, stroke_width=2)
    canvas.path(f"M{x(ridge):.1f} {y(peak):.1f}V{bottom}", stroke_dasharray="3 3", opacity=0.5)
    canvas.text(right, y(peak) - 6, f"{peak / 1e12:.0f} TFLOP/s", size=11, anchor="end")
    canvas.text(x(ridge) - 5, bottom - 6, f"ridge {ridge:.0f}", size=11, anchor="end")
    slope = math.degrees(math.atan2(y(peak) - y(peak / 10), x(ridge) - x(ridge / 10)))
    mx, my = x(ridge / 12), y(peak / 12) - 7
    canvas.parts.append(
        f'<g transform="rotate({slope:.1f} {mx:.1f} {my:.1f})"><text x="{mx:.1f}" '
        f'y="{my:.1f}" font-size="11" text-anchor="middle" fill="currentColor">'
        f"{bandwidth / 1e9:,.0f} GB/s</text></g>"
    )
    canvas.text(left, top - 12, "TFLOP/s", size=11)
    canvas.text(right, bottom + 34, "operations for each byte of HBM", size=11, anchor="end")
    if point and op:
        px, py = x(point[0]), y(point[1])
        # A longer time is a lower rate.
        least, most = band.around(1.0) if band else (1.0, 1.0)
        low, high = y(point[1] / most), y(point[1] / least)
        canvas.path(f"M{px:.1f} {low:.1f}V{high:.1f}", POINT, stroke_width=2)
        canvas.parts.append(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="5" fill="{POINT}" stroke="currentColor"/>'
        )
        fits = px + 84 < right
        reached = f"{point[1] / 1e12:.3g} TFLOP/s"
        at, anchor = (px + 8, "start") if fits else (right, "end")
        canvas.text(at, py + 18, reached, size=11, anchor=anchor)
    return canvas, said


def _powers(low: float, high: float) -> range:
    """The powers of ten between two values."""
    return range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
