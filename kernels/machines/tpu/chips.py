"""The TPU chips that kernels are compiled for, and what is published of each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernels.machines.base import PublishedChip, published
from kernels.machines.checks import one_of


@dataclass(frozen=True)
class Chip(PublishedChip):
    """One TPU generation, by its short name and by the name that JAX gives its devices.

    All rates and sizes are those of one chip, all of its tensor cores together; of a v7x, which JAX
    takes for two devices, those of one device: half of what is published of the chip.

    Args:
        topology: the smallest one that the compiler takes.
        tensor_cores: cores that share a chip and split "parallel" grid dimensions.
        clock_hz: cycles a second of a tensor core.
        hbm_bytes_per_second, hbm_bytes: main memory.
        bf16_flops, int8_ops: peak operations a second, a multiply-add counting two.
        vmem_bytes: vector memory of one core.
        vmem_limit_bytes: what the compiler grants one kernel unless `vmem_limit_bytes` asks for
            more.
        mxus: matrix units a core.
        mxu_size: rows and columns of each.
        devices: that JAX makes of a chip.
    """

    tensor_cores: int
    topology: str
    clock_hz: float
    hbm_bytes_per_second: float
    hbm_bytes: int
    bf16_flops: float
    int8_ops: float
    vmem_bytes: int
    vmem_limit_bytes: int
    mxus: int
    mxu_size: int
    devices: int

    @property
    def hbm_bytes_per_cycle(self) -> float:
        """Bytes between HBM and the chip in one cycle, at the published bandwidth."""
        return self.hbm_bytes_per_second / self.clock_hz

    def peak(self, dtype: str) -> float:
        """Peak operations a second for operands of `dtype`: int8's for 8-bit integers, bf16's else.

        float32 has no published rate: the MXU multiplies it in bfloat16 passes.
        """
        return self.int8_ops if dtype in ("int8", "uint8") else self.bf16_flops


CHIPS = published(Chip, __file__)


def chip(name: str) -> Chip:
    """The chip of that name; ValueError lists the names there are."""
    one_of("chip", name, CHIPS)
    return CHIPS[name]


# Chips of a topology → its name, for chips in a plane and for chips in a cube.
PLANE = {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
CUBE = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8"}


def topology(name: str, mesh: Mapping[str, int] | None = None) -> str:
    """The smallest topology that holds a mesh of devices: axis name → size; without a mesh, one
    device. ValueError says how many devices a mesh may have.
    """
    family, _, least = chip(name).topology.partition(":")
    if mesh is None:
        return chip(name).topology
    known = CUBE if least.count("x") == 2 else PLANE
    known = {chips * chip(name).devices: text for chips, text in known.items()}
    sizes = tuple(mesh.values())
    if not sizes or any(not isinstance(size, int) or size < 1 for size in sizes):
        raise ValueError(f"mesh is {dict(mesh)}; accepted: a size of 1 or more for each axis")
    if math.prod(sizes) > max(known):
        raise ValueError(
            f"mesh is {dict(mesh)}, which makes {math.prod(sizes)} devices; accepted: "
            f"at most {max(known)}"
        )
    return f"{family}:{next(known[n] for n in known if n >= math.prod(sizes))}"


def here(fallback: str = "v5e") -> str:
    """The chip that JAX traces for: that of the abstract device or of the default one; `fallback`
    where it is none of CHIPS, as on a machine without a TPU."""
    import jax
    from jax.sharding import get_abstract_mesh

    abstract = getattr(get_abstract_mesh(), "abstract_device", None)
    kind = getattr(abstract, "device_kind", None)
    if kind is None and jax.default_backend() == "tpu":
        kind = jax.devices()[0].device_kind
    return next((chip.name for chip in CHIPS.values() if chip.device_kind == kind), fallback)
