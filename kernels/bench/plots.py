"""Pictures of estimates: the roofline, the heat map of a schedule, the pipeline's time line, and
that of a NeuronCore's engines.

Needs matplotlib.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels import optional
from kernels.pallas.calls import Call
from kernels.pallas.work import kernel_flops
from kernels.tpu import CHIPS, Estimate, KernelSchedule

# Told apart by lightness and by marker, so that they survive greyscale; mid tones, so that they
# stand on white and on black alike.
COLOURS = ("#3b7dd8", "#d9822b", "#2a9d6f", "#b04fb5", "#8a8a8a")
MARKERS = ("o", "s", "^", "D", "v")
INK = "#777777"  # axes, text and limits


def style() -> None:
    """Let matplotlib draw so that a plot stands on a light page and on a dark one, as SVG."""
    optional.require("matplotlib", "drawing")
    import matplotlib

    clear = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    matplotlib.rcParams.update(dict.fromkeys(clear, "none") | dict.fromkeys(ink, INK))
    matplotlib.rcParams["legend.frameon"] = False
    if "IPython" in sys.modules:  # in a notebook
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg")


def _axes(axes: Any, size: tuple[float, float]) -> Any:
    style()
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1] if axes is None else axes


def roofline(
    estimates: Mapping[str, Estimate] | Sequence[Estimate],
    title: str | None = None,
    axes: Any = None,
) -> Any:
    """Draw estimates under the roof of their chip.

    estimates: label → Estimate, all for one chip and with matrix products. title: by default it
    states how near the best one comes. axes: a matplotlib Axes; None makes one.
    Returns the Axes. Raises ValueError for estimates of several chips or without products.
    """
    if not isinstance(estimates, Mapping):
        estimates = {e.name: e for e in estimates}
    chips = {e.chip for e in estimates.values()}
    if len(chips) != 1 or any(not e.flops for e in estimates.values()):
        raise ValueError(
            f"estimates is of {', '.join(sorted(chips)) or 'nothing'}; accepted: estimates for one "
            "chip, each with matrix products"
        )
    chip = CHIPS[chips.pop()]
    axes = _axes(axes, (6.4, 4.0))
    ridge = chip.bf16_flops / chip.hbm_bytes_per_second
    at = {name: e.flops / max(e.hbm_bytes, 1) for name, e in estimates.items()}
    low = min([ridge / 8, *at.values()]) / 2
    high = max([ridge * 8, *at.values()]) * 2
    x = np.geomspace(low, high, 200)
    roof = np.minimum(chip.bf16_flops, x * chip.hbm_bytes_per_second) / 1e12
    axes.plot(x, roof, color=INK, lw=2)
    axes.annotate(
        f"{chip.bf16_flops / 1e12:.0f} TFLOP/s, bf16",
        (high, roof[-1]),
        ha="right",
        va="bottom",
        color=INK,
    )
    axes.annotate(
        f"{chip.hbm_bytes_per_second / 1e9:.0f} GB/s",
        (x[20], roof[20]),
        ha="right",
        va="bottom",
        color=INK,
    )
    for i, (name, e) in enumerate(estimates.items()):
        rate = e.flops / e.seconds / 1e12
        kwargs = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.errorbar(
            at[name],
            rate,
            yerr=[[rate - rate / (1 + e.error)], [rate / (1 - e.error) - rate]],
            ls="none",
            ms=8,
            capsize=3,
            label=name,
            **kwargs,
        )
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte of HBM (FLOP/byte)")
    axes.set_ylabel("rate, estimated (TFLOP/s)")
    axes.set_ylim(top=roof[-1] * 4)
    best = max(estimates, key=lambda n: estimates[n].utilisation)
    share = estimates[best].utilisation
    axes.set_title(title or f"{best} reaches {share:.0%} of {chip.name}'s peak (estimated)")
    axes.legend(loc="lower right")
    return axes


def heat_map(
    schedule: KernelSchedule,
    start: int | None = None,
    stop: int | None = None,
    title: str | None = None,
    axes: Any = None,
    rows: int = 200,
) -> Any:
    """Draw how full each slot is, bundle by bundle; time runs from left to right.

    start, stop: the bundles to draw, by default those inside the kernel's loop. rows: at most so
    many columns are drawn; each is the mean of neighbouring bundles. title: by default it states
    which slot is the fullest. axes: a matplotlib Axes; None makes one. Returns the Axes.
    """
    inside = np.flatnonzero(schedule.in_loop)
    start = int(inside[0]) if start is None else start
    stop = int(inside[-1]) + 1 if stop is None else stop
    if not 0 <= start < stop <= len(schedule.occupancy):
        raise ValueError(
            f"start, stop is {start}, {stop}; accepted: bundles of 0 … {len(schedule.occupancy)}"
        )
    axes = _axes(axes, (7.2, 3.0))
    full = schedule.occupancy[start:stop] / np.maximum(schedule.capacity, 1)
    parts = np.array_split(full, min(rows, len(full)))
    picture = np.stack([part.mean(0) for part in parts], 1)
    image = axes.imshow(
        picture,
        aspect="auto",
        cmap="cividis",  # grows evenly lighter, so that greyscale keeps the order
        vmin=0,
        vmax=1,
        interpolation="nearest",
        extent=(start, stop, len(schedule.slots) - 0.5, -0.5),
    )
    axes.set_yticks(range(len(schedule.slots)), schedule.slots)
    axes.set_xlabel("bundle (each takes a cycle or more)")
    bar = axes.figure.colorbar(image, ax=axes)
    bar.set_label("share of the slot that is full")
    looped = schedule.in_loop[start:stop]
    means = full[looped if looped.any() else slice(None)].mean(0)
    best = int(np.argmax(means))
    axes.set_title(
        title
        or f"{schedule.name}: the {schedule.slots[best]} slots are the fullest, {means[best]:.0%}"
    )
    return axes


@dataclass(frozen=True)
class Span:
    """What one unit does for a while. unit: "fetch", "multiply" or "write". step: of the grid, that
    it is for. label: the operand, or the step. start, stop: cycles."""

    unit: str
    step: int
    label: str
    start: float
    stop: float


def spans(call: Call, chip: str = "v5e") -> list[Span]:
    """When each block moves and each step multiplies, if nothing took longer than it must.

    The pipeline with two buffers: when a step begins, the blocks of the next one are asked for; a
    step begins when the one before has ended and its own blocks are there; a result is written when
    its block is done. Copies go one after another at the chip's bandwidth, products at its peak, an
    even share for each step; there is no latency. So a bound on the real kernel, not an estimate.
    """
    rates = CHIPS[chip]
    steps = len(call.programs)
    flops = kernel_flops(call.equation)
    multiply = sum(f / rates.peak(d) for d, f in flops.items()) * rates.clock_hz / max(steps, 1)
    found: list[Span] = []
    free = 0.0  # when HBM has done all that was asked for

    def copy(unit: str, step: int, operand: Any, asked: float) -> None:
        nonlocal free
        start = max(free, asked)
        free = start + operand.block_bytes / rates.hbm_bytes_per_cycle
        found.append(Span(unit, step, operand.name, start, free))

    def fetch(step: int, asked: float) -> float:
        """Ask for the blocks that `step` needs anew; when they are there."""
        there = asked
        for operand in call.inputs if step < steps else ():
            if operand.memory == "vmem" and operand.moved[step]:
                copy("fetch", step, operand, asked)
                there = free
        return there

    there, end = fetch(0, 0.0), 0.0
    for step in range(steps):
        begin = max(end, there)
        end = begin + multiply
        found.append(Span("multiply", step, str(step), begin, end))
        there = fetch(step + 1, begin)
        for operand in call.outputs:
            if operand.memory == "vmem" and (step + 1 == steps or operand.moved[step + 1]):
                copy("write", step, operand, end)
    return found


def time_line(
    call: Call, chip: str = "v5e", first: int = 12, title: str | None = None, axes: Any = None
) -> Any:
    """Draw `spans` of the first steps: which block moves when, and when the MXUs work.

    title: by default it states the MXUs' share of the whole time, all steps counted. axes: a
    matplotlib Axes; None makes one. Returns the Axes.
    """
    found = spans(call, chip)
    busy = sum(s.stop - s.start for s in found if s.unit == "multiply")
    share = busy / max(s.stop for s in found)
    axes = _axes(axes, (7.2, 2.4))
    rows = ("fetch", "multiply", "write")
    names = [o.name for o in call.inputs]
    last = max(s.stop for s in found if s.unit == "multiply" and s.step < first)
    for span in found:
        if span.start >= last:
            continue
        colour = {"multiply": COLOURS[0], "write": COLOURS[4]}.get(span.unit)
        colour = colour or COLOURS[1 + names.index(span.label) % 3]
        width = span.stop - span.start
        box = (span.start, rows.index(span.unit) - 0.35)
        bar = {"color": colour, "alpha": 0.7, "ec": INK, "lw": 0.6}
        axes.broken_barh([(span.start, width)], (box[1], 0.7), **bar)
        if width > last / 40:
            centre = (span.start + width / 2, rows.index(span.unit))
            axes.annotate(span.label, centre, ha="center", va="center", fontsize=8)
    axes.set_yticks(range(3), ("HBM → VMEM", "MXUs", "VMEM → HBM"))
    axes.set_ylim(2.6, -0.6)  # from the top down, and room for a row without a bar
    axes.set_xlim(0, last)
    axes.set_xlabel(f"cycles of a {chip}, at its peak rates and without latency")
    axes.set_title(title or f"At best, the MXUs work {share:.0%} of the time")
    return axes
