"""Taichi: compiled for the CPU's threads here, or for a GPU."""

from collections.abc import Callable
from typing import Any

from kernels.proof.backends.base import Job, Refused, Simulated, Skipped
from kernels.proof.backends.processor import has_cuda
from kernels.proof.backends.torch import OnTensors


class _Taichi(OnTensors):
    name = "Taichi"
    claims = ("simulate", "interpret", "measure")  # first where no access goes unchecked
    needs = ("taichi", "quadrants")

    def adopt(self, function: Callable[..., Any]) -> Any:
        """As text, for a process that cannot import it."""
        from kernels.machines import taichi

        return taichi.KernelSource.of(function)

    def simulate(self, job: Job, order: int) -> Simulated:
        """Debug mode, which checks every access; on one thread or on several."""
        from kernels.machines import taichi

        threads = 1 + 3 * (order % 2)
        try:
            return Simulated(
                taichi.simulate(job.function, *job.arguments, threads=threads, **job.options)
            )
        except taichi.TaichiError as error:
            raise Refused(str(error)) from error

    def measure(self, job: Job, device: str | None = None) -> Any:
        """On the first GPU where there is one, or else on all cores; in a process of its own."""
        from kernels.machines import taichi

        device = device or ("cuda" if has_cuda() else "cpu")
        if reason := self.why_not("measure", device):
            raise Skipped(reason)
        return taichi.run(job.function, *job.arguments, device=device, **job.options)


TAICHI = _Taichi()
