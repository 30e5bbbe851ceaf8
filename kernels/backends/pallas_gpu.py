"""Pallas for a GPU, through Triton: compiled down to machine code, without a GPU."""

from __future__ import annotations

from kernels.backends import jax_arrays
from kernels.backends.base import Backend, Job, Refused
from kernels.backends.pallas_tpu import check_index_maps

COMPILE_SECONDS = 120.0  # that a compilation may take


class _PallasGpu(Backend):
    name = "Pallas GPU"
    claims = ("interpret", "compile")
    takes_interpret = True
    compiled_for = ("h100", "a100", "b200")

    def compile_one(self, job: Job) -> str:
        from kernels.gpu import compiler, toolchain
        from kernels.gpu.errors import GpuCompileError
        from kernels.gpu.export import export

        there = toolchain.available()
        for program, arrays in jax_arrays.programs(job, interpret=False):
            for chip in self.compiled_for:
                try:
                    exported = export(program, *arrays, chip=chip, name=job.name)
                    check_index_maps(exported.calls)
                    if there:
                        # XLA has its kernels assembled, so ptxas has had its say too.
                        compiled = compiler.compile_program(exported, timeout=COMPILE_SECONDS)
                        if not compiled.kernels:
                            raise Refused(f"no kernel was compiled for {chip}")
                except GpuCompileError as error:
                    raise Refused(f"{chip}: {error}") from error
        if there:
            return ""
        return "lowered only: the compilers, make venv EXTRAS=gpu, are not installed"

    def why_not(self, rung: str, device: str = "cpu") -> str:
        if rung != "measure":
            return super().why_not(rung, device) if rung == "simulate" else ""
        import jax

        if (backend := jax.default_backend()) == "gpu":
            return ""
        return f"needs a GPU; JAX's backend here is {backend}, and interpreted it tells nothing"

    def chip(self, device: str = "cpu") -> str:
        import jax

        return jax.devices()[0].device_kind


PALLAS_GPU = _PallasGpu()
