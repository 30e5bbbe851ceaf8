"""The Neuron chips with NeuronCore-v2, and what is published of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from kernels.checks import one_of

ENGINES = ("Tensor", "Vector", "Scalar", "GpSimd")
PARTITIONS = 128
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Chip:
    """One chip, and one of its NeuronCores: a kernel runs on one core.

    name: of the instance family. cores: on the chip; they share the main memory. clock_hz: cycles
    a second of each engine. lanes: partitions that an engine works on at once. sbuf_bytes,
    psum_bytes, psum_bank_bytes: of one partition. hbm_bytes, hbm_bytes_per_second: of the chip.
    dma_queues: of one core. dma_bytes_per_second: of all queues of a core together; the documents
    disagree, so this is the lower figure and dma_peak_bytes_per_second the higher one.
    dma_start_seconds: before the first byte. sources: where each figure is from, in words.
    """

    name: str
    cores: int
    clock_hz: Mapping[str, float]
    hbm_bytes: int
    hbm_bytes_per_second: float
    lanes: int = PARTITIONS
    sbuf_bytes: int = 192 * KIB
    psum_bytes: int = 16 * KIB
    psum_bank_bytes: int = 2 * KIB
    dma_queues: int = 16
    dma_bytes_per_second: float = 272e9
    dma_peak_bytes_per_second: float = 16 * 27 * GIB
    dma_start_seconds: float = 1.3e-6
    least_cycles: int = 64  # that any instruction takes
    dependent_cycles: int = 100  # more, for short instructions and those that wait for the last one
    short: int = 64  # elements a partition below which an instruction is short
    wide_stride_bytes: int = 16  # a larger stride halves the rate
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def source(self, name: str) -> str:
        """Where the figure `name` is from."""
        found = dict(self.sources)
        one_of("name", name, found)
        return found[name]


_GUIDE = "AWS Neuron documentation, Trainium/Inferentia2 Architecture Guide for NKI"
_ISA = "AWS Neuron documentation, nki.isa"
_DMA = "AWS Neuron documentation, Guideline to Avoid Under-Utilizing DMA Bandwidth"
_SOURCES = (
    ("cores", _GUIDE),
    ("clock_hz", _GUIDE),
    ("lanes", _GUIDE),
    ("sbuf_bytes", _GUIDE),
    ("psum_bytes", _GUIDE),
    ("psum_bank_bytes", _GUIDE),
    ("hbm_bytes", _GUIDE),
    ("hbm_bytes_per_second", _GUIDE),
    ("dma_queues", _GUIDE),
    ("dma_bytes_per_second", f"{_DMA}: Trn1, 16 engines of 17 GB/s each"),
    ("dma_peak_bytes_per_second", f"{_GUIDE}: a peak of 27 GiB/s each for 16 queues"),
    ("dma_start_seconds", f"{_DMA}: about 1300 ns from semaphore to start"),
    ("least_cycles", f"{_ISA}: max(64, N), where 64 is the least initiation interval"),
    ("dependent_cycles", f"{_GUIDE}, Vector Engine, cost model"),
    ("short", "ours: the guide says N well under 128"),
    ("wide_stride_bytes", f"{_GUIDE}, access pattern"),
)
_CLOCKS = MappingProxyType({"Tensor": 2.8e9, "Vector": 1.12e9, "Scalar": 1.4e9, "GpSimd": 1.4e9})

CHIPS = {
    name: Chip(
        name,
        cores=2,
        clock_hz=_CLOCKS,
        hbm_bytes=32 * GIB,
        hbm_bytes_per_second=820e9,
        sources=_SOURCES,
    )
    for name in ("inf2", "trn1")
}


def chip(name: str) -> Chip:
    """The chip of that name; ValueError lists the names there are."""
    one_of("chip", name, CHIPS)
    return CHIPS[name]


def here(fallback: str = "inf2") -> str:
    """The chip of this machine, by the name of its instance; `fallback` where that says nothing."""
    product = Path("/sys/class/dmi/id/product_name")
    name = product.read_text(encoding="utf-8") if product.exists() else ""
    return next((known for known in CHIPS if name.startswith(known)), fallback)
