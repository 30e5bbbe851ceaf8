"""What an estimate says: of a program, and of each of its operations."""

from dataclasses import dataclass, field
from typing import Any

from kernels.machines.base import Seconds
from kernels.machines.tpu import chips
from kernels.machines.tpu.estimate import bands
from kernels.machines.tpu.estimate.rates import LAUNCH_SECONDS
from kernels.machines.tpu.pool import TpuProgram
from kernels.machines.tpu.scheduler import Schedule, schedule_of

COMPUTE, HBM, LATENCY, LINK = "compute", "HBM", "latency", "link"  # what binds


@dataclass(frozen=True)
class OpEstimate:
    """One operation of a program: a kernel, a fusion, a relayout.

    Args:
        name: HLO's.
        kind: "kernel", "fusion", "matmul", "relayout", "prefetch", or HLO's name.
        cycles, hbm_bytes: all of its runs together.
        method: how the cycles were found.
        times: how often it runs.
        bound: "compute", "HBM", "latency" or "link", the one to another chip.
        model_cycles: of the work alone, as the compiler's model or the schedule has it.
        floor_cycles: of its bytes alone, at the bandwidth that is reached.
        shape: of its first result, with the layout.
        origin: the JAX operations behind it.
        vmem_limit_bytes: what a kernel may take of VMEM; 0 for others.
        call: a kernel's pallas_call, as kernels.pallas.Call; None for others.
        resident: names of those of its operands that XLA keeps in VMEM, so that they do not
            come from HBM.
        depends: what decides its time and is not known.
        least_cycles, most_cycles: what it takes then, at least and at most.
    """

    name: str
    kind: str
    cycles: float
    hbm_bytes: int
    method: str
    bound: str
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

    Args:
        name: of the program.
        chip: one of CHIPS.
        cycles, seconds: of the program on the chip, as a profiler's device time has it. Where
            values that are not known decide, seconds are a range, the most infinite where a loop's
            length is unknown; and in cycles, what is unknown happens once.
        hbm_bytes: moved between HBM and the chip.
        bound: what binds most of the time: "compute", "HBM", "latency" or "link".
        method: how the figures were found.
        utilisation: matrix operations against the chip's peak for their dtype, 0 to 1 (float32
            against bfloat16's peak).
        ops: each operation; relayouts are named so.
        optimal_seconds: XLA's own estimate, None where a kernel without a cost estimate
            hides in it.
        flops: matrix operations.
        libtpu: the version of the compiler.
        floor_cycles: of the bytes of its arguments and results alone.
        notes: what the reader has to know.
        compiled: the program that this is of.
        depends: what decides and is not known, arguments and what else; then there is no band.
        on_data: the same in words, and which arrays of integers would tell.
        rates: whose rates it was made with, where they are not the book's; then there is no band.
        cost: what was added up; other rates make other operations of it.
    """

    name: str
    chip: str
    cycles: float
    seconds: Seconds
    hbm_bytes: int
    bound: str
    method: str
    utilisation: float
    ops: tuple[OpEstimate, ...] = field(repr=False)
    optimal_seconds: float | None
    flops: float
    libtpu: str
    floor_cycles: float = 0.0
    notes: tuple[str, ...] = ()
    compiled: TpuProgram | None = field(default=None, repr=False, compare=False)
    depends: tuple[str, ...] = ()
    on_data: str = ""
    rates: str = ""
    cost: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, Seconds):
            object.__setattr__(self, "seconds", Seconds(self.seconds))

    @property
    def regime(self) -> str:
        """Whose code takes most of the time, and what binds there: "Pallas, compute", "XLA loops,
        HBM" and the like; estimates of one regime err alike."""
        return bands.regime(self)

    @property
    def band(self) -> bands.Band | None:
        """How far estimates of this regime were off on this chip; None where too few were ever
        held against a measurement."""
        if self.depends or self.rates:
            return None
        return bands.band(self.chip, self.regime, compiler=f"libtpu {self.libtpu}")

    @property
    def band_text(self) -> str:
        """The band in words, such as "−8 … +15 %", or why there is none."""
        if self.depends:
            return self.on_data
        if self.rates:
            return self.rates
        if band := self.band:
            return band.text
        return bands.none(len(bands.errors(self.chip, self.regime)))

    @property
    def launch_seconds(self) -> float | None:
        """What a clock on the host sees beside the chip's own time; None where not measured."""
        return LAUNCH_SECONDS.get(self.chip)

    @property
    def hbm_utilisation(self) -> float:
        """Bytes a second against the chip's published bandwidth, 0 to 1."""
        rate = chips.chip(self.chip).hbm_bytes_per_cycle
        return self.hbm_bytes / rate / self.cycles if self.cycles else 0.0

    @property
    def relayouts(self) -> tuple[OpEstimate, ...]:
        """The operations that only move data into another layout."""
        return tuple(op for op in self.ops if op.kind == "relayout")

    @property
    def schedule(self) -> Schedule:
        """The schedule that the estimate was made with."""
        assert self.compiled is not None  # which `estimate` leaves to nobody
        return schedule_of(self.compiled)
