"""What a chip reaches of what is published of it: constants chosen by measurements.

`read`, `write`, `product`, `mosaic` and `large` are what `python -m validation rates` fits to the
half of the published rows that a hash of the problem sends there (Problem.half); the other half,
which the book's page on the estimates shows, tests them. `mosaic` of a v6e is that of a v5e: its
one row waits for HBM. `reached` is of rows of the fit alone, the middle of them. `start_seconds` is
where the loss over the 19 shortest rows of a v5p's fit is least; the rows of the other chips do not
tell it from nothing, and take it over. Set by hand, while both halves were in view: `latency`, by a
row of the fit; OVERLAP and WAITS; and LAUNCH_SECONDS. A v7x's are of the first 27 rows of its fit:
they do not tell reading from writing, which have one share for both, and `large` was not asked of
them. All programs that they were fitted to are of libtpu 0.0.42.1.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kernels.machines.checks import fail, one_of

# What is fitted, and within which limits: no memory and no kernel is faster than its peak.
LIMITS = {"read": (0.5, 1.0), "write": (0.5, 1.0), "product": (0.6, 1.4), "mosaic": (0.3, 1.0)}
LIMITS["large"] = (0.0, 0.5)


@dataclass(frozen=True)
class Rates:
    """What one chip reaches.

    What XLA's own fusions read and write in VMEM costs nothing beside their schedule: they load and
    store it where it lies.
    """

    read: float  # of the published bandwidth of HBM, while only reading
    write: float  # and while only writing
    product: float  # what a matmul of XLA's takes, against its own estimate
    mosaic: float  # of the peak, what XLA's own Mosaic kernels reach
    # Of an operation on HBM, a kernel or XLA's, beside what moves and what works.
    start_seconds: float = 1e-6
    # Of the cycles that the static profile takes a DMA to wait before its first byte, what a short
    # step of a pipeline shows.
    latency: float = 1.0
    # The power of its bytes, in units of LARGE, by which a larger array takes longer; that it does
    # is measured, and why is not known.
    large: float = 0.0
    # Of the peak, what a kernel's products reach where nobody profiled it and its schedule alone
    # would beat the peak: the middle of eleven grouped matmuls of the fit, of a v5e and a v5p; for
    # a v7x, of twenty of its own.
    reached: float = 0.90
    source: str = ""  # whose they are, where they are not the book's


RATES = {
    "v5e": Rates(read=0.926, write=0.716, product=0.932, mosaic=0.524, latency=0.63),
    "v6e": Rates(read=0.947, write=0.801, product=1.057, mosaic=0.524, large=0.219),
    "v5p": Rates(read=0.926, write=0.888, product=0.919, mosaic=0.563),
    "v7x": Rates(read=0.773, write=0.773, product=0.964, mosaic=0.642, reached=0.66),
}


@dataclass(frozen=True)
class Link:
    """What the link to one neighbour carries in one direction."""

    bytes_per_second: float  # of long copies
    hop_seconds: float | None  # until the first byte is there; None where nobody published it
    source: str  # where both are from


_PPERMUTE = "a fit to XLA's ppermute, whose start is in the hop (marin-community/marin issue 6736)"
LINKS = {
    "v5e": Link(0.95 * 45e9, None, "95 % of 45 GB/s, as XLA's all-gather (scaling-book PR 82)"),
    "v6e": Link(86.8e9, 2.29e-6, _PPERMUTE),
    "v5p": Link(86.3e9, 4.55e-6, _PPERMUTE),
}
LARGE = 4 << 30
# How sharply the longer of moving and computing hides the shorter: the two take the p-norm of both.
OVERLAP = 4.0
# A matmul whose own estimate is so much longer than its schedule is one that XLA believes to wait
# for HBM, at a rate far below the real one: bytes and schedule tell better.
WAITS = 1.6


_own: ContextVar[Mapping[str, Rates]] = ContextVar("own rates", default=MappingProxyType({}))


def rates_of(chip: str) -> Rates:
    """The rates of a chip that are in use."""
    return _own.get().get(chip) or RATES[chip]


@contextlib.contextmanager
def use(file: str | Path | None, libtpu: str, chips: Iterable[str]) -> Iterator[None]:
    """Estimate with a reader's own rates in this block, of a file that `python -m kernels validate
    --fit` wrote; None changes nothing. ValueError for another file, rates that cannot be, and those
    of another chip or compiler than `chips` and the installed `libtpu`."""
    own = {}
    if file is not None:
        try:
            held = json.loads(Path(file).read_text(encoding="utf-8"))
            rates = {name: float(value) for name, value in held["rates"].items()}
            source = "rates fitted to {rows} rows of {date}".format(**held)
            own, compiler = {held["chip"]: Rates(**rates, source=source)}, held["libtpu"]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            fail("the rates file", file, f"what `kernels validate --fit` wrote ({error!r})")
        for name, rate in rates.items():
            low, high = LIMITS.get(name, (0.0, 1.0))
            if not low <= rate <= high:
                fail(f"{name} in {file}", rate, f"from {low:g} to {high:g}")
        one_of(f"libtpu, which {file} was not fitted with,", libtpu, [compiler])
        for chip in chips:
            one_of(f"the chip, with the rates of {file},", chip, own)
    token = _own.set(own)
    try:
        yield
    finally:
        _own.reset(token)


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
