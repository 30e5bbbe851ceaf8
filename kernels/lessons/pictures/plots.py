"""Plots of estimates: under the roof of their chip, and side by side.

Needs matplotlib.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernels.machines import optional
from kernels.machines.checks import fail
from kernels.machines.tpu import CHIPS, Estimate

__all__ = ["COLOURS", "INK", "MARKERS", "plain", "ranges", "roofline", "style"]
# Told apart by lightness and by marker, so that they survive greyscale; mid tones, so that they
# stand on white and on black alike.
COLOURS = ("#3b7dd8", "#d9822b", "#2a9d6f", "#b04fb5", "#8a8a8a")
MARKERS = ("o", "s", "^", "D", "v")
INK = "#757575"  # axes, text and limits; the book's style sheet lights plots up in the dark


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


def _whiskers(estimate: Estimate, rate: float, roof: float) -> list[list[float]]:
    """How far a rate may lie below and above, by the band of its estimate, and not above the roof;
    0 where it has none, or where the band lies on the other side."""
    least, most = estimate.band.around(1.0) if estimate.band else (1.0, 1.0)
    return [[max(rate - rate / most, 0.0)], [max(min(rate / least, roof) - rate, 0.0)]]


def plain(axis: Any) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times powers of ten, with numbers written out."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def roofline(
    estimates: Mapping[str, Estimate] | Sequence[Estimate], title: str | None = None
) -> Any:
    """Draw estimates under the roof of their chip.

    Args:
        estimates: label → Estimate, all for one chip and with matrix products.
        title: by default it states how near the best one comes.

    Returns:
        A matplotlib Axes.

    Raises:
        ValueError: for estimates of several chips or without products.
    """
    if not isinstance(estimates, Mapping):
        estimates = {e.name: e for e in estimates}
    chips = {e.chip for e in estimates.values()}
    if len(chips) != 1 or any(not e.flops for e in estimates.values()):
        accepted = "estimates for one chip, each with matrix products"
        fail("estimates", f"of {', '.join(sorted(chips)) or 'nothing'}", accepted)
    chip = CHIPS[chips.pop()]
    style()
    import matplotlib.pyplot as plt

    axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    ridge = chip.bf16_flops / chip.hbm_bytes_per_second
    at = {name: e.flops / max(e.hbm_bytes, 1) for name, e in estimates.items()}
    low = min([ridge / 8, *at.values()]) / 2
    high = max([ridge * 8, *at.values()]) * 2
    x = np.geomspace(low, high, 200)
    roof = np.minimum(chip.bf16_flops, x * chip.hbm_bytes_per_second) / 1e12
    axes.plot(x, roof, color=INK, lw=2)
    for words, place in (
        (f"{chip.bf16_flops / 1e12:.0f} TFLOP/s, bf16", (high, roof[-1])),
        (f"{chip.hbm_bytes_per_second / 1e9:.0f} GB/s", (x[20], roof[20])),
    ):
        axes.annotate(words, place, ha="right", va="bottom", color=INK)
    for i, (name, e) in enumerate(estimates.items()):
        rate = e.flops / e.seconds / 1e12
        whiskers = _whiskers(e, rate, np.interp(at[name], x, roof))
        look: dict[str, Any] = {"ls": "none", "ms": 8, "capsize": 3}
        look |= {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.errorbar(at[name], rate, yerr=whiskers, label=name, **look)
    axes.set(xscale="log", yscale="log", xlabel="operations for each byte of HBM (FLOP/byte)")
    axes.set_ylabel("rate, estimated (TFLOP/s)")
    axes.set_ylim(top=roof[-1] * 4)
    plain(axes.xaxis)
    plain(axes.yaxis)
    best = max(estimates, key=lambda n: estimates[n].utilisation)
    share = estimates[best].utilisation
    axes.set_title(title or f"{best} reaches {share:.0%} of {chip.name}'s peak (estimated)")
    axes.legend(loc="lower right")
    return axes


def ranges(
    brackets: Mapping[str, tuple[float, float]],
    *,
    title: str,
    unit: str,
    marks: Mapping[str, float] | None = None,
) -> Any:
    """A bar from the least to the most for each name, from the top down.

    Args:
        brackets: name → the least and the most.
        title: what is to be seen.
        unit: of the figures, for the axis.
        marks: lines across all bars, such as what others measured, by name.

    Returns:
        A matplotlib Axes.
    """
    import matplotlib.pyplot as plt

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
