"""A NeuronCore, drawn from its data, and when each of its engines works."""

from typing import Any

from kernels.lessons.pictures.canvas import COLOURS, Canvas, Picture, Player, colour_of, in_bytes
from kernels.machines.checks import fail
from kernels.machines.neuron.chips import CHIPS, ENGINES, NeuronChip
from kernels.machines.neuron.estimator import NeuronEstimate

TICK = 1e-10  # seconds: in which a timeline counts
MOST_SLOTS = 1500  # of a timeline that a page can hold


def neuron_core(chip: NeuronChip) -> Picture:
    """One NeuronCore: its engines, its two memories on the chip, and the way to main memory."""
    core, rate = f"NeuronCore-v{chip.generation}", f"{chip.hbm_bytes_per_second / 1e9:.0f} GB/s"
    canvas = Canvas(900, 300)
    canvas.rect(150, 0, 750, 300, stroke_opacity=0.35, radius=8)
    canvas.text(166, 22, f"{core}, one of {chip.cores} on a chip", size=13, weight=600)
    for x, colour, name, lines in (
        (0, COLOURS[3], "HBM", (in_bytes(chip.hbm_bytes), rate)),
        (310, COLOURS[0], "SBUF", (f"{chip.lanes} partitions", f"of {in_bytes(chip.sbuf_bytes)}")),
        (770, COLOURS[2], "PSUM", (f"{chip.lanes} partitions", f"of {in_bytes(chip.psum_bytes)}")),
    ):
        upper, height, top = (0, 300, 24) if name == "HBM" else (32, 256, 62)
        canvas.rect(x, upper, 110, height, fill=colour, opacity=0.2, stroke=colour, radius=6)
        canvas.text(x + 12, top, name, size=13, weight=600)
        for i, line in enumerate(lines):
            canvas.text(x + 12, top + 20 + 16 * i, line, size=11)
        if name != "HBM":
            for i in range(8):  # rows of a memory are partitions
                y = 120 + 19 * i
                canvas.path(f"M{x + 8} {y}h94", colour, stroke_opacity=0.7)
            canvas.text(x + 12, 278, f"0 … {chip.lanes - 1}", size=11)
    engines = f"{chip.dma_queues} engines"
    canvas.arrow(110, 310, 150, True, "DMA", engines)
    canvas.arrow(110, 310, 210, False, "DMA", engines)
    says = {
        "Tensor": "matrix products, SBUF → PSUM",
        "Vector": "two tiles at a time",
        "Scalar": "functions of one tile",
        "GpSimd": "8 cores, the rest; no PSUM",
    }
    for i, engine in enumerate(ENGINES):
        y = 44 + 62 * i
        canvas.rect(500, y, 190, 48, fill=COLOURS[1], opacity=0.2, stroke=COLOURS[1], radius=4)
        canvas.text(510, y + 20, engine, size=12, weight=600)
        canvas.text(680, y + 20, f"{chip.clock_hz[engine] / 1e9:.2f} GHz", size=11, anchor="end")
        canvas.text(510, y + 37, says[engine], size=11)
        canvas.path(f"M420 {y + 24}h80", stroke_width=1.2)
        if engine != "GpSimd":
            canvas.path(f"M690 {y + 24}h80", stroke_width=1.2)
    return canvas.picture(
        f"A {core}: DMA engines move data between HBM and SBUF; the Tensor, Vector, Scalar "
        "and GpSimd engines work on SBUF, all but the last also on PSUM"
    )


def timeline(estimate: NeuronEstimate, first: float | None = None) -> Player:
    """When each engine of a NeuronCore works, on which instruction, and what that waited for.

    Args:
        estimate: of a kernel.
        first: seconds that are in view at first, by default all; more than all, so that two
            pictures have one scale.

    Raises:
        ValueError: for a `first` that is not above 0, and for an estimate of no instruction or of
            too many.
    """
    if not 0 < len(estimate.timeline) <= MOST_SLOTS:
        size = f"one of {len(estimate.timeline)} instructions"
        fail("estimate", size, f"1 to {MOST_SLOTS} instructions: estimate fewer tiles")
    seconds = estimate.seconds if first is None else first
    if not seconds > 0:
        fail("first", first, "seconds above 0, or None for all")
    chip = CHIPS[estimate.chip]
    lanes = [name for name, use in estimate.engines.items() if use.instructions]
    kinds = list(dict.fromkeys(slot.instruction for slot in estimate.timeline))
    sources = list(dict.fromkeys(slot.source or "" for slot in estimate.timeline))
    data = {
        "kernel": estimate.kernel,
        "chip": estimate.chip,
        "tick": TICK,
        "end": round(estimate.seconds / TICK),
        "first": round(seconds / TICK),
        "start": round(chip.dma_start_seconds / TICK),
        "lanes": [
            {
                "name": name,
                "busy": round(estimate.busy[name], 4),
                "instructions": estimate.engines[name].instructions,
                "cycles": round(estimate.engines[name].cycles),
                "clock": chip.clock_hz.get(name, 0),
                "binds": name == estimate.bound,
            }
            for name in lanes
        ],
        "kinds": kinds,
        "sources": sources,
        "slots": [
            (
                lanes.index(slot.engine),
                kinds.index(slot.instruction),
                round(slot.start / TICK),
                round(slot.end / TICK),
                sources.index(slot.source or ""),
                *slot.after,
            )
            for slot in estimate.timeline
        ],
    }
    time = f"{estimate.seconds * 1e6:.1f} µs on one core of {estimate.chip}, estimated"
    says = f"{estimate.kernel}: {time}; the {estimate.bound} engine binds"
    return _engines(estimate, lanes, kinds, seconds).player(says, "timeline", data)


def _engines(
    estimate: NeuronEstimate, lanes: list[str], kinds: list[str], seconds: float
) -> Canvas:
    """The still form: a row for each engine, a bar for each instruction."""
    width, row = 720, 52
    canvas = Canvas(width, row * len(lanes) + 60)
    for lane, name in enumerate(lanes):
        y = row * lane
        binds = ", binds" if name == estimate.bound else ""
        label = f"{name}: {estimate.busy[name]:.0%} busy{binds}"
        canvas.text(0, y + 14, label, size=12, weight=600 if binds else 400)
        canvas.rect(0, y + 20, width, 24, stroke_opacity=0.25)
        for slot in estimate.timeline:
            if slot.engine == name and slot.start < seconds:
                x, end = (width * min(t / seconds, 1) for t in (slot.start, slot.end))
                look = _look(kinds.index(slot.instruction))
                canvas.rect(x, y + 20, end - x, 24, stroke="none", **look)
    y = row * len(lanes)
    for part in range(5):
        anchor = ("start", "middle", "middle", "middle", "end")[part]
        at = f"{seconds * part / 4 * 1e6:.1f}" + (" µs" if part == 4 else "")
        canvas.text(width * part / 4, y + 10, at, size=11, anchor=anchor)
    x = 0.0
    for i, kind in enumerate(kinds):
        if x + 24 + 7 * len(kind) > width:
            x, y = 0, y + 18
        canvas.rect(x, y + 24, 12, 12, stroke="none", **_look(i))
        canvas.text(x + 18, y + 34, kind, size=12)
        x += 38 + 7 * len(kind)
    canvas.height = y + 44
    return canvas


def _look(kind: int) -> dict[str, Any]:
    """The fill of a kind of instruction; the second round of the colours is lighter."""
    return {"fill": colour_of(kind), "opacity": 0.78 if kind < len(COLOURS) else 0.4}
