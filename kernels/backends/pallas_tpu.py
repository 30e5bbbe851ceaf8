"""Pallas for a TPU: interpreted and simulated by JAX, compiled by libtpu without a TPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kernels import optional
from kernels.backends import jax_arrays
from kernels.backends.base import Compiled, Job, Refused, Simulated
from kernels.backends.xla import OnTpu
from kernels.checks import brief

CHIPS = ("v5e", "v6e")  # that every kernel is compiled for
COMPILE_SECONDS = 120.0  # that a compilation may take


def check_index_maps(calls: Sequence[Any]) -> None:
    """Refuse a program without a kernel, and index maps that leave their arrays: interpreters and
    compilers clamp them."""
    if not calls:
        raise Refused("no kernel reached the program")
    for each in calls:
        if problems := each.problems():
            raise Refused(problems[0])


class _PallasTpu(OnTpu):
    name = "Pallas TPU"
    claims = ("interpret", "simulate", "compile")
    takes_interpret = True

    def simulate(self, job: Job, order: int) -> Simulated:
        """On two cores, with NaN in memory that nobody wrote, watched for races."""
        from kernels.tpu.simulator import SimulationError, simulate

        try:
            run = simulate(job.function, *job.arguments, seed=order, **job.options)
        except SimulationError as error:
            raise Refused(str(error)) from error
        if run.races:
            raise Refused(f"race: {run.races[0]}")
        # What is parallel is spread over the cores; a core alone keeps to the order.
        return Simulated(run.result, alone=len(set(run.core)) < 2)

    def compile(self, jobs: Iterable[Callable[[], Job]]) -> Iterator[Compiled]:
        """Lower every job for every chip, and compile it where libtpu is installed.

        All programs go to one pool of compiler processes, so that libtpu starts once in each.
        """
        from kernels.tpu.diagnose import TpuCompileError
        from kernels.tpu.export import Program, export
        from kernels.tpu.pool import compile_each

        owners: list[int] = []  # program → its job
        left: list[int] = []  # by job: what its answer still waits for
        errors: list[Exception | None] = []
        seconds: list[float] = []

        def exported() -> Iterator[Program]:
            for place, make in enumerate(jobs):
                start = time.perf_counter()
                left.append(1)
                errors.append(None)
                made = []
                try:
                    job = make()
                    for function, arrays in jax_arrays.programs(job, interpret=False):
                        for chip in CHIPS:
                            made.append(export(function, *arrays, chip=chip, name=job.name))
                            check_index_maps(made[-1].calls)
                except Exception as error:  # a wrong kernel's words are the finding
                    errors[place] = error
                    made = []
                seconds.append(time.perf_counter() - start)
                left[place] = len(made)
                for program in made:
                    owners.append(place)
                    yield program

        if not optional.available("libtpu"):
            list(exported())
            note = "lowered only: the compiler, libtpu, is not installed"
            for error, took in zip(errors, seconds, strict=True):
                yield Compiled(error, "" if error else note, took)
            return
        done = 0
        results = compile_each(exported(), timeout=COMPILE_SECONDS, progress=False)
        for index, result in results:
            place = owners[index]
            left[place] -= 1
            seconds[place] += getattr(result, "seconds", None) or 0.0
            if isinstance(result, TpuCompileError) and not errors[place]:
                errors[place] = Refused(brief(result))
            while done < len(seconds) and not left[done]:
                yield Compiled(errors[done], "", seconds[done])
                done += 1
        for place in range(done, len(seconds)):
            yield Compiled(errors[place], "", seconds[place])

    def why_not(self, rung: str, device: str = "cpu") -> str:
        if rung != "measure":
            return ""
        import jax

        if (backend := jax.default_backend()) == "tpu":
            return ""
        return f"needs a TPU; JAX's backend here is {backend}, and interpreted it tells nothing"


PALLAS_TPU = _PallasTpu()
