"""Estimate programs, several at a time: their compilations go to the same children.

An estimate needs one compilation after another, and what it asks for next depends on the last
answer; a compilation takes seconds, and the children wait for more of them. So each estimate is a
generator that yields a Request (programs, and what the compiler shall write of them) and is sent
the list of results. `estimate_all` runs all generators to their next request, hands the requests of
one purpose to the pool together, and sends each generator its answers, until all have returned:

    _steps(A)   yields Request([A], schedule) ──┐
    _steps(B)   yields Request([B], schedule) ──┴─ pool.compile_all([A, B]) ── send, send
    profile.py  yields Request([short A, long A], profile), B's as well ── the same again
    cost.py     of each: operations, their sum ── return Estimate
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Sequence
from pathlib import Path
from typing import Any

from kernels.machines.compat import jax_pallas, libtpu
from kernels.machines.exporting import ExportedProgram
from kernels.machines.pallas.calls import off_limits
from kernels.machines.tpu import pool
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate.cost import Cost
from kernels.machines.tpu.estimate.profile import BUDGET, Profile, Request, match, schedule_kernels
from kernels.machines.tpu.estimate.rates import LINKS, rates_of, use
from kernels.machines.tpu.estimate.result import Estimate
from kernels.machines.tpu.export import export
from kernels.machines.tpu.pool import TpuProgram

# Those of this process that were asked for last, the oldest first; each holds HLO and schedules.
_memo: OrderedDict[Hashable, Estimate] = OrderedDict()
MEMORY = 32  # estimates


def estimate(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    timeout: float = pool.TIMEOUT,
    budget: float = BUDGET,
    large: bool = False,
    rates: str | Path | None = None,
    **options: Any,
) -> Estimate:
    """Estimate the run time of `function(*args, **options)` on `chip`, kernels and XLA's operations
    alike.

    A program that was estimated before in this process, and is remembered, is not again.

    Args:
        function: kernels inside are taken as compiled, whatever they do on this machine.
        args: arrays or jax.ShapeDtypeStruct. An array of integers is its value where the work
            depends on it: the size of a dynamic grid, a table of pages, the rows of each group, the
            end of a loop. What depends on data that are not given takes a range of seconds, and
            Estimate.on_data says which.
        chip: one of CHIPS.
        timeout: seconds for a compilation.
        budget: seconds that the static profile may simulate; beyond it, a kernel's grid is cut and
            extrapolated, and XLA's own cycles are taken.
        large: of a program of hundreds of operations, write down the schedule of its kernels
            alone; the whole one would fill the disk.
        rates: a file of rates that a reader fitted for this chip and compiler, in place of the
            book's.
        options: any other keyword argument is the function's own, as in compile.

    Raises:
        TpuCompileError: as compile does, and for what has no model here: a kernel on the
            SparseCore, one that reaches other chips by links of which nothing is published, XLA's
            own collectives.
        ValueError, MissingPackage: as compile does; EndlessLoop, which is a ValueError, for a
            kernel with a loop that its own scalars never end.
    """
    installed = pool.libtpu_version()
    program = export(function, *args, chip=chip, **options)
    with use(rates, installed, [program.chip]):
        return estimate_program(program, timeout=timeout, budget=budget, large=large)


def estimate_program(program: ExportedProgram, **options: Any) -> Estimate:
    """Estimate one exported program. Raises TpuCompileError.

    Args:
        program: as kernels.tpu.export makes it.
        options: as of estimate_all.
    """
    [answer] = estimate_all([program], **options)
    if isinstance(answer, TpuCompileError):
        raise answer
    return answer


def estimate_all(
    programs: Sequence[ExportedProgram],
    *,
    timeout: float = pool.TIMEOUT,
    budget: float = BUDGET,
    large: bool = False,
    progress: bool = True,
    profile: bool = True,
) -> list[Estimate | TpuCompileError]:
    """Estimate several programs, their compilations side by side.

    Args:
        programs: as kernels.tpu.export makes them.
        timeout, budget, large: as of estimate.
        progress: whether to show a bar in a terminal.
        profile: whether to ask the static profile; without, schedule and bytes tell of kernels.

    Returns:
        In order, each program's estimate or why the compiler refused it.
    """
    estimates: dict[int, Estimate | TpuCompileError] = {}
    waiting: dict[int, tuple[Generator[Request, Any, Any], Request]] = {}

    def key(program: ExportedProgram) -> Hashable:
        return program.fingerprint, program.chip, rates_of(program.chip), budget, large, profile

    def advance(index: int, generator: Generator[Request, Any, Any], answer: Any) -> None:
        try:
            waiting[index] = (generator, generator.send(answer))
        except StopIteration as end:
            estimates[index] = end.value
            _memo[key(programs[index])] = end.value
            while len(_memo) > MEMORY:
                _memo.popitem(last=False)
        except TpuCompileError as error:
            estimates[index] = error

    for index, program in enumerate(programs):
        if key(program) in _memo:
            _memo.move_to_end(key(program))
            estimates[index] = _memo[key(program)]
        else:
            advance(index, _steps(program, timeout, budget, large, profile), None)
    while waiting:
        # Requests for the same purpose go to one pool; the same program is compiled once.
        purposes = next(iter(waiting.values()))[1].purposes
        served = {i: w for i, w in waiting.items() if w[1].purposes == purposes}
        same = lambda program: (program.fingerprint, program.chip, program.row_major)
        distinct: dict[Any, ExportedProgram] = {}
        for _, request in served.values():
            for program in request.programs:
                distinct.setdefault(same(program), program)
        seconds = max(request.timeout for _, request in served.values())
        compiled = pool.compile_all(
            list(distinct.values()), purposes=purposes, timeout=seconds, progress=progress
        )
        results = dict(zip(distinct, compiled, strict=True))
        for index, (generator, request) in served.items():
            del waiting[index]
            advance(index, generator, [results[same(program)] for program in request.programs])
    return [estimates[i] for i in range(len(programs))]


def _steps(
    program: ExportedProgram, timeout: float, budget: float, large: bool, profile: bool
) -> Generator[Request, list[Any], Estimate]:
    """Ask for one compilation after another, and return the estimate."""
    notes: list[str] = []

    if reason := off_limits(program.jaxpr):
        raise TpuCompileError("unsupported", f"no estimate of {program.name}: {reason}")
    for call in program.calls:
        _ = call.walk  # raises for a loop without end, before anything is compiled
        if jax_pallas.reaches_other_chips(call.equation):
            # In the profile a copy to another chip takes no time; alone it is no program at all.
            profile = large = False
            if program.chip not in LINKS:
                raise TpuCompileError(
                    "unsupported",
                    f"no estimate of {program.name}: its kernel {call.name} reaches other chips, "
                    f"and nobody published what the links of a {program.chip} carry",
                )

    def note(words: str) -> None:
        if words not in notes:
            notes.append(words)

    def lost(purpose: str) -> bool:
        """Whether this libtpu cannot serve a purpose any more; then a note says so."""
        flag = libtpu.lost(purpose, pool.dropped())
        if flag:
            note(f"no {purpose}: libtpu {pool.libtpu_version()} has no flag {flag}")
        return bool(flag)

    [compiled] = yield Request([program], () if large else ("schedule",), timeout)
    lost("schedule")
    if isinstance(compiled, TpuCompileError) and compiled.kind in ("crashed", "disk"):
        # The compiler may have died of writing its schedule down.
        note(f"no schedule: {compiled.message}")
        [compiled] = yield Request([program], (), timeout)
    if not isinstance(compiled, TpuProgram):
        raise compiled
    if exchanges := compiled.module.collectives:
        raise TpuCompileError(
            "unsupported",
            f"no estimate of {program.name}: chips exchange data in {exchanges[0].opcode}, and the "
            "links between them have no model",
        )
    kernels = match(program, compiled)
    if large and not lost("schedule"):
        yield from schedule_kernels(list(kernels.values()), program.chip, timeout)
    profiled: dict[str, int] = {}
    if profile and not libtpu.profiles(program.chip, pool.libtpu_version()):
        note(f"no static profile: that of libtpu {pool.libtpu_version()} knows no {program.chip}")
    elif profile and not lost("profile"):
        profiled = yield from Profile(program, compiled, kernels, timeout, budget, note).run()
        lost("profile")
    groups, open_groups = program.decisive("ragged_dot")
    unknown = {"ragged_dot": open_groups, "while": program.decisive("while")[1]}
    lengths = [sizes for [sizes] in groups]
    cost = Cost(compiled, kernels, profiled, lengths, program.rounds, unknown)
    return cost.total(program, cost.operations(), notes)
