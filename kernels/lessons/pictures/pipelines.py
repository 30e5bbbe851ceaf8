"""A kernel's pipeline in time, for one choice of blocks beside the others."""

import math
from collections.abc import Mapping
from typing import Any

from kernels.lessons.pictures.canvas import Canvas, Player, colour_of
from kernels.machines import tpu
from kernels.machines.checks import fail, one_of

STEPS = 40  # of each pipeline that a reader may look at
SHOWN = 10  # of them in the still picture
NEAR = 0.02  # how far a pipeline may be from its estimate, relative, without a word
PRODUCTS, WAIT, ENDS = "#7a6cc4", "#c8443c", "#808080"
# What the time of a kernel goes into: name, words, colour, and the angle of its hatching, by which
# two are told apart in greyscale; 0 for none.
PARTS = (
    ("products", "products, at the chip's peak rate", PRODUCTS, 0),
    ("rest", "the rest of a step", PRODUCTS, 45),
    ("wait", "waiting for a block", WAIT, -45),
    ("ends", "first fetch and last write", ENDS, 90),
)


def pipeline(
    estimates: Mapping[str, tpu.Estimate],
    start: str | None = None,
    chosen: str = "block sizes",
    bands: bool = True,
) -> Player:
    """The first steps of a kernel's pipeline, and what its time goes into, for a choice of blocks.

    Args:
        estimates: what to call each choice, such as its block sizes → the kernels.tpu.Estimate of a
            program with one kernel; all for one chip.
        start: the choice that is shown first, by default the fastest.
        chosen: what is.
        bands: whether the band of each estimate stands beside its time.

    Raises:
        ValueError: for no estimates, for several chips, for a program with no kernel or several,
            and for a start that is none of the choices.
    """
    chips = sorted({e.chip for e in estimates.values()})
    if len(chips) != 1:
        fail("estimates", f"of {', '.join(chips) or 'nothing'}", "estimates for one chip")
    choices = {}
    for label, estimate in estimates.items():
        kernels = [op for op in estimate.ops if op.kind == "kernel" and op.call is not None]
        if len(kernels) != 1:
            fail(f"estimates[{label!r}]", f"of {len(kernels)} kernels", "a program with one")
        choices[label] = _choice(label, estimate, tpu.pipeline(kernels[0], estimate.chip), bands)
    fastest = min(estimates, key=lambda label: estimates[label].seconds)
    start = fastest if start is None else start
    one_of("start", start, choices)
    data = {
        "chip": chips[0],
        "megahertz": tpu.CHIPS[chips[0]].clock_hz / 1e6,
        "parts": [{"name": n, "says": s, "colour": c, "angle": a} for n, s, c, a in PARTS],
        "choices": list(choices.values()),
        "start": list(choices).index(start),
        "of": chosen,
        "near": NEAR,
        "shown": SHOWN,
    }
    said = {name: words for name, words, _, _ in PARTS}
    shares = ", ".join(f"{said[n]} {s:.0%}" for n, s in choices[start]["parts"].items())
    says = (
        f"The first steps of {start} on a {chips[0]}, estimated: {shares}. "
        f"The fastest of {len(choices)} {chosen}: {fastest}"
    )
    return _draw(data).player(says, "pipeline", data)


def _choice(label: str, estimate: tpu.Estimate, laid: tpu.Pipeline, bands: bool) -> dict[str, Any]:
    """What a picture needs of one pipeline; times in whole cycles."""
    parts = {"ends": laid.parts["first fetch"] + laid.parts["last write"], **laid.parts}
    lanes = [*laid.inputs, *laid.outputs]
    return {
        "label": label,
        "ms": float(f"{estimate.seconds * 1e3:.6g}"),
        # The estimate spreads HBM's bytes over the run; here each step waits for its own.
        "laid": float(f"{laid.cycles / tpu.CHIPS[estimate.chip].clock_hz * 1e3:.6g}"),
        "band": f" ({estimate.band_text})" if bands else "",
        "method": estimate.method,
        "count": len(laid.steps),
        "parts": {name: round(parts[name] / laid.cycles, 4) for name, *_ in PARTS},
        "inputs": list(laid.inputs),
        "outputs": list(laid.outputs),
        # Each step: waits from, starts at, multiplies from, stops at.
        "steps": [
            [round(t) for t in (s.idle, s.start, s.products, s.stop)] for s in laid.steps[:STEPS]
        ],
        # Each move: lane, step, bytes, asked for and HBM free at, carried at, there at.
        "moves": [
            [lanes.index(m.operand), m.step, m.size, *map(round, (m.start, m.carried, m.arrived))]
            for m in laid.moves
            if m.step < STEPS
        ],
    }


