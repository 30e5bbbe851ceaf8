"""Ranges side by side: what is known of several programs that nobody has timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def ranges(
    brackets: Mapping[str, tuple[float, float]],
    *,
    title: str,
    unit: str,
    marks: Mapping[str, float] | None = None,
    axes: Any = None,
) -> Any:
    """A bar from the least to the most for each name, from the top down.

    Args:
        brackets: name → the least and the most.
        title: what is to be seen.
        unit: of the figures, for the axis.
        marks: lines across all bars, such as what others measured, by name.
        axes: Matplotlib's, to draw into; None makes a figure.

    Returns:
        The axes.
    """
    import matplotlib.pyplot as plt

    if axes is None:
        _, axes = plt.subplots(figsize=(7, 0.6 + 0.45 * len(brackets)))
    names = list(brackets)
    for row, (low, high) in enumerate(brackets.values()):
        axes.barh(row, high - low, left=low, height=0.55, color="C0", alpha=0.6)
        axes.text(high, row, f" {low:.0f} to {high:.0f}", va="center", fontsize=8)
    for style, (name, value) in zip(("--", ":", "-."), (marks or {}).items()):
        axes.axvline(value, linestyle=style, color="0.5", label=name)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(title=title, xlabel=unit)
    most = max(high for _, high in brackets.values())
    axes.set_xlim(0, 1.3 * most)  # with room for the figures at the bars' ends
    if marks:
        axes.legend(fontsize=8, loc="best")
    return axes
