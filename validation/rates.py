"""Fit the constants of kernels/machines/tpu/estimate/rates.py to published times of XLA programs.

    python -m validation rates FOLDER [CHIP …]

Compiles the published rows once and keeps the answers in FOLDER; then kernels/machines/tpu/estimate
/fit.py searches over the rows of the half "fit" alone. Prints the constants, and the errors of both
halves. `latency` and `start_seconds` are no part of it: the row of 8192³ in blocks of 128³, of that
half, shows the one, and the shortest programs of a v5p the other.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels.figures.schema import Record
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate import fit
from kernels.machines.tpu.estimate.cost import Cost
from kernels.machines.tpu.estimate.rates import LAUNCH_SECONDS
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import TpuProgram, compile_program
from validation.comparisons import HALVES
from validation.tpu_programs import milliseconds, program
from validation.tpu_times import published


def xla_rows(folder: Path, chip: str) -> Iterator[tuple[Record, fit.TimedCost]]:
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
            launch = LAUNCH_SECONDS.get(chip, 0.0) if record.clock == "wall" else 0.0
            cost = Cost(answer[0], {}, {}, answer[1])
            yield record, fit.TimedCost(cost, milliseconds(record), launch)


def report(folder: Path, chip: str) -> Iterator[str]:
    """Fit a chip's constants; they and the errors of both halves, a line at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(xla_rows(folder, chip))
    halves = {half: [timed for record, timed in rows if record.half == half] for half in HALVES}
    fitted = fit.fit(chip, halves["fit"])
    yield f"{chip} {fitted}"
    yield from fit.described(halves, fitted)
