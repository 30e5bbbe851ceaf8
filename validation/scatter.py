"""Plots of estimates over what was measured. Needs matplotlib."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kernels.lessons.pictures import plots
from kernels.machines.tpu.estimate.bands import TEST, WRITERS
from validation.comparisons import FIT, Comparison, spread

__all__ = ["predicted", "predictions"]


def predicted(rows: Sequence[Comparison], title: str | None = None, axes: Any = None) -> Any:
    """Draw estimates over the published times that they are held against.

    Args:
        rows: those without an estimate are left out.
        title: by default it states the middle error of the half kept for testing.
        axes: a matplotlib Axes; None makes one.

    Returns:
        The Axes.

    Raises:
        ValueError: where no row has an estimate.
    """
    drawn = _drawn(rows)
    if axes is None:
        plots.style()
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(4.4, 4.0), layout="constrained")[1]
    ends = [ms for row in drawn for ms in (row.published_ms, row.estimated_ms) if ms]
    low, high = 10 ** math.floor(math.log10(min(ends))), 10 ** math.ceil(math.log10(max(ends)))
    axes.plot((low, high), (low, high), color=plots.INK, lw=1)
    for half, filled, label in ((FIT, False, "fitted half"), (TEST, True, "test half")):
        for i, name in enumerate(WRITERS):
            own = [row for row in drawn if row.half == half and row.regime.startswith(name)]
            axes.scatter(
                [row.published_ms for row in own],
                [row.estimated_ms for row in own],
                s=22,
                marker=plots.MARKERS[i],
                facecolors=plots.COLOURS[i] if filled else "none",
                edgecolors=plots.COLOURS[i],
                linewidths=0.9,
                zorder=2 + len(WRITERS) - i,  # most rows are XLA's, and would hide a kernel's
                label=f"{name}, {label}" if own else None,
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")  # of a single decade it would write each tick
    axes.set(xlabel="measured, as published (ms)", ylabel="estimated (ms)")
    test = spread(row for row in drawn if row.half == TEST)
    error = f"{test.rows} test rows, half of them within {test.median:.0%}" if test else "fit only"
    axes.set_title(title or error)
    axes.legend(loc="upper left", fontsize="small")
    return axes


def predictions(rows: Sequence[Comparison]) -> list[Any]:
    """Draw `predicted` for each chip and regime, a figure each.

    Args:
        rows: those without an estimate are left out.

    Returns:
        The matplotlib Figures, by chip and regime.

    Raises:
        ValueError: where no row has an estimate.
    """
    panels: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for row in _drawn(rows):
        panels[row.chip, row.regime].append(row)
    plots.style()
    import matplotlib.pyplot as plt

    # Looked for, they would take half of the time.
    figures, margins = [], {"left": 0.26, "right": 0.91, "bottom": 0.17, "top": 0.85}
    for chip, regime in sorted(panels):
        panel = panels[chip, regime]
        test = spread(row for row in panel if row.half == TEST)
        error = f"test: {test.rows}, half within {test.median:.0%}" if test else "no test row"
        figure, axes = plt.subplots(figsize=(3.0, 2.9), gridspec_kw=margins)
        predicted(panel, f"{chip}: {regime}\n{error}", axes)
        axes.title.set_fontsize(plt.rcParams["axes.labelsize"])  # the panel is narrow
        axes.get_legend().remove()
        figures.append(figure)
    return figures


def _drawn(rows: Sequence[Comparison]) -> list[Comparison]:
    drawn = [row for row in rows if row.estimated_ms is not None]
    if not drawn:
        raise ValueError("rows is without an estimate; accepted: rows of which one has an estimate")
    return drawn
