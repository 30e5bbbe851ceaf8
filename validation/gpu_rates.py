"""Fit FACTORS and BANDS of kernels/machines/gpu/estimate.py to published times of an H100.

    python -m validation gpu-rates

A figure is a sum: of each part of a program its seconds at the published rate, times a factor that
says how much longer it takes. A search finds the factors that lower the loss over the rows of the
half "fit": squares of log(estimated / measured) near nothing, and plain sizes farther out.

A band is made of the same half: a tenth of its problems at a time is left out of a fit and then
estimated with it. Of these errors the middle 80 % are a kind's band. The other half has no part in
any of it: the table says how many of its errors lie in the band.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from kernels.machines.gpu.estimate import BANDS, COUNTED, FACTORS, NOTHING
from kernels.machines.tpu.estimate.bands import FEWEST, SHARE
from validation.comparisons import FIT, TEST, quantile
from validation.gpu_times import Bracketed

LIMITS = (0.01, 6.0)  # of a factor
LAUNCH = (0.1e-6, 20e-6)  # seconds
NEAR = 0.1  # of a logarithm: below, an error counts by its square, and farther out by its size
STARTS = (0.5, 0.75)  # of the way between the limits, of each search
FOLDS = 10
CHIP = "h100"


def factors(rows: Sequence[Bracketed]) -> dict[str, float]:
    """The factor of each term that makes the loss over rows least.

    Args:
        rows: with terms; of any half.
    """
    known = [row.terms.typed() for row in rows]
    names = sorted(set().union(*known))
    part = np.array(
        [
            [terms.get(name, 0) * 1e3 / row.published_ms for name in names]
            for row, terms in zip(rows, known)
        ]
    )
    limits = np.log([LAUNCH if name.endswith(COUNTED) else LIMITS for name in names]).T
    best = min(
        (
            least_squares(
                lambda logarithms: np.log(part @ np.exp(logarithms)),
                limits[0] + share * (limits[1] - limits[0]),
                bounds=limits,
                loss="soft_l1",
                f_scale=NEAR,
            )
            for share in STARTS
        ),
        key=lambda search: search.cost,
    )
    # What ends at its lower limit takes no time of its own.
    shown = {name: value for name, value in zip(names, np.exp(best.x - limits[0])) if value > 1.01}
    floor = {name: math.exp(low) for name, low in zip(names, limits[0])}
    return {name: float(f"{value * floor[name]:.3g}") for name, value in shown.items()}


def timed(rows: Iterable[Bracketed], half: str) -> list[Bracketed]:
    """The rows of a half that have terms."""
    return [row for row in rows if row.terms and row.chip == CHIP and row.half == half]


def off(rows: Sequence[Bracketed], fitted: Mapping[str, float]) -> list[float]:
    """How far the figures of rows are off with these factors, relative; a part without one counts
    nothing."""
    return [
        sum(fitted.get(name, 0) * value for name, value in row.terms.typed().items())
        * 1e3
        / row.published_ms
        - 1
        for row in rows
    ]


def bands(rows: Iterable[Bracketed]) -> dict[tuple[str, str], tuple[float, float, int, float]]:
    """The band of each kind, as BANDS has them: low, high, of how many rows, and the shortest.

    Args:
        rows: of which the half "fit" counts.
    """
    fit = timed(rows, FIT)
    fold = [int(hashlib.sha256(row.problem.text.encode()).hexdigest(), 16) % FOLDS for row in fit]
    errors = defaultdict(list)
    for one in sorted(set(fold)):
        inside = [row for row, other in zip(fit, fold) if other == one]
        fitted = factors([row for row, other in zip(fit, fold) if other != one])
        for row, error in zip(inside, off(inside, fitted)):
            errors[row.kind].append(error)
    kinds = {}
    for kind, some in sorted(errors.items()):
        few = len(some) < FEWEST
        low, high = (0.0 if few else quantile(some, (1 + side * SHARE) / 2) for side in (-1, 1))
        shortest = min(row.published_ms for row in fit if row.kind == kind) / 1e3
        kinds[CHIP, kind] = (round(low, 3), round(high, 3), len(some), float(f"{shortest:.2g}"))
    return kinds


@dataclass(frozen=True)
class Missed:
    """How far the figures of some rows are off.

    Args:
        rows: how many.
        median, most: of the errors' sizes: the middle one, and what nine in ten stay below.
        bias: the middle one of the errors with their signs.
        held: the share of the rows that their kind's band holds; None where there is none.
    """

    rows: int
    median: float
    most: float
    bias: float
    held: float | None


def missed(rows: Sequence[Bracketed]) -> Missed:
    """How far figures are off, with the factors and bands in use.

    Args:
        rows: one or more, with terms.
    """
    errors = off(rows, FACTORS[CHIP])
    sizes = sorted(map(abs, errors))
    kept = [
        low <= error <= high
        for row, error in zip(rows, errors)
        for low, high, count, _ in (BANDS.get((CHIP, row.kind), NOTHING),)
        if count >= FEWEST
    ]
    held = sum(kept) / len(kept) if kept else None
    return Missed(
        len(rows), quantile(sizes, 0.5), quantile(sizes, 0.9), statistics.median(errors), held
    )


TITLES = ("kind", "half", "rows", "middle", "9 in 10", "bias", "in the band")


def lines(rows: Iterable[Bracketed]) -> Iterator[tuple[str, ...]]:
    """The errors of each kind and half, and of all together: cells for each of TITLES.

    Args:
        rows: as gpu_times.read gives them.
    """
    rows = list(rows)
    counts = Counter(row.kind for half in (FIT, TEST) for row in timed(rows, half))
    for kind in (*sorted(counts), ""):
        for half in (FIT, TEST):
            some = [row for row in timed(rows, half) if kind in ("", row.kind)]
            if some:
                spread = missed(some)
                held = "–" if spread.held is None else f"{spread.held:.0%}"
                bias = f"{round(100 * spread.bias) or 0:+d}%".replace("-", "−").replace("+0", "0")
                shares = f"{spread.median:.0%}", f"{spread.most:.0%}", bias, held
                yield (kind or "all", half, str(spread.rows), *shares)


def summary(rows: Iterable[Bracketed]) -> str:
    """How good the figures are, in words.

    Args:
        rows: as gpu_times.read gives them.
    """
    spread = missed(timed(rows, TEST))
    return (
        "Beside the bracket of a program of XLA's, of kernels for Triton or of Mosaic GPU on an "
        f"H100 stands one figure. On the {spread.rows} rows of the test half it is off by "
        f"{spread.median:.0%} in the middle, nine in ten are off by less than {spread.most:.0%}, "
        f"and the middle error is {spread.bias:+.0%}. The bands, made of the other half, hold "
        f"{spread.held or 0:.0%} of them.".replace("-", "−")
    )
