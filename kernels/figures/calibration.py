"""Estimates of kernels that others timed on a NeuronCore, beside what they took, in results/.

    python -m kernels.figures.calibration

runs all of kernels.neuron.calibration and keeps what comes out.
"""

from __future__ import annotations

import statistics

from kernels import __version__
from kernels.figures.schema import Key, Named, Record
from kernels.figures.store import read, write
from kernels.machines.neuron.calibration import HALVES, NKIBENCH, PROGRAMS, Program

PUBLISHED, ESTIMATED = "neuron_published.csv", "neuron_calibration.csv"


def key(program: Program) -> Key:
    """What its records are of."""
    return Key(
        operator=program.operator,
        implementation=program.version or "NKIBench",
        sizes=Named({name.lower(): size for name, size in program.sizes.items()}),
        dtype=str(program.dtype),
        chip="trn1",
    )


def published(program: Program) -> Record:
    """What it took, as its source has it."""
    old = program.source != NKIBENCH
    return key(program).record(
        kind="published",
        value=program.published_ms,
        method=f"device clock; of the half to {program.part}",
        versions="Neuron SDK 2.20 to 2.26" if old else "not stated",
        date="2024" if old else "2025",
        source=program.source,
    )


def estimated(program: Program) -> Record:
    """What the model said when it was last run over all programs.

    Raises:
        ValueError: where results/ has no such record.
    """
    wanted = key(program)
    for record in read(ESTIMATED):
        if all(getattr(record, name) == getattr(wanted, name) for name in FIELDS):
            return record
    raise ValueError(f"results/{ESTIMATED} has no estimate of {program.text}; run this module")


FIELDS = "operator", "implementation", "sizes", "dtype", "chip"


def error(program: Program) -> float:
    """Of that estimate, relative; positive where it is too slow."""
    return estimated(program).value / program.published_ms - 1


def errors(part: str) -> list[float]:
    """Those of one half, "fit" or "test"."""
    return [error(program) for program in PROGRAMS if program.part == part]


def record() -> None:
    """Estimate all programs, and keep that beside what was published."""
    found = []
    for program in PROGRAMS:
        new = key(program).estimated(program.estimate(), of=f"kernels {__version__}")
        found.append(new)
        off = new.value / program.published_ms - 1
        told = f"{program.published_ms:.3f} ms published, {new.value:.3f} estimated, {off:+.0%}"
        print(f"{program.text}: {told}, {program.part}")
    write(PUBLISHED, [published(program) for program in PROGRAMS])
    write(ESTIMATED, found)
    for part in HALVES:
        distances = [abs(each) for each in errors(part)]
        print(f"{part}: median {statistics.median(distances):.0%}, largest {max(distances):.0%}")


if __name__ == "__main__":
    record()
