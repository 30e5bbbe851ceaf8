"""Plots of estimates beside what was measured.

Needs matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kernels.figures import bands
from kernels.figures.bands import Checked
from kernels.lessons.pictures import plots
from kernels.machines.tpu.estimate.bands import WRITERS


def predicted(rows: Sequence[Checked], title: str | None = None, axes: Any = None) -> Any:
    """Draw estimates over the published times that they are held against.

    Args:
        rows: of kernels.figures.bands; those without an estimate are left out.
        title: by default it states the middle error of the half kept for testing.
        axes: a matplotlib Axes; None makes one.

    Returns:
        The Axes.

    Raises:
        ValueError: where no row has an estimate.
    """
    drawn = [row for row in rows if row.estimated_ms is not None]
    if not drawn:
        raise ValueError("rows is without an estimate; accepted: rows of which one has an estimate")
    if axes is None:
        plots.style()
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(4.4, 4.0), layout="constrained")[1]
    test = [row for row in drawn if row.half == bands.TEST]
    ends = [ms for row in drawn for ms in (row.published_ms, row.estimated_ms) if ms]
    low, high = 10 ** math.floor(math.log10(min(ends))), 10 ** math.ceil(math.log10(max(ends)))
    axes.plot((low, high), (low, high), color=plots.INK, lw=1)
    for half, face, label in ((bands.FIT, "none", "fitted to"), (bands.TEST, None, "the test")):
        of = [row for row in drawn if row.half == half]
        for i, name in enumerate(WRITERS):
            own = [row for row in of if row.regime.startswith(name)]
            axes.scatter(
                [row.published_ms for row in own],
                [row.estimated_ms for row in own],
                s=22,
                marker=plots.MARKERS[i],
                facecolors=plots.COLOURS[i] if face is None else face,
                edgecolors=plots.COLOURS[i],
                linewidths=0.9,
                label=f"{name}, {label}" if own else None,
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")  # of a single decade it would write each tick
    axes.set(xlabel="measured, as published (ms)", ylabel="estimated (ms)")
    spread = bands.spread(test)
    told = (
        f"{len(test)} test rows, half of them within {spread.median:.0%}" if spread else "fit only"
    )
    axes.set_title(title or told)
    axes.legend(loc="upper left", fontsize="small")
    return axes


def predictions(rows: Sequence[Checked]) -> list[Any]:
    """Draw `predicted` for each chip and regime, a figure each.

    Args:
        rows: of kernels.figures.bands.

    Returns:
        The matplotlib Figures, by chip and regime.

    Raises:
        ValueError: where no row has an estimate.
    """
    plots.style()
    import matplotlib.pyplot as plt

    panels: dict[tuple[str, str], list[Checked]] = {}
    for row in sorted(rows, key=lambda row: (row.chip, row.regime)):
        if row.estimated_ms is not None:
            panels.setdefault((row.chip, row.regime), []).append(row)
    if not panels:
        raise ValueError("rows is without an estimate; accepted: rows of which one has an estimate")
    figures = []
    for (chip, regime), of in panels.items():
        spread = bands.spread(row for row in of if row.half == bands.TEST)
        error = f"test: {spread.rows}, half within {spread.median:.0%}" if spread else "no test row"
        figure, axes = plt.subplots(figsize=(3.0, 2.9), layout="constrained")
        predicted(of, f"{chip}: {regime}\n{error}", axes)
        axes.title.set_fontsize(plt.rcParams["axes.labelsize"])  # the panel is narrow
        axes.get_legend().remove()
        figures.append(figure)
    return figures
