"""What every way of writing kernels can be asked."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kernels.machines import optional
from kernels.proof.backends import jax_arrays
from kernels.proof.backends.job import CompiledJob, Job, Refused, Simulated, Skipped
from kernels.proof.backends.processor import processor

__all__ = ["Backend", "CompiledJob", "Job", "Refused", "Simulated", "Skipped"]


class Backend:
    """One way of writing kernels. Subclasses say what is different.

    Attributes:
        name: in words, such as "Pallas TPU".
        claims: the rungs that it proves without the device, which an implementation claims if it
            says nothing else.
        takes_interpret: whether its functions take `interpret=`.
        tensors: whether they take PyTorch's tensors.
        orders: in how many the simulator runs what is parallel, whose seeds count from 0.
        compiled_for: the chips that the rung compile takes, the usual one first.
        chips: what `estimate` knows, the usual one first; empty where nothing is estimated.
        estimates_ranges: whether what it estimates is a range, which is made where it is asked for.
        is_library: whether who writes in it calls a library or leaves all to a compiler, and so
            writes no kernel.
        needs: packages or tools of which one has to be there before anything runs.
        elsewhere: why it is measured nowhere here; empty where that depends on the machine.
        remark: what else a reading of the clock holds, for its record.
        versions: of what the estimates depend on, for their records; "" for JAX's and its
            compiler's.
    """

    name: str = ""
    claims: tuple[str, ...] = ("interpret",)
    takes_interpret: bool = False
    tensors: bool = False
    orders: int = 2
    compiled_for: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()
    estimates_ranges: bool = False
    is_library: bool = False
    needs: tuple[str, ...] = ()
    elsewhere: str = ""
    remark: str = ""
    versions: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def adopt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A reader's function, in the form in which this backend runs it."""
        return function

    def spread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A public function as a function of whole arrays: another one on several devices."""
        return function

    def interpret(self, job: Job) -> Any:
        """The kernel's arithmetic on the CPU, program after program."""
        return job(**self._interpreting(True))

    def simulate(self, job: Job, order: int) -> Simulated:
        """On a simulated machine, in one of the orders that it may take.

        Raises:
            Refused: where the machine would not run it so.
            Skipped: where there is no simulator.
        """
        raise Skipped(self.why_not("simulate"))

    def compile(self, jobs: Iterable[Callable[[], Job]]) -> Iterator[CompiledJob]:
        """Compile jobs in order, each made when its turn comes, as far as the tools are here."""
        for make in jobs:
            start, error, note = time.perf_counter(), None, ""
            try:
                if reason := self.why_not("compile"):
                    raise Skipped(reason)
                note = self.compile_one(make())
            except Exception as raised:  # a wrong kernel's words are the finding
                error = raised
            yield CompiledJob(error, note, time.perf_counter() - start)

    def compile_one(self, job: Job) -> str:
        """Compile one job; returns what was left of the way to the machine, or nothing."""
        raise Skipped(self.why_not("compile"))

    def measure(self, job: Job, device: str | None = None) -> Any:
        """The result on the machine itself.

        Raises:
            Skipped: where the machine is missing.
        """
        if reason := self.why_not("measure", device or "cpu"):
            raise Skipped(reason)
        return job(**self._interpreting(False))

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        """The gradients by the wanted arguments, of a cotangent for each output."""
        return jax_arrays.pull(job, cotangents, **self._interpreting(True))

    def prepare(self, job: Job, device: str = "cpu", out: bool = False) -> Callable[[], Any]:
        """A call without arguments that does the job, or its gradients where they are wanted.

        Args:
            job: its operands are put on the device.
            device: "cpu" or "cuda", for what works on PyTorch's tensors.
            out: whether the function takes an `out` to write to.
        """
        return jax_arrays.prepare(job)

    def why_not(self, rung: str, device: str = "cpu") -> str:
        """Why a rung cannot be climbed; empty where there is nothing in the way.

        Args:
            rung: "simulate" and "compile" ask whether there is such a rung, "measure" whether the
                machine is here.
            device: "cpu" or "cuda", to measure on.
        """
        if rung == "measure":
            return self.elsewhere or self._no_machine(device)
        if rung in self.claims:
            return ""
        if rung == "simulate":
            return f"there is no simulator for {self.name}"
        return f"{self.name} compiles while it runs: there is nothing to look at"

    def _no_machine(self, device: str) -> str:
        """Why nothing is measured here; empty where there is nothing in the way."""
        return ""

    def chip(self, device: str = "cpu") -> str:
        """What it runs on here, as records name it."""
        return processor(device if self.tensors else "cpu")

    def estimate(
        self, jobs: Sequence[tuple[Job, str]], *, timeout: float, budget: float
    ) -> list[Any]:
        """What jobs would take on chips that are not here.

        Args:
            jobs: each with the name of a chip.
            timeout: seconds for a compilation.
            budget: seconds of simulation for each.

        Returns:
            For each an estimate, or why it was refused.
        """
        raise NotImplementedError(f"nothing is estimated of {self.name}")

    def missing(self) -> str:
        """The package or the tool that is needed and not installed; empty where all is there."""
        if not self.needs or any(map(optional.available, self.needs)):
            return ""
        return self.needs[0]

    def _interpreting(self, value: Any) -> dict[str, Any]:
        return {"interpret": value} if self.takes_interpret else {}
