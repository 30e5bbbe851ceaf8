"""Fit the constants of kernels/tpu/estimate/rates.py to published times of XLA programs.

    python tools/fit_rates.py FOLDER [CHIP …]

Compiles the published rows once and keeps the answers in FOLDER; then a search over one constant
after another lowers the sum of |log(estimated / measured)| over the rows of the half "fit". Prints
the constants, and the errors of both halves. `latency` is no part of it: the row of 8192³ in blocks
of 128³, of that half, shows it.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kernels.records import bands, validation
from kernels.records.programs import program
from kernels.tpu import CHIPS
from kernels.tpu.diagnose import TpuCompileError
from kernels.tpu.estimate.cost import Cost
from kernels.tpu.estimate.rates import LAUNCH_SECONDS, RATES, Rates
from kernels.tpu.export import export
from kernels.tpu.pool import Compiled, compile_program

FITTED = [field.name for field in fields(Rates) if field.name != "latency"]
STEPS = (0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25)
LARGEST = 0.5  # of a logarithm: a row that compiled to another program does not pull


def rows(folder: Path, chip: str) -> Iterator[tuple[Any, Compiled]]:
    """The published rows of XLA programs on a chip, each with what it compiles to."""
    for row in validation.published(chips=(chip,)):
        if not row.implementation.startswith("xla"):
            continue
        file = folder / hashlib.sha256(repr(row.key).encode()).hexdigest()[:20]
        if not file.exists():
            print(f"compiling {row.operator} {row.text} for {chip}", file=sys.stderr)
            try:
                ran = program(row)
                exported = export(ran.function, *ran.arguments, chip=chip)
                found: Any = compile_program(exported, purposes=("schedule",))
            except (TpuCompileError, ValueError) as error:
                found = str(error)
            file.write_bytes(pickle.dumps(found))
        found = pickle.loads(file.read_bytes())
        if isinstance(found, Compiled):
            yield row, found


def error(row: Any, compiled: Compiled) -> float:
    """log(estimated / measured) of a row."""
    launch = LAUNCH_SECONDS.get(row.chip, 0.0) if row.clock == "wall" else 0.0
    cycles = sum(op.cycles for op in Cost(compiled, {}, {}).operations())
    seconds = cycles / CHIPS[row.chip].clock_hz + launch
    return math.log(seconds * 1e3 / (row.value * validation.SCALE[row.unit]))


def loss(found: list[tuple[Any, Compiled]]) -> float:
    """What the search lowers."""
    return sum(min(abs(error(*each)), LARGEST) for each in found)


def fit(chip: str, found: list[tuple[Any, Compiled]]) -> Rates:
    """The constants of a chip, one after another, until none gets better."""
    best = loss(found)
    improved = True
    while improved:
        improved = False
        for name in FITTED:
            start = RATES[chip]
            for step in STEPS:
                RATES[chip] = candidate = replace(start, **{name: getattr(start, name) * step})
                if (now := loss(found)) < best - 1e-3:
                    best, improved, kept = now, True, candidate
                    break
                RATES[chip] = kept = start
            RATES[chip] = kept
    return RATES[chip]


def main(folder: str, *chips: str) -> None:
    """Fit, and print."""
    kept = Path(folder)
    kept.mkdir(parents=True, exist_ok=True)
    for chip in chips or CHIPS:
        found = list(rows(kept, chip))
        halves = {half: [e for e in found if bands.half(e[0]) == half] for half in bands.HALVES}
        print(chip, fit(chip, halves[bands.FIT]))
        for half, each in halves.items():
            errors = sorted(math.exp(error(*e)) - 1 for e in each)
            sizes = sorted(abs(e) for e in errors)
            if errors:
                print(
                    f"  {half}: {len(errors)} rows, median {bands.quantile(errors, 0.5):+.1%},"
                    f" of |error| {bands.quantile(sizes, 0.5):.1%}, nine of ten below "
                    f"{bands.quantile(sizes, 0.9):.1%}"
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
