"""Pallas for a GPU, through Triton: lowered here, compiled where there is a GPU."""

from __future__ import annotations

from kernels.backends import jax_arrays
from kernels.backends.base import Backend, Job
from kernels.backends.pallas_tpu import check_index_maps


class _PallasGpu(Backend):
    name = "Pallas GPU"
    claims = ("interpret", "compile")
    takes_interpret = True

    def compile_one(self, job: Job) -> str:
        from kernels import gpu
        from kernels.pallas import calls

        for program, arrays in jax_arrays.programs(job, interpret=False):
            check_index_maps(calls(program, *arrays))
            gpu.lower(program, *arrays)
        return "lowered to Triton only: nothing here compiles Triton for a GPU"

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
