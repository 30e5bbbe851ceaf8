"""Ask the compiler's static profile, which simulates its own schedule, for cycles.

It simulates some 80,000 cycles a second, so a long grid is cut to two short ones and extrapolated.

An example: a matmul on a grid of (32, 32, 16) whose step takes 1,000 bundles. 120,000 cycles pay
for 120 steps, so `cut_grid` keeps the 16 steps whole that are summed over and cuts the others, to
(1, 3, 16) and (1, 6, 16). If these take 49,000 and 97,000 cycles, one more block of columns takes
(97,000 - 49,000) / 3 = 16,000, and the whole grid of 32 · 32 such 49,000 + 16,000 · (1,024 - 3) =
16.4 million: what starts and ends the kernel counts once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas
from kernels.machines.exporting import ExportedProgram
from kernels.machines.hlo import DTYPES, HloInstruction
from kernels.machines.pallas.reduced import of_values
from kernels.machines.pallas.work import share_of_branches, shares_of_branches
from kernels.machines.tpu import chips
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import TpuProgram
from kernels.machines.tpu.scheduler import KernelSchedule, schedule_of

REDUCED_CYCLES = 120_000  # of each of the two reduced grids
BUDGET = 20.0  # seconds that the profile may take, unless the caller says otherwise
TABLE = 16  # grid steps at most of a kernel whose scalars are looked up in a table


@dataclass(frozen=True)
class Request:
    """What an estimator wants compiled next; the answer is a list of the results."""

    programs: Sequence[ExportedProgram]
    purposes: tuple[str, ...]
    timeout: float


@dataclass
class KernelProfile:
    """One distinct pallas_call, what is known of its schedule, and its modelled cycles."""

    call: Any
    instruction: HloInstruction
    schedule: KernelSchedule | None
    cycles: float | None = None
    method: str = ""

    @property
    def steps(self) -> int:
        return math.prod(self.call.grid)

    @property
    def issue_cycles(self) -> float:
        """Bundles that the grid runs through, if each takes a cycle and no inner loop repeats."""
        return self.steps * (self.schedule.loop_bundles if self.schedule else 0)

    @property
    def step_cycles(self) -> int:
        """Bundles of one grid step that takes one branch: what simulating a step costs."""
        return self.schedule.step_bundles if self.schedule else 0

    @property
    def rounds(self) -> int:
        """Of the longest loop in one grid step that a profile may cut."""
        return jax_pallas.longest_loop(self.call.equation)

    @property
    def in_own_loops(self) -> tuple[int, float]:
        """Bundles inside the kernel's own loops, and how often one grid step runs through them; of
        branches, the longest counts."""
        inside = 0
        if self.schedule and self.schedule.loop_bundles:
            deep = sum(b.depth > (1 if self.call.grid else 0) for b in self.schedule.bundles)
            inside = round(deep * self.schedule.step_bundles / self.schedule.loop_bundles)
        walk = self.call.walk
        rounds = float(self.rounds)
        if walk and walk.rounds:
            # A loop's share of the bundles is taken to be that of its equations.
            weights = [walk.lengths.get(loop) or 1 for loop in walk.rounds]
            counted = float(np.average([*walk.rounds.values()], weights=weights))
            counted /= max(self.steps, 1)
            rounds = counted if self.rounds == 1 else max(rounds, counted)
        return inside, rounds

    @property
    def round_bundles(self) -> float:
        """Bundles of one grid step, the mean over the grid, those inside the kernel's own loops as
        often as they run."""
        inside, rounds = self.in_own_loops
        once = self.schedule.loop_bundles if self.schedule else 0
        return once - self.skipped_bundles + inside * (rounds - 1)

    @property
    def skipped_bundles(self) -> float:
        """Bundles that a grid step jumps over: of the branches with products, as many as do not
        run. All branches stand in the schedule, one after another."""
        multiplying = self.schedule.multiplying if self.schedule else ()
        if not multiplying:
            return 0.0
        shares = shares_of_branches(self.call)
        if len(shares) != len(multiplying):
            shares = [share_of_branches(self.call)] * len(multiplying)
        return sum(n * (1 - share) for n, share in zip(multiplying, shares, strict=True))

    @property
    def waits_by_data(self) -> bool:
        """Whether it copies by hand in loops whose length is data, or ends a loop by a condition:
        the profile, which knows neither the length nor which copy a semaphore stands for, either
        gives up or makes it up."""
        walk = self.call.walk
        by_hand = bool(walk and walk.copies and (walk.rounds or walk.open))
        return by_hand or bool(walk and walk.untold)

    @property
    def by_values(self) -> bool:
        """Whether the compiler, which knows no values, would profile another work than is done."""
        return bool(jax_pallas.dynamic_axes(self.call.equation)) or of_values(self.call)


def match(program: ExportedProgram, compiled: TpuProgram) -> dict[str, KernelProfile]:
    """HLO instruction name → the pallas_call that it came from, with its schedule."""
    schedules = {k.name: k for k in schedule_of(compiled).kernels}
    free = list(program.calls)
    matched: dict[str, KernelProfile] = {}
    for instruction in compiled.module.run:
        if not instruction.is_kernel or instruction.name in matched:
            continue
        call = _find((*free, *program.calls), instruction)
        if call is None:
            continue  # a kernel that XLA itself put there
        if call in free:
            free.remove(call)
        matched[instruction.name] = KernelProfile(
            call, instruction, schedules.get(instruction.name)
        )
    return matched


def schedule_kernels(
    kernels: Sequence[KernelProfile], chip: str, timeout: float
) -> Generator[Request, list[Any], None]:
    """Ask for the schedule of each kernel, compiled alone on its own grid."""
    programs = [_alone(k.call, k.call.grid, chip) for k in kernels]
    results = yield Request(programs, ("schedule",), timeout)
    for kernel, result in zip(kernels, results, strict=True):
        if isinstance(result, TpuProgram):
            kernel.schedule = next(iter(schedule_of(result).kernels), None)


@dataclass(frozen=True)
class Profile:
    """Asks for the cycles of one program: `run` gives those of XLA's operations, and writes those
    of kernels into `kernels`; `note` takes what the reader has to know; the rest: estimate."""

    program: ExportedProgram
    compiled: TpuProgram
    kernels: dict[str, KernelProfile]
    timeout: float
    budget: float
    note: Callable[[str], None]

    def run(self) -> Generator[Request, list[Any], dict[str, int]]:
        """Ask the static profile: a whole program with kernels if short, else each kernel, cut."""
        module = self.compiled.module
        profiled: dict[str, int] = {}
        # A profile that hangs is of no use.
        seconds = min(self.timeout, self.budget)
        if not any(i.is_kernel for i in module.run):
            # Bytes and schedule tell of XLA's own operations, but of sorts.
            yield from self._profile_sorts(profiled, seconds)
            return profiled
        length = sum(
            k.issue_cycles * k.rounds * k.instruction.times for k in self.kernels.values()
        ) + sum(
            # A copy's bundles are many and short: simulating it takes far longer than a matmul.
            (i.classic_cycles or 0) * (4 if module.only_moves(i) else 1)
            for i in module.run
            if not i.is_kernel
        )
        whole = 3.0 * REDUCED_CYCLES
        # Of kernels that go by values it would say another work's cycles, or give up.
        whole_helps = not self.kernels or not all(k.by_values for k in self.kernels.values())
        if whole_helps and 0 < length <= whole:
            [result] = yield Request([self.program], ("profile",), seconds)
            if isinstance(result, TpuProgram):
                for instruction in result.module.run:
                    if instruction.profiled_cycles:
                        profiled[instruction.name] = instruction.profiled_cycles
                for name, kernel in self.kernels.items():
                    if name in profiled and not kernel.by_values:
                        kernel.cycles = profiled[name]
                        kernel.method = "static profile of the whole grid"
        for kernel in self.kernels.values():
            if kernel.waits_by_data:
                kernel.cycles = None
                self.note("no static profile of a kernel whose loops are as long as data says")
        waiting = [k for k in self.kernels.values() if k.cycles is None and not k.waits_by_data]
        if waiting:
            yield from self._profile_kernels(waiting, seconds)
        yield from self._profile_sorts(profiled, seconds)
        return profiled

    def _profile_sorts(
        self, profiled: dict[str, int], seconds: float
    ) -> Generator[Request, list[Any], None]:
        """Each sort of XLA's, alone: one price beside a kernel and without one. A sort is straight
        code whose bundles wait for the cross-lane unit's results, which the schedule does not show
        and the profile does."""
        sorts = {i.name: i for i in self.compiled.module.run if i.opcode == "sort"}
        kinds: dict[tuple[Any, int, bool], list[str]] = {}
        for name, instruction in sorts.items():
            profiled.pop(name, None)
            if kind := _sorted(instruction):
                kinds.setdefault(kind, []).append(name)
        if not kinds:
            return
        programs = [
            _sort_alone(arrays, dimension, stable, self.program.chip)
            for arrays, dimension, stable in kinds
        ]
        results = yield Request(programs, ("profile",), seconds)
        for names, result in zip(kinds.values(), results, strict=True):
            if cycles := [
                i.profiled_cycles
                for i in (result.module.run if isinstance(result, TpuProgram) else ())
                if i.opcode == "sort" and i.profiled_cycles
            ]:
                profiled.update(dict.fromkeys(names, cycles[0]))
            else:
                why = getattr(result, "message", "it says nothing of a sort")
                self.note(f"no static profile: {why}")

    def _profile_kernels(
        self, kernels: list[KernelProfile], seconds: float, before: Mapping[int, str] | None = None
    ) -> Generator[Request, list[Any], None]:
        """Each kernel alone, on two reduced grids; the rest of its grid is extrapolated. Where the
        profile cannot follow a strided DMA, once more with contiguous ones: before has what it said
        of each kernel, by its id."""
        side_by_side = before is not None
        jobs: list[tuple[KernelProfile, Cut, list[ExportedProgram]]] = []
        for kernel in kernels:
            cut = cut_grid(kernel, chips.chip(self.program.chip).tensor_cores)
            try:
                programs = [
                    _alone(kernel.call, grid, self.program.chip, side_by_side, share)
                    for grid, share in cut.sizes_and_shares
                ]
            except (TpuCompileError, NotImplementedError) as error:
                self.note(f"no static profile: {(before or {}).get(id(kernel), error)}")
                continue
            jobs.append((kernel, cut, programs))
        results = yield Request([p for _, _, ps in jobs for p in ps], ("profile",), seconds)
        rest = iter(results)
        refused: dict[int, str] = {}
        for kernel, cut, programs in jobs:
            cycles: list[Any] = [_cycles_of(next(rest)) for _ in programs]
            if reasons := [c for c in cycles if isinstance(c, str)]:
                refused[id(kernel)] = reasons[0]
                continue
            kernel.cycles, kernel.method = float(cycles[-1]), "static profile of the whole grid"
            if cut.rounds:
                short, long = cycles
                few, many = cut.rounds
                slope = (long - short) / (many - few)
                kernel.cycles = (short + slope * (kernel.rounds - few)) * cut.units
                kernel.method = (
                    f"static profile of {few} and {many} of {kernel.rounds} rounds of its loop, "
                    "extrapolated"
                )
            elif len(cycles) > 1:
                short, long = cycles
                slope = (long - short) / (cut.long - cut.short)
                kernel.cycles = short + slope * (cut.units - cut.short)
                steps = [math.prod(cut.grid(n)) for n in cut.counts]
                kernel.method = (
                    f"static profile of {steps[0]} and {steps[1]} of {kernel.steps} grid steps, "
                    "extrapolated" + (", though the steps differ in work" if cut.uneven else "")
                )
            if side_by_side:
                kernel.method += ", with its blocks side by side in HBM"
        # Time does not bring what a profile that has no end lacks.
        again = [
            k for k in kernels if "had not finished" not in refused.get(id(k), "had not finished")
        ]
        for kernel in kernels:
            if id(kernel) in refused and (side_by_side or kernel not in again):
                self.note(f"no static profile: {refused[id(kernel)]}")
        if again and not side_by_side:
            yield from self._profile_kernels(again, seconds, refused)


def _cycles_of(result: TpuProgram | TpuCompileError) -> int | str:
    """The static profile's cycles of the one kernel in a program, or why there are none."""
    if isinstance(result, TpuCompileError):
        return result.message
    for instruction in result.module.run:
        if instruction.is_kernel and instruction.profiled_cycles:
            return instruction.profiled_cycles
    return "it cannot follow a DMA of this kernel"


