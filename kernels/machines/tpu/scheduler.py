"""The VLIW schedule: what each unit of a TPU core does, bundle by bundle."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kernels.machines.compat import libtpu
from kernels.machines.compat.libtpu import Bundle
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import TIMEOUT, TpuProgram, compile_program, libtpu_version

# The compiler's names of the slots, in the words of this book.
SLOTS = {
    "MXU": "MXU",
    "MATMUL": "MXU",
    "MATPUSH": "MXU push",
    "XLU": "XLU",
    "VALU": "VPU",
    "VPOP": "MXU and XLU results",
    "EUP": "EUP",
    "VLOAD": "vector load",
    "VLOAD:FILL": "fill",
    "VSTORE": "vector store",
    "VSTORE:SPILL": "spill",
    "SALU": "scalar",
}


@dataclass(frozen=True)
class KernelSchedule:
    """The bundles of one kernel (or XLA fusion), as the compiler packed them.

    Args:
        name: as the compiler calls the kernel.
        bundles: in the order of the program.
        slots: names of the units.
        capacity: int [slots], operations that a bundle can hold of each.
        occupancy: int [bundles, slots], operations that each bundle holds: rows are time, if
            nothing stalls and no branch is taken. A vector load that is a fill counts in both
            slots, and so does a spill. MXU and XLU count for as long as they work: a vmatmul in
            the bundles behind it, as many as it streams rows, and a vmatpush in none.
        vmem_bytes: VMEM that the compiler laid out for it, or None where it does not say.
    """

    name: str
    bundles: tuple[Bundle, ...] = field(repr=False)
    slots: tuple[str, ...]
    capacity: np.ndarray = field(repr=False)
    occupancy: np.ndarray = field(repr=False)
    vmem_bytes: int | None

    @property
    def utilisation(self) -> dict[str, float]:
        """Of each slot, the share that all bundles together fill, 0 to 1."""
        return self._share(slice(None))

    @property
    def loop_utilisation(self) -> dict[str, float]:
        """The same for the bundles inside a loop, where a kernel spends its time."""
        return self._share(self.in_loop)

    @property
    def in_loop(self) -> np.ndarray:
        """bool [bundles]: whether a bundle stands inside a loop; all True where none does."""
        depth = np.array([b.depth for b in self.bundles] or [0] * len(self.occupancy))
        depth = np.resize(depth, len(self.occupancy)) if len(depth) else depth
        return depth > 0 if (depth > 0).any() else np.ones(len(depth), bool)

    def _share(self, rows: Any) -> dict[str, float]:
        part = self.occupancy[rows]
        held = part.sum(0) / np.maximum(self.capacity * max(len(part), 1), 1)
        return dict(zip(self.slots, map(float, held), strict=True))

    def count(self, slot: str) -> int:
        """Operations in one slot over all bundles; 0 where the chip has no such slot."""
        return int(self.occupancy[:, self.slots.index(slot)].sum()) if slot in self.slots else 0

    @property
    def spills(self) -> int:
        """Stores of registers that the kernel ran out of, in the static bundles."""
        return self.count("spill")

    @property
    def fills(self) -> int:
        """Loads that bring spilled registers back, in the static bundles."""
        return self.count("fill")

    @property
    def loop_bundles(self) -> int:
        """Bundles inside a loop: of a Pallas kernel, those of one grid step. Each takes at least
        one cycle; a branch may skip some, and an inner loop repeats others."""
        return int(self.in_loop.sum())

    @property
    def step_bundles(self) -> int:
        """Those of loop_bundles that one grid step runs through if it takes one branch only, the
        longest: all branches stand in the program, one after another."""
        inside = [b for b in self.bundles if b.depth] or list(self.bundles)
        regions = [[0, 0, 0]]  # where it starts, bundles of its branches, of the longest of them
        for place, bundle in enumerate(inside):
            if bundle.mark == "PF" and len(regions) > 1:  # where the jump over a branch lands
                start, branches, longest = regions.pop()
                taken = place - start - branches + longest
                regions[-1][1] += place - start
                regions[-1][2] = max(regions[-1][2], taken)
            if any("sbr.rel" in operation for operation in bundle.operations):
                regions.append([place, 0, 0])
        return self.loop_bundles - sum(r[1] for r in regions) + sum(r[2] for r in regions)

    @cached_property
    def multiplying(self) -> tuple[int, ...]:
        """Those of loop_bundles that stand in each branch which holds matrix products; of branches
        in one another, the inner ones, as far as these hold the products."""
        inside = np.flatnonzero(self.in_loop)
        units = [i for i, slot in enumerate(self.slots) if slot in ("MXU", "MXU push")]
        busy: Any = self.occupancy[inside][:, units].any(1)
        opened: list[int] = []
        branches: list[tuple[int, int]] = []
        for place, number in enumerate(inside[: len(self.bundles)]):
            if self.bundles[number].mark == "PF" and opened:
                start = opened.pop()
                if any(busy[start:place]):
                    branches = [branch for branch in branches if branch[0] < start] + [
                        (start, place)
                    ]
                    busy[start:place] = False
            if any("sbr.rel" in operation for operation in self.bundles[number].operations):
                opened.append(place)
        return tuple(stop - start for start, stop in branches)

    @cached_property
    def by_hand(self) -> libtpu.ByHand | None:
        """A round of its loop, where it is a gather of XLA's; else None."""
        return libtpu.by_hand(self.bundles)

    def text(self, start: int = 0, stop: int | None = None, width: int | None = None) -> str:
        """Bundles start to stop, one line each: address, mark, loop depth, operations.

        Args:
            width: characters a line; given, the compiler's remarks are left out and long lines
                cut.
        """
        lines = []
        for b in self.bundles[start:stop]:
            operations = "; ".join(map(_plain, b.operations) if width else b.operations)
            line = f"{b.address:#6x} {b.mark:2} {'>' * b.depth:2} {operations}".rstrip()
            lines.append(line if not width or len(line) <= width else line[: width - 1] + "…")
        return "\n".join(lines)

    def names(self, place: int) -> dict[str, int]:
        """The operations of one bundle by name, without their operands: name → how many."""
        counts: Counter[str] = Counter()
        for operation in self.bundles[place].operations:
            text = re.sub(r"^\(.*?\)\s*", "", _plain(operation))  # a predicate
            name = re.search(r"(?:^|= *)([a-z][\w.]*)", text)
            counts[re.sub(r"\.mxu\d$", "", name[1]) if name else text] += 1
        return dict(counts)

    def find(self, word: str, start: int = 0) -> int:
        """The first bundle from `start` on that holds an operation with `word` in it."""
        for place, bundle in enumerate(self.bundles[start:], start):
            if any(word in _plain(operation) for operation in bundle.operations):
                return place
        raise ValueError(f"word is {word!r}; accepted: one that stands in a bundle of {self.name}")


