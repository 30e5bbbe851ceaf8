"""Estimates of kernels that others timed on a NeuronCore, beside those times, in results/.

    python -m validation trn1

estimates all of validation.trn1_kernels anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels import __version__
from kernels.figures.schema import Key, Named, Record
from kernels.figures.store import read, write
from validation.trn1_kernels import KERNELS, NKIBENCH, TimedKernel

__all__ = ["error", "errors", "estimated"]
PUBLISHED, ESTIMATED = "neuron_published.csv", "neuron_calibration.csv"


def key(kernel: TimedKernel) -> Key:
    """What its records are of."""
    return Key(
        operator=kernel.operator,
        implementation=kernel.version or "NKIBench",
        sizes=Named({name.lower(): size for name, size in kernel.sizes.items()}),
        dtype=str(kernel.dtype),
        chip="trn1",
    )


def published(kernel: TimedKernel) -> Record:
    """Its time, as its source has it."""
    old = kernel.source != NKIBENCH
    return key(kernel).record(
        kind="published",
        value=kernel.published_ms,
        method=f"device clock; of the half to {kernel.part}",
        versions="Neuron SDK 2.20 to 2.26" if old else "not stated",
        date="2024" if old else "2025",
        source=kernel.source,
    )


def estimated(kernel: TimedKernel) -> Record:
    """What the model said when it was last run over all kernels.

    Raises:
        ValueError: where results/ has no such record.
    """
    for record in read(ESTIMATED):
        if record.key == key(kernel):
            return record
    raise ValueError(
        f"results/{ESTIMATED} has no estimate of {kernel.text}; run python -m validation trn1"
    )


def error(kernel: TimedKernel) -> float:
    """Of that estimate, relative; positive where it is too slow."""
    return estimated(kernel).value / kernel.published_ms - 1


def errors(part: str) -> list[float]:
    """Those of one half, "fit" or "test"."""
    return [error(kernel) for kernel in KERNELS if kernel.part == part]


def record() -> Iterator[tuple[TimedKernel, Record]]:
    """Estimate all kernels, each with its record, and at the end keep that beside the times."""
    records = []
    for kernel in KERNELS:
        estimate = kernel.estimate()
        records.append(key(kernel).estimated(estimate, software=f"kernels {__version__}"))
        yield kernel, records[-1]
    write(PUBLISHED, map(published, KERNELS))
    write(ESTIMATED, records)
