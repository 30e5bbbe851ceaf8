"""Fit the constants of kernels/machines/tpu/estimate/rates.py to published times of XLA programs.

    python -m validation rates FOLDER [CHIP …]

Compiles the published rows once and keeps the answers in FOLDER. Then a search lowers the loss over
the rows of the half "fit" alone: squares of log(estimated / measured) near nothing, plain sizes
farther out, and no more than LARGEST. A row whose program would move its bytes at the chip's peak
in more time than was measured is left out, as another program ran there. A constant that no row
shows, or that would end at its limit, stays as it is. Prints the constants, and the errors of both
halves.

LIMITS has the constants and their limits: no memory and no kernel is faster than its peak.
`latency` and `start_seconds` are no part of it: the row of 8192³ in blocks of 128³, of that half,
shows the one, and no row the other.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from kernels.figures.schema import Record
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate.bands import quantile
from kernels.machines.tpu.estimate.cost import Cost
from kernels.machines.tpu.estimate.rates import LAUNCH_SECONDS, RATES, Rates
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import TpuProgram, compile_program
from validation import comparisons
from validation.tpu_programs import milliseconds, program
from validation.tpu_times import published

LIMITS = {
    "read": (0.5, 1.0),
    "write": (0.5, 1.0),
    "product": (0.6, 1.4),
    "mosaic": (0.3, 1.0),
    "large": (0.0, 0.5),
}
ALIKE = ("v7x",)  # chips whose rows do not tell reading from writing: one share for both
NEAR = 0.1  # of a logarithm: below, an error counts by its square
LARGEST = 0.5  # of a logarithm: beyond, a row pulls no more
SHOWN = 1e-4  # of the loss, by which a constant has to change it to be fitted


@dataclass
class XlaRow:
    """A published row of an XLA program, and what it compiled to."""

    record: Record
    cost: Cost

    @property
    def same(self) -> bool:
        """Whether the program that was measured may be the one that was compiled here."""
        moved = sum(op.hbm_bytes for op in self.cost.operations())
        least = moved / self.cost.chip.hbm_bytes_per_second * 1e3
        return least <= milliseconds(self.record)

    def error(self, rates: Rates) -> float:
        """log(estimated / measured)."""
        self.cost.rates = rates
        chip = self.cost.chip
        launch = LAUNCH_SECONDS.get(chip.name, 0.0) if self.record.clock == "wall" else 0.0
        cycles = sum(op.cycles for op in self.cost.operations())
        return math.log((cycles / chip.clock_hz + launch) * 1e3 / milliseconds(self.record))


def xla_rows(folder: Path, chip: str) -> Iterator[XlaRow]:
    """The published rows of XLA programs on a chip that compile here."""
    for record in published(chips=(chip,)):
        if not record.implementation.startswith("xla"):
            continue
        file = folder / hashlib.sha256(repr(record.key).encode()).hexdigest()[:20]
        if not file.exists():
            print(f"compiling {record.operator} {record.text} for {chip}", file=sys.stderr)
            try:
                ran = program(record)
                exported = export(ran.function, *ran.arguments, chip=chip)
                compiled = compile_program(exported, purposes=("schedule",))
                answer: Any = compiled, [sizes for [sizes] in exported.decisive("ragged_dot")[0]]
            except (TpuCompileError, ValueError) as error:
                answer = str(error)
            file.write_bytes(pickle.dumps(answer))
        answer = pickle.loads(file.read_bytes())
        if not isinstance(answer, str) and isinstance(answer[0], TpuProgram):
            yield XlaRow(record, Cost(answer[0], {}, {}, answer[1]))


def loss(rows: Sequence[XlaRow], rates: Rates) -> float:
    """What the search lowers: the mean over the rows."""
    errors = np.minimum(np.abs([row.error(rates) for row in rows]), LARGEST)
    return float(np.mean(np.sqrt(1 + (errors / NEAR) ** 2) - 1))


def fit(chip: str, rows: Sequence[XlaRow]) -> Rates:
    """The constants of a chip that make the loss least."""
    start = RATES[chip]
    before = loss(rows, start)
    names = [
        name
        for name in LIMITS
        if getattr(start, name)
        and not (name == "write" and chip in ALIKE)
        and abs(loss(rows, replace(start, **{name: getattr(start, name) * 0.9})) - before) > SHOWN
    ]
    while names:
        fitted = _least(rows, start, names, chip in ALIKE)
        # What ends at a limit binds nothing, or makes up for something else.
        inside = [name for name in names if getattr(fitted, name) not in LIMITS[name]]
        if inside == names:
            return fitted
        names = inside
    return start


def _least(rows: Sequence[XlaRow], start: Rates, names: Sequence[str], alike: bool) -> Rates:
    """The constants with those of these names where the loss is least; write may follow read."""

    def having(values: Iterable[float]) -> Rates:
        changed = dict(zip(names, values))
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


def report(folder: Path, chip: str) -> Iterator[str]:
    """Fit a chip's constants; they and the errors of both halves, a line at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(xla_rows(folder, chip))
    halves = {
        half: [row for row in rows if comparisons.half(row.record) == half]
        for half in comparisons.HALVES
    }
    fitted = fit(chip, [row for row in halves[comparisons.FIT] if row.same])
    yield f"{chip} {fitted}"
    for half, whole in halves.items():
        for what, some in (("all", whole), ("same program", [row for row in whole if row.same])):
            errors = sorted(math.exp(row.error(fitted)) - 1 for row in some)
            sizes = sorted(map(abs, errors))
            if errors:
                yield (
                    f"  {half}, {what}: {len(errors)} rows, median {quantile(errors, 0.5):+.1%}, "
                    f"of |error| {quantile(sizes, 0.5):.1%}, "
                    f"nine of ten below {quantile(sizes, 0.9):.1%}"
                )
