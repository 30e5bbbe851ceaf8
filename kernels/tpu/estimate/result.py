"""What an estimate says: of a program, and of each of its operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernels.tpu import chips
from kernels.tpu.pool import Compiled
from kernels.tpu.scheduler import Schedule, schedule_of

COMPUTE, HBM, LATENCY = "compute", "HBM", "latency"  # what binds


@dataclass(frozen=True)
class OpEstimate:
    """One operation of a program: a kernel, a fusion, a relayout.

    kind: "kernel", "fusion", "matmul", "relayout", "prefetch", or HLO's name. cycles and hbm_bytes:
    all of its runs together. times: how often it runs. bound: "compute", "HBM" or "latency".
    model_cycles: what the model said, before the HBM floor. error: relative, such as 0.06.
    shape: of its first result, with the layout. origin: the JAX operations behind it.
    vmem_limit_bytes: what a kernel may take of VMEM; 0 for others. call: a kernel's pallas_call, as
    kernels.pallas.Call; None for others. resident: names of those of its operands that XLA keeps in
    VMEM, so that they do not come from HBM. depends: what decides its time and is not known;
    least_cycles and most_cycles: what it takes then, at least and at most.
    """

    name: str
    kind: str
    cycles: float
    hbm_bytes: int
    method: str
    bound: str
    error: float
    times: int = 1
    model_cycles: float = 0.0
    floor_cycles: float = 0.0
    shape: str = ""
    origin: str = ""
    vmem_limit_bytes: int = 0
    call: Any = field(default=None, repr=False, compare=False)
    resident: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    least_cycles: float = 0.0
    most_cycles: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """What a program would take on a chip, by the compiler's own model; nothing was measured.

    cycles, seconds: of the program on the chip, without the time to dispatch it. hbm_bytes: moved
    between HBM and the chip. bound: what binds most of the time: "compute", "HBM" or "latency".
    method: how the figures were found. utilisation: matrix operations against the chip's peak for
    their dtype, 0 to 1 (float32 against bfloat16's peak). error: relative band, such as 0.06.
    ops: each operation; relayouts are named so. optimal_seconds: XLA's own lower bound, None where
    a kernel without a cost estimate hides in it. flops: matrix operations. depends: the arguments
    whose values decide and are not known; then seconds, in which what is unknown happens once, says
    little, range is what to read, and error is infinite. range: least and most seconds, the most
    infinite where a loop's length is unknown; both are `seconds` where nothing is.
    """

    name: str
    chip: str
    cycles: float
    seconds: float
    hbm_bytes: int
    bound: str
    method: str
    utilisation: float
    error: float
    ops: tuple[OpEstimate, ...] = field(repr=False)
    optimal_seconds: float | None
    flops: float
    libtpu: str
    floor_cycles: float = 0.0
    notes: tuple[str, ...] = ()
    compiled: Compiled | None = field(default=None, repr=False, compare=False)
    depends: tuple[str, ...] = ()
    range: tuple[float, float] = (0.0, 0.0)

    @property
    def hbm_utilisation(self) -> float:
        """Bytes a second against the chip's published bandwidth, 0 to 1."""
        rate = chips.chip(self.chip).hbm_bytes_per_second
        return self.hbm_bytes / rate / self.seconds if self.seconds else 0.0

    @property
    def relayouts(self) -> tuple[OpEstimate, ...]:
        """The operations that only move data into another layout."""
        return tuple(op for op in self.ops if op.kind == "relayout")

    @property
    def schedule(self) -> Schedule:
        """The schedule that the estimate was made with."""
        assert self.compiled is not None  # which `estimate` leaves to nobody
        return schedule_of(self.compiled)
