"""What a chip reaches of what is published of it: constants chosen by measurements.

`read`, `write`, `product`, `mosaic` and `large` are what `python -m validation rates` fits to the
half of the published rows that a hash of the problem sends there (validation.comparisons); the
other half, which the book's page on the estimates shows, tests them. `mosaic` of a v6e is that of a
v5e: its one row waits for HBM. REACHED is of rows of the fit alone, and set by hand. Set by hand,
while both halves were in view: `latency`, by a row of the fit; `start_seconds`, OVERLAP and WAITS;
and LAUNCH_SECONDS. A v7x's are of the first 27 rows of its fit: they do not tell reading from
writing, which have one share for both, and `large` was not asked of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """What one chip reaches.

    What XLA's own fusions read and write in VMEM costs nothing beside their schedule: they load and
    store it where it lies.

    Args:
        read, write: of the published bandwidth of HBM, while only reading, and while only writing.
        product: what a matmul of XLA's takes, against its own estimate.
        mosaic: of the peak, what XLA's own Mosaic kernels reach.
        start_seconds: of an operation that waits for HBM, until its first window is under way and
            after its last one left.
        latency: of the cycles that the static profile takes a DMA to wait before its first byte,
            what a short step of a pipeline shows.
        large: the power of its bytes, in units of LARGE, by which a larger array takes longer; that
            it does is measured, and why is not known.
    """

    read: float
    write: float
    product: float
    mosaic: float
    start_seconds: float = 1e-6
    latency: float = 1.0
    large: float = 0.0


RATES = {
    "v5e": Rates(read=0.926, write=0.716, product=0.932, mosaic=0.524, latency=0.63),
    "v6e": Rates(read=0.947, write=0.801, product=1.057, mosaic=0.524, large=0.219),
    "v5p": Rates(read=0.926, write=0.888, product=0.919, mosaic=0.563),
    "v7x": Rates(read=0.773, write=0.773, product=0.964, mosaic=0.642),
}
LARGE = 4 << 30
# How sharply the longer of moving and computing hides the shorter: the two take the p-norm of both.
OVERLAP = 4.0
# Of the peak, what a kernel's products reach where nobody profiled it and its schedule alone would
# beat the peak: the middle of eleven grouped matmuls of the fit, of a v5e and a v5p.
REACHED = 0.90
# A matmul whose own estimate is so much longer than its schedule is one that XLA believes to wait
# for HBM, at a rate far below the real one: bytes and schedule tell better.
WAITS = 1.6


def together(*parts: float) -> float:
    """Cycles of what runs side by side: somewhat more than the longest part."""
    longest = max(parts, default=0.0)
    if not longest:
        return 0.0
    return longest * sum((p / longest) ** OVERLAP for p in parts) ** (1 / OVERLAP)


# What a wall clock holds beside the chip's work: a Python call, its dispatch, and the wait for the
# result, on the v5e's host. One figure for all rows, which the two that take 0.02 ms on the chip
# show; so they test the model less than the others.
LAUNCH_SECONDS = {"v5e": 0.107e-3}
