"""The GPUs that kernels are compiled for, and what is published of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.machines.base import PublishedChip
from kernels.machines.checks import one_of

# An SM of a compute capability, from the CUDA C++ programming guide's table of technical
# specifications: threads, blocks, bytes of shared memory an SM, and bytes that one block may have.
_SM = {
    (8, 0): (2048, 32, 167936, 166912),
    (8, 6): (1536, 16, 102400, 101376),
    (8, 9): (1536, 24, 102400, 101376),
    (9, 0): (2048, 32, 233472, 232448),
    (10, 0): (2048, 32, 233472, 232448),
}

# Bytes of a row that machines.gpu.row_kernel takes: of bfloat16, 128 registers of each thread, once
# it is float32.
LONGEST_ROW = 32768


@dataclass(frozen=True)
class GpuChip(PublishedChip):
    """One GPU, by its short name and by the name that JAX gives its devices.

    A multiply-add counts two operations. Rates are those of the whole chip, for dense operands.

    Args:
        capability: compute capability, (major, minor).
        sms: streaming multiprocessors.
        lanes: float32 multiply-adds that an SM does in a cycle.
        clock_hz: boost clock.
        tensor_clock_hz: the clock at which the published tensor rates are reached.
        memory_bytes: of main memory.
        bytes_per_second: of main memory.
        l2_bytes: of the cache that all SMs share.
        float32_flops, bf16_flops, tf32_flops, int8_ops: peak operations a second.
    """

    capability: tuple[int, int]
    sms: int
    lanes: int
    clock_hz: float
    tensor_clock_hz: float
    memory_bytes: int
    bytes_per_second: float
    l2_bytes: int
    float32_flops: float
    bf16_flops: float
    tf32_flops: float
    int8_ops: float

    @property
    def sm(self) -> str:
        """The architecture as ptxas calls it, with the features of this very chip: sm_90a."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    @property
    def threads_per_sm(self) -> int:
        """Threads that an SM keeps at once."""
        return _SM[self.capability][0]

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that an SM keeps at once."""
        return _SM[self.capability][1]

    @property
    def shared_bytes_per_sm(self) -> int:
        """Bytes of shared memory of an SM."""
        return _SM[self.capability][2]

    @property
    def shared_bytes_per_block(self) -> int:
        """Bytes of shared memory that one block may have."""
        return _SM[self.capability][3]

    @property
    def registers_per_sm(self) -> int:
        """Registers of 32 bits of an SM; a thread may have 255."""
        return 65536

    def peak(self, dtype: str) -> float:
        """Peak operations a second of the tensor cores; float32 is multiplied as TF32 there."""
        if dtype in ("int8", "uint8"):
            return self.int8_ops
        return self.tf32_flops if dtype == "float32" else self.bf16_flops


def _sources(rates: str, clock: str = "its boost clock") -> tuple[tuple[str, str], ...]:
    """Where a chip's figures are from: most from a data sheet, the tensor cores' clock apart."""
    return (
        *((name, rates) for name in ("float32_flops", "bf16_flops", "tf32_flops", "int8_ops")),
        *((name, rates) for name in ("memory_bytes", "bytes_per_second", "l2_bytes", "sms")),
        ("clock_hz", rates),
        ("tensor_clock_hz", clock),
        ("device_kind", "what NVIDIA's driver calls it"),
        ("capability", "NVIDIA's list of GPUs by compute capability"),
        ("lanes", "CUDA C++ programming guide, arithmetic throughput by compute capability"),
    )


# What is published, a row a figure and a column a chip.
_NAMES = ("a100", "l4", "h100", "b200", "rtx3090")
_FIGURES: dict[str, tuple[Any, ...]] = {
    "device_kind": (
        *("NVIDIA A100-SXM4-80GB", "NVIDIA L4", "NVIDIA H100 80GB HBM3", "NVIDIA B200"),
        "NVIDIA GeForce RTX 3090",
    ),
    "capability": ((8, 0), (8, 9), (9, 0), (10, 0), (8, 6)),
    "sms": (108, 58, 132, 148, 82),
    "lanes": (64, 128, 128, 128, 128),
    "clock_hz": (1.41e9, 2.04e9, 1.98e9, 1.965e9, 1.695e9),
    "tensor_clock_hz": (1.41e9, 2.04e9, 1.83e9, 1.856e9, 1.695e9),
    "memory_bytes": (80 << 30, 24 << 30, 80 << 30, 180 << 30, 24 << 30),
    "bytes_per_second": (2039e9, 300e9, 3350e9, 8000e9, 936e9),
    "l2_bytes": (40 << 20, 48 << 20, 50 << 20, 126 << 20, 6 << 20),
    "float32_flops": (19.5e12, 30.3e12, 66.9e12, 74.4e12, 35.6e12),
    "bf16_flops": (312e12, 121e12, 989.4e12, 2250e12, 71e12),
    "tf32_flops": (156e12, 60e12, 494.7e12, 1125e12, 35.6e12),
    "int8_ops": (624e12, 242e12, 1978.9e12, 4500e12, 284e12),
    "sources": (
        _sources("NVIDIA A100 data sheet, and the A100 white paper"),
        _sources("NVIDIA L4 data sheet, and the Ada white paper"),
        _sources(
            "NVIDIA H100 (SXM) data sheet, and the H100 white paper",
            "the published bf16 rate / (132 SMs × 4,096 operations a cycle)",
        ),
        _sources(
            "NVIDIA HGX B200 data sheet, dense rates, and XLA's description of the B200",
            "the published bf16 rate / (148 SMs × 8,192 operations a cycle)",
        ),
        _sources("NVIDIA's white paper on the GA102"),
    ),
}
CHIPS = {
    name: GpuChip(name, **{figure: column[place] for figure, column in _FIGURES.items()})
    for place, name in enumerate(_NAMES)
}


def chip(name: str) -> GpuChip:
    """The GPU of that name; ValueError lists the names there are."""
    one_of("chip", name, CHIPS)
    return CHIPS[name]
