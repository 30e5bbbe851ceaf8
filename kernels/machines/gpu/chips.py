"""The GPUs that kernels are compiled for, and what is published of each."""

from __future__ import annotations

from dataclasses import dataclass

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
        """Peak operations a second of the tensor cores; float32 is multiplied as TF32 there.

        Args:
            dtype: of the operands.
        """
        if dtype in ("int8", "uint8"):
            return self.int8_ops
        return self.tf32_flops if dtype == "float32" else self.bf16_flops


def _sources(rates: str, clock: str = "its boost clock") -> tuple[tuple[str, str], ...]:
    """Where a chip's figures are from.

    Args:
        rates: the data sheet.
        clock: where the clock of the tensor rates is from.
    """
    return (
        *((name, rates) for name in ("float32_flops", "bf16_flops", "tf32_flops", "int8_ops")),
        *((name, rates) for name in ("memory_bytes", "bytes_per_second", "l2_bytes", "sms")),
        ("clock_hz", rates),
        ("tensor_clock_hz", clock),
        ("device_kind", "what NVIDIA's driver calls it"),
        ("capability", "NVIDIA's list of GPUs by compute capability"),
        ("lanes", "CUDA C++ programming guide, arithmetic throughput by compute capability"),
    )


CHIPS = {
    chip.name: chip
    for chip in (
        GpuChip(
            "a100",
            "NVIDIA A100-SXM4-80GB",
            capability=(8, 0),
            sms=108,
            lanes=64,
            clock_hz=1.41e9,
            tensor_clock_hz=1.41e9,
            memory_bytes=80 << 30,
            bytes_per_second=2039e9,
            l2_bytes=40 << 20,
            float32_flops=19.5e12,
            bf16_flops=312e12,
            tf32_flops=156e12,
            int8_ops=624e12,
            sources=_sources("NVIDIA A100 data sheet, and the A100 white paper"),
        ),
        GpuChip(
            "l4",
            "NVIDIA L4",
            capability=(8, 9),
            sms=58,
            lanes=128,
            clock_hz=2.04e9,
            tensor_clock_hz=2.04e9,
            memory_bytes=24 << 30,
            bytes_per_second=300e9,
            l2_bytes=48 << 20,
            float32_flops=30.3e12,
            bf16_flops=121e12,
            tf32_flops=60e12,
            int8_ops=242e12,
            sources=_sources("NVIDIA L4 data sheet, and the Ada white paper"),
        ),
        GpuChip(
            "h100",
            "NVIDIA H100 80GB HBM3",
            capability=(9, 0),
            sms=132,
            lanes=128,
            clock_hz=1.98e9,
            tensor_clock_hz=1.83e9,
            memory_bytes=80 << 30,
            bytes_per_second=3350e9,
            l2_bytes=50 << 20,
            float32_flops=66.9e12,
            bf16_flops=989.4e12,
            tf32_flops=494.7e12,
            int8_ops=1978.9e12,
            sources=_sources(
                "NVIDIA H100 (SXM) data sheet, and the H100 white paper",
                "the published bf16 rate / (132 SMs × 4,096 operations a cycle)",
            ),
        ),
        GpuChip(
            "b200",
            "NVIDIA B200",
            capability=(10, 0),
            sms=148,
            lanes=128,
            clock_hz=1.965e9,
            tensor_clock_hz=1.856e9,
            memory_bytes=180 << 30,
            bytes_per_second=8000e9,
            l2_bytes=126 << 20,
            float32_flops=74.4e12,
            bf16_flops=2250e12,
            tf32_flops=1125e12,
            int8_ops=4500e12,
            sources=_sources(
                "NVIDIA HGX B200 data sheet, dense rates, and XLA's description of the B200",
                "the published bf16 rate / (148 SMs × 8,192 operations a cycle)",
            ),
        ),
        GpuChip(
            "rtx3090",
            "NVIDIA GeForce RTX 3090",
            capability=(8, 6),
            sms=82,
            lanes=128,
            clock_hz=1.695e9,
            tensor_clock_hz=1.695e9,
            memory_bytes=24 << 30,
            bytes_per_second=936e9,
            l2_bytes=6 << 20,
            float32_flops=35.6e12,
            bf16_flops=71e12,
            tf32_flops=35.6e12,
            int8_ops=284e12,
            sources=_sources("NVIDIA's white paper on the GA102"),
        ),
    )
}


def chip(name: str) -> GpuChip:
    """The GPU of that name.

    Args:
        name: one of CHIPS.

    Raises:
        ValueError: for another name.
    """
    one_of("chip", name, CHIPS)
    return CHIPS[name]