def _sorted(instruction: HloInstruction) -> tuple[Any, int, bool] | None:
    """The arrays that an instruction sorts, their dimension, and whether stably; None where one has
    a dtype that is not sorted here."""
    dimension = re.search(r"dimensions=\{(\d+)\}", instruction.attributes)
    arrays = tuple((a.shape, DTYPES.get(a.dtype, "")) for a in instruction.operands)
    if not dimension or not all(dtype for _, dtype in arrays):
        return None
    return arrays, int(dimension[1]), "is_stable=true" in instruction.attributes


def _sort_alone(
    arrays: tuple[tuple[tuple[int, ...], str], ...], dimension: int, stable: bool, chip: str
) -> ExportedProgram:
    """The program that sorts such arrays by the first of them."""
    import jax

    def sort(*operands: Any) -> Any:
        return jax.lax.sort(operands, dimension=dimension, is_stable=stable, num_keys=1)

    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arrays]
    return export(sort, *shapes, chip=chip, name=f"a sort of {arrays[0][0][dimension]:,}")


def _find(calls: Sequence[Any], instruction: HloInstruction) -> Any:
    """The pallas_call with the instruction's results and, of several, its name and operands."""
    base = re.sub(r"\W", "_", re.sub(r"(\.\d+)+$", "", instruction.name))
    results, operands = ([a.shape for a in x] for x in (instruction.results, instruction.operands))

    def likeness(call: Any) -> tuple[bool, bool]:
        read = [o.shape for o in call.inputs]  # prefetched scalars come before
        return re.sub(r"\W", "_", call.name) == base, operands[len(operands) - len(read) :] == read

    fitting = [c for c in calls if [o.shape for o in c.outputs] == results]
    return max(fitting, key=likeness, default=None)


