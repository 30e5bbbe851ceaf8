"""The TPU chips that kernels are lowered for."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.checks import one_of


@dataclass(frozen=True)
class Chip:
    """One TPU generation, by its short name and by the name that JAX gives its devices."""

    name: str
    device_kind: str
    tensor_cores: int


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v5e", "TPU v5 lite", tensor_cores=1),
        Chip("v6e", "TPU v6 lite", tensor_cores=1),
    )
}


def chip(name: str) -> Chip:
    """The chip of that name; ValueError lists the names there are."""
    one_of("chip", name, CHIPS)
    return CHIPS[name]
