"""Pallas for a TPU: interpreted and simulated by JAX, compiled by libtpu without a TPU."""

import contextlib
import dataclasses
import functools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kernels.machines import optional
from kernels.machines.checks import brief, located, user_file
from kernels.machines.compat import jax_pallas, jax_products, jaxprs
from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import CompiledJob, Job, Refused, Simulated, Skipped
from kernels.proof.backends.xla import OnTpu

FEW = ("v5e", "v6e")  # that what a lesson or a reader brings is compiled for
CHIPS = (*FEW, "v7x")  # that every kernel of the catalog is compiled for
COMPILE_SECONDS = 120.0  # that a compilation may take
# Functions at which JAX's plain interpreter failed.
_unknown: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()


def check_index_maps(calls: Sequence[Any]) -> None:
    """Refuse a program without a kernel, and index maps that leave their arrays: interpreters and
    compilers clamp them."""
    if not calls:
        raise Refused("no kernel reached the program")
    for call in calls:
        if problems := call.problems():
            raise Refused(problems[0])


class _PallasTpu(OnTpu):
    """The catalog's and the lessons' kernels.

    Args:
        chips: that they are compiled for.
    """

    name = "Pallas TPU"
    claims: tuple[str, ...] = ("interpret", "simulate", "compile")
    takes_interpret = True

    def __init__(self, chips: Sequence[str] = CHIPS) -> None:
        self.compiled_for = tuple(chips)

    def interpret(self, job: Job) -> Any:
        with jax_products.multiplying(jax_products.TPU):
            return super().interpret(job)

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        with jax_products.multiplying(jax_products.TPU):
            return super().pull(job, cotangents)

    def simulate(self, job: Job, order: int, watched: bool = True) -> Simulated:
        """On two cores, with NaN in memory that nobody wrote, watched for races."""
        from kernels.machines.tpu.simulator import SimulationError, simulate

        function: Callable[..., Any] = functools.partial(job.function, **job.options)
        arguments = job.arguments
        if self.takes_interpret:  # or else nothing says that it can be traced whole
            function, arguments = jax_arrays.whole(job, **self._interpreting(False))
        try:
            run = simulate(function, *arguments, seed=order, watched=watched)
        except SimulationError as error:
            raise Refused(str(error)) from error
        if races := self._races(job, run.races):
            raise Refused(f"race: {races[0]}")
        # What is parallel is spread over the cores; a core alone keeps to the order.
        note = "" if watched else "simulated without a watch for races, which JAX's fails at"
        return Simulated(run.result, alone=len(set(run.core)) < 2, note=note)

    def compile(self, jobs: Iterable[Callable[[], Job]]) -> Iterator[CompiledJob]:
        """Lower every job for every chip, and compile it where libtpu is installed.

        All programs go to one pool of compiler processes, so that libtpu starts once in each.
        """
        from kernels.machines.exporting import ExportedProgram
        from kernels.machines.tpu.diagnose import TpuCompileError
        from kernels.machines.tpu.export import export
        from kernels.machines.tpu.pool import compile_each

        # program → its job, and its chip where it is not the only one
        owners: list[tuple[int, str]] = []
        left: list[int] = []  # by job: what its answer still waits for
        errors: list[Exception | None] = []
        seconds: list[float] = []
        refused: dict[int, int] = {}  # job → the program whose refusal is told

        def exported() -> Iterator[ExportedProgram]:
            for place, make in enumerate(jobs):
                start = time.perf_counter()
                left.append(1)
                errors.append(None)
                programs = []
                try:
                    job = make()
                    for function, arrays in jax_arrays.programs(job, **self._interpreting(False)):
                        for chip in self.compiled_for:
                            with self._as_compiled():
                                cut = self.cut(arrays, **job.options)
                                program = export(function, *arrays, chip=chip, name=job.name, **cut)
                            self._look_at(program)
                            programs.append(program)
                except Exception as error:  # a wrong kernel's words are the finding
                    errors[place] = error
                    programs = []
                seconds.append(time.perf_counter() - start)
                left[place] = len(programs)
                for program in programs:
                    several = len(self.compiled_for) > 1
                    owners.append((place, f", for a {program.chip}" if several else ""))
                    yield program

        if not optional.available("libtpu"):
            list(exported())
            note = "lowered only: the compiler, libtpu, is not installed"
            for error, spent in zip(errors, seconds, strict=True):
                yield CompiledJob(error, "" if error else note, spent)
            return
        done = 0
        results = compile_each(exported(), timeout=COMPILE_SECONDS, progress=False)
        for index, result in results:
            place, chip = owners[index]
            left[place] -= 1
            seconds[place] += getattr(result, "seconds", None) or 0.0
            # Of several chips the first one's words, whichever answered first.
            first = not errors[place] or index < refused.get(place, 0)
            if isinstance(result, TpuCompileError) and first:
                errors[place], refused[place] = Refused(brief(result) + chip), index
            while done < len(seconds) and not left[done]:
                yield CompiledJob(errors[done], "", seconds[done])
                done += 1
        for place in range(done, len(seconds)):
            yield CompiledJob(errors[place], "", seconds[place])

    def _look_at(self, program: Any) -> None:
        """Refuse what the compiler would take, and what is wrong."""
        check_index_maps(program.calls)

    def _races(self, job: Job, races: Sequence[str]) -> Sequence[str]:
        """Those races that matter."""
        return races

    def _as_compiled(self) -> AbstractContextManager[Any]:
        """Within it a function is traced as it is compiled."""
        return contextlib.nullcontext()

    def _no_machine(self, device: str) -> str:
        import jax

        if (backend := jax.default_backend()) == "tpu":
            return ""
        return f"needs a TPU; JAX's backend here is {backend}, and interpreted it tells nothing"


