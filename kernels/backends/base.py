"""What every way of writing kernels can be asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels import optional


class Refused(Exception):
    """A rung refuses the implementation; the message says why."""


class Skipped(Exception):
    """A rung cannot be climbed here; the message says what is missing."""


@dataclass(frozen=True)
class Job:
    """One call to prove, to compile or to time: `function(*arguments, **options)`.

    Args:
        function: takes `interpret=` besides, where the backend's functions do.
        arguments: NumPy arrays and numbers.
        options: keyword arguments.
        wanted: positions of the arguments whose gradients are wanted; none for no gradients.
        static: positions of the arrays whose values decide what is compiled.
        name: in words, for messages.
    """

    function: Callable[..., Any]
    arguments: Sequence[Any]
    options: dict[str, Any] = field(default_factory=dict)
    wanted: tuple[int, ...] = ()
    static: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Simulated:
    """result: as the function returns it. alone: whether there is no other order to try."""

    result: Any
    alone: bool = False


@dataclass(frozen=True)
class Compiled:
    """What became of a job. error: why it was refused or skipped, or None. note: what was not done
    of the way to the machine; empty where it went all the way. seconds: wall time."""

    error: Exception | None
    note: str
    seconds: float


class Backend:
    """One way of writing kernels. Subclasses say what is different.

    name: in words, such as "Pallas TPU". claims: the rungs that it proves without the device, which
    an implementation claims if it says nothing else. takes_interpret: whether its functions take
    `interpret=`. tensors: whether they take PyTorch's tensors. chips: what `estimate` knows, the
    usual one first; empty where nothing is estimated. needs: packages or tools of which one has to
    be there before anything runs.
    """

    name: str = ""
    claims: tuple[str, ...] = ("interpret",)
    takes_interpret: bool = False
    tensors: bool = False
    chips: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def adopt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A reader's function, in the form in which this backend runs it."""
        return function

    def interpret(self, job: Job) -> Any:
        """The kernel's arithmetic on the CPU, program after program."""
        return job.function(*job.arguments, **job.options, **self._interpreting(True))

    def simulate(self, job: Job, order: int) -> Simulated:
        """On a simulated machine, in one of the orders that it may take.

        Raises Refused where the machine would not run it so, Skipped where there is no simulator.
        """
        raise Skipped(self.why_not("simulate"))

    def compile(self, jobs: Iterable[Callable[[], Job]]) -> Iterator[Compiled]:
        """Compile jobs for the machine, as far as its tools are here; yields as many answers, in
        their order. A job is made when its turn comes, and may raise."""
        for make in jobs:
            start, error, note = time.perf_counter(), None, ""
            try:
                if reason := self.why_not("compile"):
                    raise Skipped(reason)
                note = self.compile_one(make())
            except Exception as raised:  # a wrong kernel's words are the finding
                error = raised
            yield Compiled(error, note, time.perf_counter() - start)

    def compile_one(self, job: Job) -> str:
        """Compile one job; returns what was left of the way to the machine, or nothing."""
        raise Skipped(self.why_not("compile"))

    def measure(self, job: Job, device: str | None = None) -> Any:
        """The result on the machine itself. device: "cpu" or "cuda", where there is a choice;
        None is the best there is. Raises Skipped where the machine is missing."""
        if reason := self.why_not("measure", device or "cpu"):
            raise Skipped(reason)
        return job.function(*job.arguments, **job.options, **self._interpreting(False))

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        """The gradients by the wanted arguments, for one cotangent of each output."""
        from kernels.backends import jax_arrays

        return jax_arrays.pull(job, cotangents, **self._interpreting(True))

    def prepare(self, job: Job, device: str = "cpu", out: bool = False) -> Callable[[], Any]:
        """A call without arguments that does the job, or its gradients where they are wanted, with
        the operands on the device already. out: whether the function takes an `out` to write to."""
        from kernels.backends import jax_arrays

        return jax_arrays.prepare(job)

    def why_not(self, rung: str, device: str = "cpu") -> str:
        """Why there is no such rung, or why it cannot be measured on `device` ("cpu" or "cuda")
        here; empty where there is nothing in the way."""
        if rung == "simulate":
            return f"there is no simulator for {self.name}"
        if rung == "compile":
            return f"{self.name} compiles while it runs: there is nothing to look at"
        return ""

    def chip(self, device: str = "cpu") -> str:
        """What it runs on here, as records name it."""
        from kernels.backends import machines

        return machines.processor(device if self.tensors else "cpu")

    @property
    def remark(self) -> str:
        """What else a reading of the clock holds, for its record."""
        return ""

    @property
    def versions(self) -> str:
        """Of what the estimates depend on, for their records; "" for JAX's and its compiler's."""
        return ""

    def estimate(
        self, jobs: Sequence[tuple[Job, str]], *, timeout: float, budget: float
    ) -> list[Any]:
        """For each (job, chip) what it would take there, or the compiler's error. timeout: seconds
        for a compilation. budget: seconds of simulation for each."""
        raise NotImplementedError(f"nothing is estimated of {self.name}")

    def missing(self) -> str:
        """The package or the tool that is needed and not installed; empty where all is there."""
        if not self.needs or any(map(optional.available, self.needs)):
            return ""
        return self.needs[0]

    def _interpreting(self, value: Any) -> dict[str, Any]:
        return {"interpret": value} if self.takes_interpret else {}
