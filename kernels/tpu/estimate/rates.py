"""What a chip reaches of what is published of it: constants chosen by measurements.

They were set by hand, by the half of the published rows that a hash of the problem sends to the
fit (see kernels.records.bands), while the errors of both halves were in view; so the other half,
which the book's page on the estimates shows, is a test but no blind one. No row shows `vmem` of a
v5e: it is about what the other chips have. tools/fit_rates.py searches for them on the fit alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """What one chip reaches.

    read, write: of the published bandwidth of HBM, while only reading, and while only writing.
    vmem: bytes a second between VMEM and VMEM, against HBM's published bandwidth: XLA's own
    fusions copy their windows there too. product: what a matmul of XLA's takes, against its own
    estimate. mosaic: of the peak, what XLA's own Mosaic kernels reach. start_seconds: of an
    operation that waits for HBM, until its first window is under way and after its last one left.
    latency: of the cycles that the static profile takes a DMA to wait before its first byte, what
    a short step of a pipeline shows. large: the power of its bytes, in units of LARGE, by which a
    larger array takes longer; that it does is measured, and why is not known.
    """

    read: float
    write: float
    vmem: float
    product: float
    mosaic: float
    start_seconds: float
    latency: float
    large: float


RATES = {
    "v5e": Rates(
        read=0.92,
        write=0.71,
        vmem=1.0,
        product=0.96,
        mosaic=0.55,
        start_seconds=1e-6,
        latency=0.63,
        large=0.0,
    ),
    "v6e": Rates(
        read=0.90,
        write=0.90,
        vmem=1.1,
        product=1.07,
        mosaic=0.55,
        start_seconds=1e-6,
        latency=1.0,
        large=0.2,
    ),
    "v5p": Rates(
        read=0.88,
        write=0.88,
        vmem=0.9,
        product=1.0,
        mosaic=0.55,
        start_seconds=1e-6,
        latency=1.0,
        large=0.0,
    ),
}
LARGE = 4 << 30
# How sharply the longer of moving and computing hides the shorter: the two take the p-norm of both.
OVERLAP = 4.0
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
