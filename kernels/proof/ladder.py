"""The rungs: the one way of proving an implementation, always against the float64 reference.

1. interpret: the kernel's arithmetic, program after program, on the CPU
2. simulate: the same on a simulated machine with the real one's memories, limits and cores
3. compile: lowered and compiled for the real machine, as far as its tools are here
4. measure: on the machine itself

How a rung is climbed, the backend knows in which an implementation is written; what is right, the
operator's contract. A rung takes an implementation as a function, so that the bug gallery and a
reader's own kernel climb exactly as the catalog does.
"""

from __future__ import annotations

import copy
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.machines import optional
from kernels.machines.checks import brief, one_of
from kernels.proof import judge
from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import Backend, Job, Refused, Skipped
from kernels.proof.contract import RUNGS, Contract, Implementation, Operator, positions
from kernels.proof.workload import Workload

__all__ = [
    "FAILED",
    "PARTIAL",
    "PASSED",
    "RUNGS",
    "SKIPPED",
    "Check",
    "Refused",
    "Skipped",
    "Subject",
    "climb",
    "programs",
    "verify",
    "workloads",
    "worst",
]

# From the best to the worst. A rung that did part of its work did not fail, and did not pass.
PASSED, PARTIAL, SKIPPED, FAILED = "passed", "partial", "skipped", "failed"
STATUSES = (PASSED, PARTIAL, SKIPPED, FAILED)


def worst(statuses: Iterable[str]) -> str:
    """The worst of them; "passed" where there are none."""
    return max(statuses, key=STATUSES.index, default=PASSED)


@dataclass(frozen=True)
class Check:
    """What one rung found about one implementation on one workload.

    Args:
        operator, implementation, rung, workload: what was tried, by name.
        status: "passed", "partial" (nothing is wrong, but part of the rung was not climbed),
            "skipped" or "failed".
        message: why it is not "passed", in a line.
        used: the share of the error budget that the worst element took; None where nothing ran.
        seconds: of wall time.
        output, place: of a wrong result: its name, and the index of the worst element.
    """

    operator: str
    implementation: str
    rung: str
    workload: str
    status: str
    message: str = ""
    used: float | None = None
    seconds: float = field(default=0.0, compare=False)
    output: str = ""
    place: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Subject:
    """An implementation to prove: `function(*arguments, interpret=…, **options)`.

    Args:
        contract: what it has to fulfil: an operator, or an exercise.
        name: of the implementation.
        backend: what it is written in.
        function: takes `interpret=` where the backend's functions do.
        tunable: whether it also takes a workload's tuning, such as block sizes.
        differentiable: whether its gradients are proven too.
    """

    contract: Contract
    name: str
    backend: Backend
    function: Callable[..., Any]
    tunable: bool = False
    differentiable: bool = False

    @classmethod
    def of(cls, operator: Operator, implementation: Implementation) -> Subject:
        """A catalog entry, called as a reader would call it: through the public function."""
        function = operator.whole(implementation.name)
        return cls(
            operator,
            implementation.name,
            implementation.backend,
            function,
            tunable=implementation.tunable,
            differentiable=bool(operator.differentiable) and implementation.differentiable,
        )

    def options(self, workload: Workload) -> dict[str, Any]:
        """The keyword arguments with which `function` solves `workload`."""
        return {**workload.options, **(workload.tuning if self.tunable else {})}

    def job(self, workload: Workload, seed: int = 0, gradient: bool = True) -> Job:
        """The call that solves a workload, with gradients where they are asked for and defined."""
        arguments = self.contract.workloads.arguments(workload, seed)
        pulls = gradient and self.differentiable
        wanted: tuple[int, ...] = ()
        if pulls and judge.has_gradient(self.contract, workload, arguments):
            wanted = positions(self.contract, self.contract.differentiable)
        return Job(
            self.function,
            arguments,
            self.options(workload),
            wanted,
            positions(self.contract, self.contract.static),
            self.name,
        )


def workloads(
    operator: Operator, implementation: Implementation, draws: int = 4, seed: int = 0
) -> list[Workload]:
    """The operator's named workloads, and random draws: those that an implementation takes."""
    rng = np.random.default_rng(seed)
    endless = iter(lambda: operator.workloads.draw(rng), None)
    drawn = itertools.islice(filter(implementation.accepts, endless), draws)
    return [*filter(implementation.accepts, operator.workloads.named), *drawn]


