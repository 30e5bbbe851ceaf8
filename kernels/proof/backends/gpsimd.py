"""C++ for GpSimd, the eight small processors of a NeuronCore: emulated here."""

from kernels.proof.backends.base import Backend, Job, Simulated


class _GpSimd(Backend):
    name = "GpSimd C++"
    claims = ("interpret", "simulate", "compile")
    takes_interpret = True
    needs = ("g++",)
    elsewhere = (
        "needs an AWS Neuron device (Inf2 or Trn1) and AWS's build for it: emulated, it tells "
        "nothing"
    )

    def simulate(self, job: Job, order: int) -> Simulated:
        """Eight cores, one after the other in an order of this seed, every access checked."""
        from kernels.machines.neuron import gpsimd

        interpret = gpsimd.GpSimdParams(order=order)
        return Simulated(job(interpret=interpret))

    def compile_one(self, job: Job) -> str:
        from kernels.machines.neuron import gpsimd

        return gpsimd.lower(job.function, *job.arguments, **job.options)


GPSIMD = _GpSimd()
