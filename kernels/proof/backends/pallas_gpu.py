"""Pallas for a GPU, through Triton: compiled down to machine code, without a GPU.

JAX 0.11 deprecates this route: Triton is on its way out of Pallas, and Mosaic GPU takes its place
(backends.mosaic_gpu). It stays here as long as JAX has it, and for the chips before Hopper.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas, jaxprs
from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import Backend, Job, Refused
from kernels.proof.backends.pallas_tpu import Brought, check_index_maps
from kernels.proof.backends.processor import card

COMPILE_SECONDS = 120.0  # that a compilation may take


def check_sums(program: Any) -> None:
    """Refuse sums over programs in a block of the result: in an interpreter they take turns."""
    for call in () if program.mosaic else program.calls:
        for output in (call.outputs[n] for n in jax_pallas.outputs_summed(call.equation)):
            if len(np.unique(output.starts, axis=0)) < len(output.starts):
                why = f"several programs add to one block of {output.name} at once on a GPU"
                raise Refused(f"{why}: loop within one program, or use pltriton.atomic_add")


class PallasGpu(Backend):
    """What both routes to a GPU share; by itself, that through Triton."""

    name = "Pallas GPU"
    claims: tuple[str, ...] = ("interpret", "compile")
    takes_interpret = True
    compiled_for: tuple[str, ...] = ("h100", "a100", "b200")
    chips = compiled_for
    estimates_ranges = True

    def compile_one(self, job: Job) -> str:
        from kernels.machines.gpu import compiler, toolchain
        from kernels.machines.gpu.errors import GpuCompileError
        from kernels.machines.gpu.export import export

        compiles = toolchain.available()
        for program, arrays in jax_arrays.programs(job, **self._interpreting(False)):
            for chip in self.compiled_for:
                try:
                    exported = export(program, *arrays, chip=chip, name=job.name)
                    self._look_at(exported)
                    if compiles:
                        # XLA has its kernels assembled, so ptxas has had its say too.
                        compiled = compiler.compile_program(exported, timeout=COMPILE_SECONDS)
                        if not compiled.kernels:
                            raise Refused(f"no kernel was compiled for {chip}")
                except GpuCompileError as error:
                    raise Refused(f"{chip}: {error}") from error
        if compiles:
            return ""
        return "lowered only: the compilers, make venv EXTRAS=gpu, are not installed"

    def _look_at(self, program: Any) -> None:
        """Refuse what the compiler would take, and what is wrong."""
        check_index_maps(program.calls)
        check_sums(program)

    def estimate(
        self, jobs: Sequence[tuple[Job, str]], *, timeout: float, budget: float
    ) -> list[Any]:
        from kernels.machines import gpu

        answers: list[Any] = []
        for job, chip in jobs:
            function, arrays = jax_arrays.programs(job, interpret=False)[-1]
            options: dict[str, Any] = {"chip": chip, "flops": job.flops, "timeout": timeout}
            try:
                answers.append(gpu.estimate(function, *arrays, **options))
            except (ValueError, gpu.GpuCompileError) as error:
                answers.append(error)
        return answers

    def _no_machine(self, device: str) -> str:
        import jax

        if (backend := jax.default_backend()) == "gpu":
            return ""
        return f"needs a GPU; JAX's backend here is {backend}, and interpreted it tells nothing"

    def chip(self, device: str = "cpu") -> str:
        import jax

        return card(jax.devices()[0].device_kind)


class BroughtToGpu(Brought):
    """A kernel for a GPU that somebody brought."""

    name, claims, compile = PallasGpu.name, PallasGpu.claims, Backend.compile
    seen_as = ()

    def compile_one(self, job: Job) -> str:
        with self._as_compiled():
            return PallasGpu.compile_one(self, job)  # type: ignore[arg-type]

    def _look_at(self, program: Any) -> None:
        """Refuse also what ends beyond its array: only interpreters fill a block up, and cut it."""
        super()._look_at(program)
        check_sums(program)
        masked = any("masked" in jaxprs.operation(e) for e in jaxprs.equations(program.jaxpr))
        for call in () if program.mosaic or masked else program.calls:
            for operand in call.operands:
                if (operand.starts + operand.block > operand.shape).any():
                    place = f"the last block of {operand.name} in {call.name}"
                    why = "ends beyond the array, and Triton masks nothing by itself"
                    raise Refused(f"{place} {why}: take whole blocks, or pltriton's masks")


PALLAS_GPU = PallasGpu()
