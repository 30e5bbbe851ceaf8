"""NKI, AWS Neuron's kernel language: simulated and linted here, in both of its generations."""

from collections.abc import Callable, Sequence
from typing import Any

from kernels.proof.backends.base import Backend, Job, Simulated

NO_DEVICE = "needs an AWS Neuron device (Inf2 or Trn1), and there is none"


class _Nki(Backend):
    name = "NKI"
    claims = ("interpret", "simulate", "compile")
    takes_interpret = True
    remark = "copies from and to the host included"

    def __init__(self, generation: str) -> None:
        self.generation = generation

    @property
    def chips(self) -> tuple[str, ...]:  # type: ignore[override]
        from kernels.machines import neuron

        return tuple(neuron.CHIPS)

    def simulate(self, job: Job, order: int) -> Simulated:
        """With the machine's limits, its parallel loops in another order."""
        from kernels.machines import neuron

        interpret = neuron.InterpretParams(order=order)
        return Simulated(job(interpret=interpret))

    def compile_one(self, job: Job) -> str:
        from kernels.machines import neuron

        return neuron.lower(job.function, *job.arguments, **job.options)

    def prepare(self, job: Job, device: str = "cpu", out: bool = False) -> Callable[[], Any]:
        return job

    def _no_machine(self, device: str) -> str:
        from kernels.machines import neuron

        if not neuron.device():
            return f"{NO_DEVICE}: simulated, it tells nothing"
        package = neuron.vendor.find(self.generation)
        return "" if package else f"needs AWS's package: {neuron.vendor.SETUP}"

    def chip(self, device: str = "cpu") -> str:
        from kernels.machines import neuron

        return neuron.chips.here()

    @property
    def versions(self) -> str:  # type: ignore[override]
        import kernels

        return f"kernels {kernels.__version__}"

    def estimate(
        self, jobs: Sequence[tuple[Job, str]], *, timeout: float, budget: float
    ) -> list[Any]:
        from kernels.machines import neuron

        estimates = []
        for job, chip in jobs:
            with neuron.watched() as launches:
                job.function(*job.arguments, interpret=True, **job.options)
            (launch,) = launches
            estimates.append(
                neuron.estimate(launch.kernel, *launch.arguments, chip=chip, **launch.options)
            )
        return estimates


NKI = _Nki("nki")
NKI_BETA1 = _Nki("neuronxcc")
