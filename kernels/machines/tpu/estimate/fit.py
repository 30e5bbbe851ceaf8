"""Fit what a chip reaches (rates.py) to times that were measured on it.

A search lowers the loss over the rows: squares of log(estimated / measured) near nothing, plain
sizes farther out, and no more than LARGEST. A constant that no row shows, or that would end at its
limit, stays as it is.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernels.machines.tpu.estimate.cost import Cost
from kernels.machines.tpu.estimate.rates import LIMITS, RATES, Rates

ALIKE = ("v7x",)  # chips whose rows do not tell reading from writing: one share for both
NEAR = 0.1  # of a logarithm: below, an error counts by its square
LARGEST = 0.5  # of a logarithm: beyond, a row pulls no more
SHOWN = 1e-4  # of the loss, by which a constant has to change it to be fitted


@dataclass(frozen=True)
class TimedCost:
    """What a program compiled to, and the milliseconds that were measured, launch included."""

    cost: Cost
    milliseconds: float
    launch_seconds: float = 0.0

    @property
    def same(self) -> bool:
        """Whether this program may have run: at the chip's peak its bytes take no longer."""
        moved = sum(op.hbm_bytes for op in self.cost.operations())
        return moved / self.cost.chip.hbm_bytes_per_second * 1e3 <= self.milliseconds

    def error(self, rates: Rates) -> float:
        """log(estimated / measured)."""
        self.cost.rates = rates
        seconds = sum(op.cycles for op in self.cost.operations()) / self.cost.chip.clock_hz
        return math.log((seconds + self.launch_seconds) * 1e3 / self.milliseconds)


def loss(rows: Sequence[TimedCost], rates: Rates) -> float:
    """What the search lowers: the mean over the rows."""
    errors = np.minimum(np.abs([row.error(rates) for row in rows]), LARGEST)
    return float(np.mean(np.sqrt(1 + (errors / NEAR) ** 2) - 1))


def fit(chip: str, rows: Sequence[TimedCost]) -> Rates:
    """The constants of a chip that make the loss least over the rows that are `same`."""
    start, rows = RATES[chip], [row for row in rows if row.same]
    before = loss(rows, start)
    less: Any = lambda name: replace(start, **{name: 0.9 * getattr(start, name)})
    asked = [name for name in LIMITS if not (name == "write" and chip in ALIKE)]
    names = [name for name in asked if abs(loss(rows, less(name)) - before) > SHOWN]
    while names:
        fitted = _least(rows, start, names, chip in ALIKE)
        # What ends at a limit binds nothing, or makes up for something else.
        inside = [name for name in names if getattr(fitted, name) not in LIMITS[name]]
        if inside == names:
            return fitted
        names = inside
    return start


def _least(rows: Sequence[TimedCost], start: Rates, names: Sequence[str], alike: bool) -> Rates:
    """The constants with those of these names where the loss is least; write may follow read."""
    from scipy.optimize import minimize  # JAX brought it along; slow to import

    def having(values: Iterable[float]) -> Rates:
        changed: Any = dict(zip(names, values))
        if alike and "read" in changed:
            changed["write"] = changed["read"]
        return replace(start, **changed)

    best = minimize(
        lambda values: loss(rows, having(values)),
        [getattr(start, name) for name in names],
        method="Powell",
        bounds=[LIMITS[name] for name in names],
        options={"xtol": 1e-3, "ftol": 1e-4},
    )
    return having(round(float(v), 3) for v in best.x)


def described(halves: Mapping[str, Sequence[TimedCost]], rates: Rates) -> Iterator[str]:
    """The errors of the rows of each half with such rates, in words."""
    for half, whole in halves.items():
        for what, some in (("all", whole), ("same program", [row for row in whole if row.same])):
            if some:
                errors = [math.exp(row.error(rates)) - 1 for row in some]
                middle, most = np.quantile(np.abs(errors), (0.5, 0.9))
                said = f"{len(some)} rows, median {np.median(errors):+.1%}, of |error| {middle:.1%}"
                yield f"  {half}, {what}: {said}, nine of ten below {most:.1%}"
