"""The Neuron chips, and what is published of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from kernels.machines.checks import one_of

ENGINES = ("Tensor", "Vector", "Scalar", "GpSimd")
PARTITIONS = 128
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class NeuronChip:
    """One chip, and one of its NeuronCores: a kernel runs on one core.

    Args:
        name: of the instance family.
        generation: of its NeuronCores, 2 to 4.
        cores: on the chip; they share the main memory.
        clock_hz: cycles a second of each engine.
        lanes: partitions that an engine works on at once.
        sbuf_bytes, psum_bytes, psum_bank_bytes: of one partition.
        hbm_bytes, hbm_bytes_per_second: of the chip.
        moving_fmax: columns of nc_matmul's moving tile.
        dma_queues: of one core.
        dma_bytes_per_second: of all queues of a core together; the documents disagree about
            v2, so this is the lower figure.
        dma_peak_bytes_per_second: the higher one.
        dma_start_seconds: before the first byte.
        shared_ports: whether Vector and GpSimd take turns at SBUF, and Vector and Scalar at
            PSUM.
        fast_vector: whether the Vector engine has a performance mode for what has 16 bits.
        least_cycles: that any instruction takes.
        dependent_cycles: more, for short instructions and those that wait for the last one.
        short: elements a partition below which an instruction is short.
        wide_stride_bytes: a larger stride halves the rate.
        reciprocal_cycles: of the Vector engine, for an element.
        sources: where each figure is from, in words.
    """

    name: str
    generation: int
    cores: int
    clock_hz: Mapping[str, float]
    hbm_bytes: int
    hbm_bytes_per_second: float
    sbuf_bytes: int
    dma_bytes_per_second: float
    dma_peak_bytes_per_second: float
    moving_fmax: int
    shared_ports: bool
    fast_vector: bool
    lanes: int = PARTITIONS
    psum_bytes: int = 16 * KIB
    psum_bank_bytes: int = 2 * KIB
    dma_queues: int = 16
    dma_start_seconds: float = 1.3e-6
    least_cycles: int = 64
    dependent_cycles: int = 100
    short: int = 64
    wide_stride_bytes: int = 16
    reciprocal_cycles: float = 8.0
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def source(self, name: str) -> str:
        """Where the figure `name` is from."""
        sources = dict(self.sources)
        one_of("name", name, sources)
        return sources[name]


_V2 = "AWS Neuron documentation, Trainium/Inferentia2 Architecture Guide for NKI"
_V3 = "AWS Neuron documentation, Trainium2 Architecture Guide for NKI"
_V4 = "AWS Neuron documentation, Trainium3 Architecture Guide for NKI"
_ISA = "AWS Neuron documentation, nki.isa"
_SHARED = "AWS Neuron documentation, NKI ISA API Common Fields, engine selection"
_DMA = "AWS Neuron documentation, Guideline to Avoid Under-Utilizing DMA Bandwidth"
_MODEL = f"{_V2}, Vector Engine, cost model"


_IN_THE_GUIDE = (
    *("generation", "cores", "clock_hz", "lanes", "sbuf_bytes", "psum_bytes"),
    *("hbm_bytes", "hbm_bytes_per_second", "shared_ports", "fast_vector"),
)


def _sources(guide: str, engine_rate: str, **more: str) -> tuple[tuple[str, str], ...]:
    """Of each figure. What the guides of v3 and v4 do not say anew is v2's."""
    older = "" if guide is _V2 else "; not said of later cores, so taken over"
    sources = dict.fromkeys(_IN_THE_GUIDE, guide) | {
        "psum_bank_bytes": f"{_V2}{older}",
        "moving_fmax": f"{_ISA}, nc_matmul",
        "dma_queues": _DMA,
        "dma_bytes_per_second": f"{_DMA}: 16 engines of {engine_rate} each",
        "dma_peak_bytes_per_second": f"{_DMA}: no higher figure is published",
        "dma_start_seconds": f"{_DMA}: about 1300 ns from semaphore to start",
        "least_cycles": f"{_ISA}: max(64, N), where 64 is the least initiation interval{older}",
        "dependent_cycles": f"{_MODEL}{older}",
        "short": "ours: the guide says N well under 128",
        "wide_stride_bytes": f"{_V2}, access pattern{older}",
        "reciprocal_cycles": f"{_SHARED}: max(64, 8 N)",
    }
    return tuple({**sources, **more}.items())


def _clocks(tensor: float, vector: float, scalar: float, gpsimd: float) -> Mapping[str, float]:
    return MappingProxyType(dict(zip(ENGINES, (tensor, vector, scalar, gpsimd), strict=True)))


CHIPS = {
    name: NeuronChip(
        name,
        generation=2,
        cores=2,
        clock_hz=_clocks(2.8e9, 1.12e9, 1.4e9, 1.4e9),
        hbm_bytes=32 * GIB,
        hbm_bytes_per_second=820e9,
        sbuf_bytes=192 * KIB,
        dma_bytes_per_second=272e9,
        dma_peak_bytes_per_second=16 * 27 * GIB,
        moving_fmax=512,
        shared_ports=True,
        fast_vector=False,
        sources=_sources(
            _V2,
            "17 GB/s",
            dma_peak_bytes_per_second=f"{_V2}: a peak of 27 GiB/s each for 16 engines",
        ),
    )
    for name in ("inf2", "trn1")
}
CHIPS["trn2"] = NeuronChip(
    "trn2",
    generation=3,
    cores=8,
    clock_hz=_clocks(2.4e9, 0.96e9, 1.2e9, 1.2e9),
    hbm_bytes=96 * GIB,
    hbm_bytes_per_second=3e12,
    sbuf_bytes=224 * KIB,
    dma_bytes_per_second=368e9,
    dma_peak_bytes_per_second=368e9,
    moving_fmax=512,
    shared_ports=False,
    fast_vector=True,
    sources=_sources(_V3, "23 GB/s"),
)
CHIPS["trn3"] = replace(
    CHIPS["trn2"],
    name="trn3",
    generation=4,
    clock_hz=_clocks(2.4e9, 1.2e9, 1.2e9, 1.2e9),
    hbm_bytes=144 * GIB,
    hbm_bytes_per_second=4.7e12,
    sbuf_bytes=256 * KIB,
    dma_bytes_per_second=528e9,
    dma_peak_bytes_per_second=528e9,
    moving_fmax=4096,
    sources=_sources(_V4, "33 GB/s"),
)


def chip(name: str) -> NeuronChip:
    """The chip of that name; ValueError lists the names there are."""
    one_of("chip", name, CHIPS)
    return CHIPS[name]


TARGETS = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3", "trn1n": "trn1", "trn3pre": "trn3"}


def target(name: str | None = None) -> str:
    """The chip that a kernel asks for, by its name or what the vendor's tools call it; else the
    vendor's variable, else Inf2."""
    variable = "NEURON_PLATFORM_TARGET_OVERRIDE"
    wanted = name or os.environ.get(variable) or "inf2"
    wanted = TARGETS.get(wanted, wanted)
    one_of("platform_target" if name else variable, wanted, CHIPS)
    return wanted


def here(fallback: str = "inf2") -> str:
    """The chip of this machine, by the name of its instance; `fallback` where that says nothing."""
    product = Path("/sys/class/dmi/id/product_name")
    name = product.read_text(encoding="utf-8") if product.exists() else ""
    return next((known for known in CHIPS if name.startswith(known)), fallback)