def _draw(data: Mapping[str, Any]) -> Canvas:
    """The still picture: what players/pipeline.js draws before anybody touches it."""
    choice = data["choices"][data["start"]]
    names = [*choice["inputs"], *choice["outputs"]]
    steps = choice["steps"][: data["shown"]]
    left, width, tall, gap = 150, 640, 26, 10
    canvas = Canvas(left + width + 110, 0)
    last = steps[-1][3]

    def x(cycle: float) -> float:
        return left + min(cycle, last) / last * width

    count = f"{len(steps)} of {choice['count']:,} steps"
    canvas.text(0, 14, f"{choice['label']}: the first {count}", size=14, weight=600)
    top = 34.0
    lanes = [*choice["inputs"], None, *choice["outputs"]]  # None: the matrix units
    where = {name: top + i * (tall + gap) for i, name in enumerate(lanes)}
    for name, y in where.items():
        way = "HBM → VMEM" if name in choice["inputs"] else "VMEM → HBM"
        canvas.text(left - 10, y + 17, f"{name}, {way}" if name else "core", anchor="end")
        canvas.rect(left, y, width, tall, fill="currentColor", opacity=0.04, stroke="none")

    def hatched(y: float, start: float, stop: float, fill: str) -> None:
        canvas.rect(x(start), y, x(stop) - x(start), tall, fill=fill, stroke="none")

    def numbered(y: float, start: float, stop: float, colour: str, step: int) -> None:
        wide = x(stop) - x(start)
        canvas.rect(x(start), y, wide, tall, fill=colour, opacity=0.7, stroke=colour)
        if wide > 7 * len(str(step)) + 4:
            canvas.text((x(start) + x(stop)) / 2, y + 17, str(step), anchor="middle")

    for lane, step, _, start, carried, stop in choice["moves"]:
        if start < last:
            colour, y = colour_of(lane), where[names[lane]]
            hatched(y, carried, stop, canvas.hatch(colour))
            numbered(y, start, carried, colour, step)
    y = where[None]
    for step, (idle, start, products, stop) in enumerate(steps):
        if start > idle:
            hatched(y, idle, start, canvas.hatch(WAIT, -45) if step else canvas.hatch(ENDS, 90))
        hatched(y, start, products, canvas.hatch(PRODUCTS))
        numbered(y, products, stop, PRODUCTS, step)
    top = y = max(where.values()) + tall + 6
    canvas.path(f"M{left} {y}h{width}", opacity=0.5)
    least = last / data["megahertz"] / 8
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= least)
    tick = 0.0
    while tick * data["megahertz"] <= last:
        at = x(tick * data["megahertz"])
        canvas.path(f"M{at:.1f} {y}v4", opacity=0.5)
        canvas.text(at, y + 18, f"{tick:g}", size=11, anchor="middle")
        tick = round(tick + step, 6)
    canvas.text(left + width + 10, y + 18, f"µs on a {data['chip']}", size=11)
    top = _bars(canvas, data, top + 44, left, width)
    canvas.height = _legend(canvas, data, top + 18, left)
    return canvas


def _bars(canvas: Canvas, data: Mapping[str, Any], top: float, left: float, width: float) -> float:
    """What the whole time goes into, a bar for each choice; returns where they end."""
    head = f"What the time of all steps goes into, for each of the {data['of']}"
    canvas.text(0, top, head, size=14, weight=600)
    top += 12
    for index, choice in enumerate(data["choices"]):
        at, weight = float(left), 600 if index == data["start"] else 400
        canvas.text(left - 10, top + 14, choice["label"], anchor="end", weight=weight)
        for name, _, colour, angle in PARTS:
            part = choice["parts"][name] * width
            if part > 0.5:
                canvas.rect(at, top, part, 18, **_look(canvas, colour, angle))
            at += part
        time = f"{choice['ms']:.3g} ms{choice['band']}"
        canvas.text(left + width + 10, top + 14, time, weight=weight)
        top += 24
    return top


def _legend(canvas: Canvas, data: Mapping[str, Any], top: float, left: float) -> float:
    at = float(left)
    for _, words, colour, angle in PARTS:
        canvas.rect(at, top - 10, 12, 12, **_look(canvas, colour, angle))
        canvas.text(at + 18, top, words, size=11)
        at += 36 + 6.2 * len(words)
    notes = (
        "A number is the step that a block is for. A copy has HBM for itself where it is solid, "
        "and is on its way where it is hatched.",
        f"Estimated, not measured: {data['choices'][data['start']]['method']}",
        *(
            f"{c['label']} takes {c['laid']:.3g} ms as it is laid out here: each step waits for "
            "its own bytes, which the estimate spreads over the run."
            for c in data["choices"]
            if abs(c["laid"] / c["ms"] - 1) > NEAR
        ),
    )
    for note in notes:
        top += 18
        canvas.text(left, top, note, size=11)
    return top + 8


def _look(canvas: Canvas, colour: str, angle: int) -> dict[str, Any]:
    fill = canvas.hatch(colour, angle) if angle else colour
    return {"fill": fill, "opacity": 1 if angle else 0.7, "stroke": colour}
