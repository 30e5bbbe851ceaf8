"""The Neuron chips, and what is published of each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels.machines.base import PublishedChip, published
from kernels.machines.checks import one_of

ENGINES = ("Tensor", "Vector", "Scalar", "GpSimd")
PARTITIONS = 128


@dataclass(frozen=True)
class NeuronChip(PublishedChip):
    """One chip, named after its instances, and one of its NeuronCores: a kernel runs on one core.

    Args:
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
    """

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
    lanes: int
    psum_bytes: int
    psum_bank_bytes: int
    dma_queues: int
    dma_start_seconds: float
    least_cycles: int
    dependent_cycles: int
    short: int
    wide_stride_bytes: int
    reciprocal_cycles: float


CHIPS = published(NeuronChip, __file__)


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
