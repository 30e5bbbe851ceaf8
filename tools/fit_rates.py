"""Fit the constants of kernels/machines/tpu/estimate/rates.py to published times of XLA programs.

    python tools/fit_rates.py FOLDER [CHIP …]

Compiles the published rows once and keeps the answers in FOLDER. Then a search lowers the loss over
the rows of the half "fit" alone: squares of log(estimated / measured) near nothing, plain sizes
farther out, and no more than LARGEST. A row whose program would move its bytes at the chip's peak
in more time than was measured is left out, as another program ran there. A constant that no row
shows, or that would end at its limit, stays as it is. Prints the constants, and the errors of both
halves.

SEARCHED has the constants and their limits: no memory and no kernel is faster than its peak.
`latency` and `start_seconds` are no part of it: the row of 8192³ in blocks of 128³, of that half,
shows the one, and no row the other.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from kernels.figures import bands, validation
from kernels.figures.programs import program
from kernels.machines.tpu import CHIPS
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate.cost import Cost
from kernels.machines.tpu.estimate.rates import LAUNCH_SECONDS, RATES, Rates
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import TpuProgram, compile_program

SEARCHED = {
    "read": (0.5, 1.0),
    "write": (0.5, 1.0),
    "product": (0.6, 1.4),
    "mosaic": (0.3, 1.0),
    "large": (0.0, 0.5),
}
NEAR = 0.1  # of a logarithm: below, an error counts by its square
LARGEST = 0.5  # of a logarithm: beyond, a row pulls no more
SHOWN = 1e-4  # of the loss, by which a constant has to change it to be fitted


@dataclass
class Row:
    """A published row of an XLA program, and what it compiled to."""

    record: Any
    cost: Cost

    @property
    def milliseconds(self) -> float:
        """As measured."""
        return self.record.value * validation.SCALE[self.record.unit]

    @property
    def same(self) -> bool:
        """Whether the program that was measured may be the one that was compiled here."""
        moved = sum(op.hbm_bytes for op in self.cost.operations())
        return moved / self.cost.chip.hbm_bytes_per_second * 1e3 <= self.milliseconds

    def error(self, rates: Rates) -> float:
        """log(estimated / measured)."""
        self.cost.rates = rates
        chip = self.cost.chip
        launch = LAUNCH_SECONDS.get(chip.name, 0.0) if self.record.clock == "wall" else 0.0
        cycles = sum(op.cycles for op in self.cost.operations())
        return math.log((cycles / chip.clock_hz + launch) * 1e3 / self.milliseconds)


def rows(folder: Path, chip: str) -> Iterator[Row]:
    """The published rows of XLA programs on a chip that compile here."""
    for record in validation.published(chips=(chip,)):
        if not record.implementation.startswith("xla"):
            continue
        file = folder / hashlib.sha256(repr(record.key).encode()).hexdigest()[:20]
        if not file.exists():
            print(f"compiling {record.operator} {record.text} for {chip}", file=sys.stderr)
            try:
                ran = program(record)
                exported = export(ran.function, *ran.arguments, chip=chip)
                compiled = compile_program(exported, purposes=("schedule",))
                lists = [tuple(each.tolist()) for each in ran.values.values() if each.ndim == 1]
                found: Any = compiled, lists
            except (TpuCompileError, ValueError) as error:
                found = str(error)
            file.write_bytes(pickle.dumps(found))
        found = pickle.loads(file.read_bytes())
        if not isinstance(found, str) and isinstance(found[0], TpuProgram):
            yield Row(record, Cost(found[0], {}, {}, found[1]))


def loss(found: Sequence[Row], rates: Rates) -> float:
    """What the search lowers: the mean over the rows."""
    errors = np.minimum(np.abs([row.error(rates) for row in found]), LARGEST)
    return float(np.mean(np.sqrt(1 + (errors / NEAR) ** 2) - 1))


def fit(chip: str, found: Sequence[Row]) -> Rates:
    """The constants of a chip that make the loss least."""
    start = RATES[chip]
    before = loss(found, start)
    names = [
        name
        for name in SEARCHED
        if getattr(start, name)
        and abs(loss(found, replace(start, **{name: getattr(start, name) * 0.9})) - before) > SHOWN
    ]
    while names:
        fitted = _least(found, start, names)
        # What ends at a limit binds nothing, or makes up for something else.
        inside = [name for name in names if getattr(fitted, name) not in SEARCHED[name]]
        if inside == names:
            return fitted
        names = inside
    return start


def _least(found: Sequence[Row], start: Rates, names: Sequence[str]) -> Rates:
    """The constants with those of these names where the loss is least."""
    best = minimize(
        lambda values: loss(found, replace(start, **dict(zip(names, values)))),
        [getattr(start, name) for name in names],
        method="Powell",
        bounds=[SEARCHED[name] for name in names],
        options={"xtol": 1e-3, "ftol": 1e-4},
    )
    return replace(start, **{name: round(float(v), 3) for name, v in zip(names, best.x)})


def main(folder: str, *chips: str) -> None:
    """Fit, and print."""
    kept = Path(folder)
    kept.mkdir(parents=True, exist_ok=True)
    for chip in chips or CHIPS:
        found = list(rows(kept, chip))
        half = {name: [r for r in found if bands.half(r.record) == name] for name in bands.HALVES}
        fitted = fit(chip, [row for row in half[bands.FIT] if row.same])
        print(chip, fitted)
        for name, each in half.items():
            for what, some in (("all", each), ("same program", [r for r in each if r.same])):
                errors = sorted(math.exp(row.error(fitted)) - 1 for row in some)
                sizes = sorted(abs(e) for e in errors)
                if errors:
                    print(
                        f"  {name}, {what}: {len(errors)} rows, median "
                        f"{bands.quantile(errors, 0.5):+.1%}, of |error| "
                        f"{bands.quantile(sizes, 0.5):.1%}, nine of ten below "
                        f"{bands.quantile(sizes, 0.9):.1%}",
                        flush=True,
                    )


if __name__ == "__main__":
    main(*sys.argv[1:])