@dataclass(frozen=True)
class Cut:
    """How a grid is shortened: every dimension of `sizes`, that of `axis` set to n, of which the
    whole grid makes `units` steps. `uneven` where the kernel asks where in a cut dimension it is,
    so that the steps may differ in work."""

    sizes: tuple[int, ...]
    axis: int
    short: int
    long: int
    units: float
    uneven: bool = False
    rounds: tuple[int, int] | None = None
    whole_rounds: int = 1

    @property
    def sizes_and_shares(self) -> list[tuple[tuple[int, ...], float]]:
        """The grid of each profile, and its share of the rounds of the kernel's loop."""
        if self.rounds:
            return [(self.sizes, n / self.whole_rounds) for n in self.rounds]
        return [(self.grid(n), 1.0) for n in self.counts]

    @property
    def counts(self) -> tuple[int, ...]:
        """The sizes of `axis` to profile: one where the grid is short enough to stay whole."""
        return tuple(dict.fromkeys((self.short, self.long)))

    def grid(self, n: int) -> tuple[int, ...]:
        """The reduced grid with n steps along the axis."""
        return tuple(n if i == self.axis else s for i, s in enumerate(self.sizes))


def cut_grid(kernel: KernelProfile, cores: int = 1) -> Cut:
    """Cut the outer dimensions of a kernel's grid, and leave those whole that it sums over. The
    dimensions whose program id the kernel reads stay whole as long as that is affordable."""
    grid = kernel.call.grid
    rounds = kernel.rounds
    affordable = max(2, int(REDUCED_CYCLES / max(kernel.step_cycles * rounds, 50)))
    if rounds > 8 and rounds * kernel.step_cycles > REDUCED_CYCLES / 2:
        # A step is too long itself: one step a core, and two lengths of its loop.
        many = max(8, min(rounds - 1, int(REDUCED_CYCLES / max(kernel.step_cycles, 50))))
        first = tuple(min(cores, n) for n in grid[:1]) + (1,) * (len(grid) - 1)
        units = math.prod(grid) / math.prod(first) / _idle(kernel, first, cores)
        return Cut(first, 0, 1, 1, units, rounds=(many // 2, many), whole_rounds=rounds)
    if kernel.by_values:
        affordable = min(affordable, TABLE)
    if math.prod(grid) <= affordable or not grid:
        return Cut(grid, 0, grid[0] if grid else 1, grid[0] if grid else 1, 1)
    read = jax_pallas.axes_read(kernel.call.equation)
    # From the dimension to keep whole first to the one to cut first.
    order = sorted(range(len(grid)), key=lambda a: (a not in read, -a))
    sizes = [1] * len(grid)
    steps = 1
    for place, axis in enumerate(order):
        # What the kernel reads is worth some more: twice its steps are the longer grid then.
        if steps * grid[axis] <= (affordable if axis in read else affordable / 2):
            sizes[axis] = grid[axis]
            steps *= grid[axis]
            continue
        # Cores share what is parallel: only whole rounds of all cores are alike.
        long = max(2 * cores, min(grid[axis], affordable // steps) // (2 * cores) * 2 * cores)
        short = long // 2
        units = grid[axis] * math.prod(grid[a] for a in order[place + 1 :])
        uneven = any(a in read for a in order[place:])
        cut = Cut(tuple(sizes), axis, short, long, units, uneven)
        return replace(cut, units=units / _idle(kernel, cut.grid(short), cores))
    return Cut(grid, 0, grid[0], grid[0], 1)


def shared(call: Any, grid: tuple[int, ...]) -> bool:
    """Whether the cores of a chip share a grid: a dimension of some length is parallel."""
    return any(n > 1 and "parallel" in along for n, along in zip(grid, call.semantics))


def _idle(kernel: KernelProfile, grid: tuple[int, ...], cores: int) -> int:
    """How many cores run the whole grid for each one that runs a cut one."""
    if cores > 1 and shared(kernel.call, kernel.call.grid) and not shared(kernel.call, grid):
        return cores
    return 1


def _alone(
    call: Any, grid: tuple[int, ...], chip: str, side_by_side: bool = False, share: float = 1.0
) -> ExportedProgram:
    """The program that is this one pallas_call, on another grid."""
    from kernels.machines.pallas.reduced import alone

    function, shapes = alone(call, grid, side_by_side=side_by_side, share=share)
    name = f"{call.name} on a grid of {'×'.join(map(str, grid))}"
    program = export(function, *shapes, chip=chip, name=name)
    # In another layout, XLA would first copy the arguments, and the profile simulate the copies.
    return replace(program, row_major=True)
