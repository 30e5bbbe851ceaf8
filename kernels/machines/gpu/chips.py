"""The GPUs that kernels are compiled for, and what is published of each."""

from dataclasses import dataclass

from kernels.machines.base import PublishedChip, published
from kernels.machines.checks import one_of

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
        threads_per_sm, blocks_per_sm: that an SM keeps at once.
        shared_bytes_per_sm, shared_bytes_per_block: of an SM, and what one block may have of it.
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
    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int

    @property
    def sm(self) -> str:
        """The architecture as ptxas calls it, with the features of this very chip: sm_90a."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    @property
    def registers_per_sm(self) -> int:
        """Registers of 32 bits of an SM; a thread may have 255."""
        return 65536

    def peak(self, dtype: str) -> float:
        """Peak operations a second of the tensor cores; float32 is multiplied as TF32 there."""
        if dtype in ("int8", "uint8"):
            return self.int8_ops
        return self.tf32_flops if dtype == "float32" else self.bf16_flops


CHIPS = published(GpuChip, __file__)


def chip(name: str) -> GpuChip:
    """The GPU of that name; ValueError lists the names there are."""
    one_of("chip", name, CHIPS)
    return CHIPS[name]