class Brought(_PallasTpu):
    """A kernel that somebody brought: nothing is asked of its signature.

    Whether it is interpreted, simulated or compiled is decided from outside, whatever it says.
    """

    takes_interpret = False

    @property
    def seen_as(self) -> tuple[str, ...]:
        """What the interpreters pretend to be: the first chip, where it is a TPU."""
        return self.compiled_for[:1]

    def interpret(self, job: Job) -> Any:
        """By JAX's plain interpreter; what that has not learned, by the simulated TPU.

        That one copies by hand, waits for semaphores and knows emit_pipeline.
        """
        return self._interpreted(lambda: super(Brought, self).interpret(job), job)

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        return self._interpreted(lambda: super(Brought, self).pull(job, cotangents), job)

    def _interpreted(self, call: Callable[[], Any], job: Job) -> Any:
        import jax
        from jax.experimental.pallas import tpu as pltpu

        from kernels.machines.compat import jax_interpreter

        with jax_interpreter.as_a_chip(*self.seen_as):
            if job.function not in _unknown:
                try:
                    with jax_interpreter.forced(True):
                        return jax.block_until_ready(call())
                except Exception:  # of the kernel, or of the interpreter: the other one tells
                    _unknown.add(job.function)
            try:
                with jax_interpreter.forced(jax_interpreter.parameters()):
                    return jax.block_until_ready(call())
            except Exception as error:
                pltpu.reset_tpu_interpret_mode_state()
                if jax_interpreter.is_its_own(error):
                    words = jax_interpreter.last_words(error) or brief(error)
                    raise Skipped(f"JAX's interpreters do not know all of it: {words}") from None
                words = jax_interpreter.last_words(error)
                raise Refused(words or located(error)) from error

    def simulate(self, job: Job, order: int, watched: bool = True) -> Simulated:
        from kernels.machines.compat import jax_interpreter

        try:
            with jax_interpreter.as_a_chip(*self.seen_as):
                return super().simulate(job, order, watched)
        except Exception as error:
            refused = isinstance(error, Refused)
            cause = error.__cause__ and error.__cause__.__cause__ if refused else error
            if not jax_interpreter.is_its_own(cause):
                raise error if refused else Refused(located(error)) from error
            if watched:
                return self.simulate(job, order, watched=False)
            words = str(error) if refused else brief(error)
            what = f"JAX's simulation of a TPU does not know all of it: {words}"
            raise Skipped(what) from None

    def _look_at(self, program: Any) -> None:
        # What pl.kernel makes has no grid and no index maps: there is nothing to look at.
        own = any(map(jax_pallas.is_kernel, jax_pallas.outside_kernels(program.jaxpr)))
        if program.calls or not own:
            check_index_maps(program.calls)

    def _races(self, job: Job, races: Sequence[str]) -> Sequence[str]:
        """Without those on a result that the program drops: some kernels keep scratch in one, and
        every core writes its own over the others'."""
        if not races:
            return races
        import numpy as np

        from kernels.machines.pallas.calls import calls_in

        function, arrays = jax_arrays.programs(dataclasses.replace(job, wanted=()))[0]
        with self._as_compiled():
            jaxpr = jaxprs.trace(function, *arrays)
        idle = jaxprs.unused(jaxpr)
        blocks: dict[bool, dict[str, str]] = {True: {}, False: {}}
        for call in calls_in(jaxpr):
            line = next((f for f in jaxprs.frames(call.equation) if user_file(f[0])), ("", 0))
            place = f" ({Path(line[0]).name}:{line[1]})" if line[1] else ""
            results = jaxprs.outputs(call.equation)
            for operand, result in zip(call.outputs, results, strict=True):
                for start in np.unique(operand.starts, axis=0):
                    ends = np.minimum(start + operand.block, operand.shape)
                    cut = ", ".join(f"{a}:{b}" for a, b in zip(start, ends, strict=True))
                    words = f", writing back {operand.name} of {call.name}{place}"
                    blocks[result in idle].setdefault(f"a write of hbm[{cut}]", words)
        kept = []
        for race in races:
            accesses = race.split(", unordered with ")
            written = [access.split(" by ")[0] for access in accesses]
            if all(w in blocks[True] and w not in blocks[False] for w in written):
                continue
            placed = [
                a if "(" in a else a + blocks[False].get(w, "") for a, w in zip(accesses, written)
            ]
            kept.append("; unordered with ".join(placed))
        return kept

    def _as_compiled(self) -> AbstractContextManager[Any]:
        return jax_pallas.compiled()


PALLAS_TPU = _PallasTpu()
IN_LESSONS = _PallasTpu(FEW)
