"""CUDA C++: run on the CPU's threads, under sanitizers, and compiled for GPUs that are not here."""

from dataclasses import replace

from kernels.proof.backends.base import Job, Refused, Simulated
from kernels.proof.backends.torch import OnTensors

WATCHES = ("races", "bounds")  # of the two runs of a simulation, one sanitizer each


class _Cuda(OnTensors):
    name = "CUDA C++"
    claims = ("interpret", "simulate", "compile")
    takes_interpret = True
    compiled_for = ("rtx3090", "h100", "b200")
    needs = ("g++",)
    elsewhere = "needs a program that launches it on a GPU: on the CPU's threads it tells nothing"

    def simulate(self, job: Job, order: int) -> Simulated:
        """Under ThreadSanitizer, and in the other order under AddressSanitizer."""
        from kernels.machines.gpu.launched import LaunchError, ThreadParams

        interpret = ThreadParams(WATCHES[order % len(WATCHES)])
        try:
            return Simulated(job(interpret=interpret))
        except LaunchError as error:
            raise Refused(str(error)) from error

    def compile_one(self, job: Job) -> str:
        from kernels.machines.gpu.errors import GpuCompileError
        from kernels.machines.gpu.launched import Launched

        launches: list[Launched] = []
        self.prepare(replace(job, options={**job.options, "interpret": launches}))()
        if not launches:
            raise Refused("no kernel was launched")
        for launch in dict.fromkeys(launches):
            for chip in self.compiled_for:
                try:
                    _ = launch.compiled(chip).registers  # which ptxas has to say
                except GpuCompileError as error:
                    raise Refused(f"{chip}: {error}") from error
        return ""


CUDA = _Cuda()
