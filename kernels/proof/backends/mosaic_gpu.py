"""Pallas for a GPU, through Mosaic GPU: simulated on the CPU, compiled for Hopper without a GPU."""

from collections.abc import Callable, Sequence
from typing import Any

from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import Job, Refused, Simulated
from kernels.proof.backends.pallas_gpu import PallasGpu


class _MosaicGpu(PallasGpu):
    name = "Mosaic GPU"
    claims = ("interpret", "simulate", "compile")
    # wgmma and set_max_registers are Hopper's: older chips lack them, newer ones have others.
    compiled_for = chips = ("h100",)

    def interpret(self, job: Job) -> Any:
        """Warpgroups as threads, with a limit on what they wait for; races are not looked for."""
        return self._simulated(job.function, *job.arguments, races=False, **job.options).result

    def pull(self, job: Job, cotangents: Sequence[Any]) -> Sequence[Any]:
        def pulled() -> Sequence[Any]:
            return jax_arrays.pull(job, cotangents, interpret=True)

        return self._simulated(pulled, races=False).result

    def simulate(self, job: Job, order: int) -> Simulated:
        """The same, watched for races. Blocks run one after another: there is one order."""
        run = self._simulated(job.function, *job.arguments, races=True, **job.options)
        if run.races:
            raise Refused(f"race: {run.races[0]}")
        return Simulated(run.result, alone=True)

    def _simulated(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from kernels.machines.gpu.simulator import SimulationError, simulate

        try:
            return simulate(function, *arguments, **options)
        except SimulationError as error:
            raise Refused(str(error)) from error

    def _look_at(self, program: Any) -> None:
        if not program.mosaic:
            raise Refused("no kernel of Mosaic GPU reached the program")


MOSAIC_GPU = _MosaicGpu()