def programs(
    subject: Subject, workload: Workload, seed: int = 0
) -> list[tuple[Callable[..., Any], list[Any]]]:
    """What is compiled of a workload: the call, and the call with its gradients.

    Returns:
        Each as a function, and the arrays that it takes. The second takes the cotangents first, and
        gives the results before the gradients.
    """
    more = {"interpret": False} if subject.backend.takes_interpret else {}
    return jax_arrays.programs(subject.job(workload, seed), **more)


def climb(
    subject: Subject,
    rung: str,
    problems: Sequence[Workload],
    seed: int = 0,
    chips: Sequence[str] = (),
) -> Iterator[Check]:
    """Prove an implementation at one rung.

    Args:
        subject, rung, problems: what is proven, where, and on what.
        seed: of the arguments' values.
        chips: for which the rung compile compiles; () for all that the backend knows.

    Returns:
        One Check for each problem, as it is found. Whatever the implementation raises is in it.

    Raises:
        ValueError: for an unknown rung or chip.
    """
    one_of("rung", rung, RUNGS)
    backend = copy.copy(subject.backend)
    for chip in chips:
        one_of("chips", chip, backend.compiled_for)
    backend.compiled_for = tuple(chips) or backend.compiled_for
    if rung == "compile":  # all problems at once, which a backend may compile side by side
        jobs = [functools.partial(subject.job, workload, seed) for workload in problems]
        for workload, job in zip(problems, backend.compile(jobs), strict=True):
            yield _check(subject, rung, workload, job.error, job.note, None, job.seconds)
        return
    prove = {"interpret": _interpret, "simulate": _simulate, "measure": _measure}[rung]
    for workload in problems:
        start, error, used, note = time.perf_counter(), None, None, ""
        try:
            used, note = prove(subject, workload, seed)
        except Exception as raised:
            error = raised
        yield _check(subject, rung, workload, error, note, used, time.perf_counter() - start)


def verify(
    operator: Operator,
    implementation: Implementation,
    rungs: Sequence[str] = RUNGS,
    draws: int = 4,
    seed: int = 0,
) -> Iterator[Check]:
    """Prove a catalog entry on its workloads.

    Args:
        operator, implementation: of the catalog.
        rungs: of these, those that the implementation claims are climbed.
        draws: random workloads beside the named ones.
        seed: of these, and of the arguments' values.
    """
    subject = Subject.of(operator, implementation)
    problems = workloads(operator, implementation, draws, seed)
    for rung in rungs:
        if rung in implementation.rungs:
            yield from climb(subject, rung, problems, seed)


def _interpret(subject: Subject, workload: Workload, seed: int) -> tuple[float, str]:
    job = subject.job(workload, seed)
    used = _judge(subject, workload, seed, subject.backend.interpret(job))
    if job.wanted:
        pulled = judge.gradients(subject.contract, subject.backend, workload, seed, job)
        used = max(used, pulled)
    return used, ""


def _simulate(subject: Subject, workload: Workload, seed: int) -> tuple[float, str]:
    if reason := subject.backend.why_not("simulate"):
        raise Skipped(reason)
    job = subject.job(workload, seed, gradient=False)
    first, used = None, 0.0
    for order in range(subject.backend.orders):
        run = subject.backend.simulate(job, seed + order)
        same = first is not None and judge.same(first, run.result)
        if not same:
            used = max(used, _judge(subject, workload, seed, run.result))
        if not same and first is not None:
            raise Refused("the result depends on the order in which parallel programs run")
        first = run.result
        if run.alone:
            break  # there is no other order
    return used, run.note


def _measure(subject: Subject, workload: Workload, seed: int) -> tuple[float, str]:
    job = subject.job(workload, seed, gradient=False)
    return _judge(subject, workload, seed, subject.backend.measure(job)), ""


def _judge(subject: Subject, workload: Workload, seed: int, result: Any) -> float:
    return judge.results(subject.contract, subject.name, workload, seed, result)


def _check(
    subject: Subject,
    rung: str,
    workload: Workload,
    error: Exception | None,
    note: str,
    used: float | None,
    seconds: float,
) -> Check:
    status, message = (PARTIAL, note) if note else (PASSED, "")
    if isinstance(error, (Skipped, optional.MissingPackage)):
        status, message = SKIPPED, str(error)
    elif isinstance(error, Refused):
        status, message = FAILED, str(error)
    elif error is not None:  # whatever a wrong kernel raises is a finding, not our end
        status, message = FAILED, brief(error)
    return Check(
        subject.contract.name,
        subject.name,
        rung,
        str(workload),
        status,
        message,
        used,
        seconds,
        getattr(error, "output", ""),
        getattr(error, "place", None),
    )