@dataclass(frozen=True)
class Schedule:
    """The schedules of a program's kernels.

    Args:
        chip: one of CHIPS.
        kernels: in the order of the program.
        libtpu: the version of the compiler that packed them.
    """

    chip: str
    kernels: tuple[KernelSchedule, ...]
    libtpu: str

    def __getitem__(self, name: str | int) -> KernelSchedule:
        """A kernel by its place, or by its name with or without the compiler's number."""
        if isinstance(name, int):
            return self.kernels[name]
        for kernel in self.kernels:
            if name in (kernel.name, kernel.name.rpartition(".")[0]):
                return kernel
        known = ", ".join(k.name for k in self.kernels)
        raise ValueError(f"kernel is {name!r}; accepted: {known}")


def _plain(operation: str) -> str:
    """An operation without the compiler's remarks, which stand one inside another."""
    kept, depth = [], 0
    for part in re.split(r"(/\*|\*/)", operation):
        if part in ("/*", "*/"):
            depth += 1 if part == "/*" else -1
        elif not depth:
            kept.append(part)
    return re.sub(r" {2,}", " ", re.sub(r"\[resolvable[^]]*]", "", "".join(kept))).strip()


def schedule(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    timeout: float = TIMEOUT,
    **options: Any,
) -> Schedule:
    """Compile `function(*args, **options)` for `chip` and read the schedule of each kernel and
    fusion.

    Args:
        function: kernels inside are taken as compiled, whatever they do on this machine.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.
        timeout: seconds.
        options: any other keyword argument is the function's own, as in compile, or a mesh with its
            in_specs and out_specs: then the schedule is that of each of several chips.

    Raises:
        TpuCompileError: as compile does, and where this libtpu writes no schedule.
        ValueError, MissingPackage: as compile does.
    """
    libtpu_version()
    program = export(function, *args, chip=chip, **options)
    compiled = compile_program(program, purposes=("schedule",), timeout=timeout)
    schedules = schedule_of(compiled)
    if not schedules.kernels:
        raise TpuCompileError("other", f"libtpu {compiled.libtpu} wrote no schedule that is known")
    return schedules


def schedule_of(compiled: TpuProgram) -> Schedule:
    """The schedule of a program that was compiled for the purpose "schedule"."""
    order = {i.name: (n, i) for n, i in enumerate(compiled.module.run)}
    kernels = []
    for dump in compiled.dumps:
        kernel = _kernel(dump, order[dump.kernel][1] if dump.kernel in order else None)
        if kernel is not None:
            kernels.append((order.get(dump.kernel, (len(order), None))[0], kernel))
    kernels.sort(key=lambda pair: pair[0])
    return Schedule(compiled.chip, tuple(k for _, k in kernels), compiled.libtpu)


def _kernel(dump: libtpu.Dump, instruction: Any) -> KernelSchedule | None:
    if dump.used is None or dump.capacity is None:
        return None
    vmem = libtpu.scoped_vmem_bytes(instruction.config) if instruction else None
    slots = tuple(SLOTS.get(slot, slot) for slot in dump.slots)
    return KernelSchedule(dump.kernel, dump.bundles, slots, dump.capacity, dump.used, vmem)
