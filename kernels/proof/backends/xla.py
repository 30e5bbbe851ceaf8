"""XLA: what jax.numpy says, compiled by XLA for whatever JAX has here."""

from collections.abc import Sequence
from typing import Any

from kernels.machines.tpu.chips import CHIPS
from kernels.proof.backends import jax_arrays
from kernels.proof.backends.base import Backend, Job
from kernels.proof.backends.processor import card, processor


class OnTpu(Backend):
    """What the TPU's compiler takes, and is estimated by."""

    chips = tuple(CHIPS)

    def cut(self, arrays: Sequence[Any], **options: Any) -> dict[str, Any]:
        """How a job's arrays are cut over a mesh, as kernels.tpu.compile takes it, or {}."""
        return {}

    def estimate(
        self, jobs: Sequence[tuple[Job, str]], *, timeout: float, budget: float
    ) -> list[Any]:
        from kernels.machines.tpu.diagnose import TpuCompileError
        from kernels.machines.tpu.estimate import estimate_all
        from kernels.machines.tpu.export import export
        from kernels.machines.tpu.pool import libtpu_version

        libtpu_version()  # says by name that it is missing
        answers: list[Any] = []
        exported = {}
        for place, (job, chip) in enumerate(jobs):
            answers.append(None)
            function, arrays = jax_arrays.programs(job, **self._interpreting(False))[-1]
            try:
                cut = self.cut(arrays, **job.options)
                exported[place] = export(function, *arrays, chip=chip, name=job.name, **cut)
            except (ValueError, TpuCompileError) as error:
                answers[place] = error
        estimates = estimate_all(list(exported.values()), timeout=timeout, budget=budget)
        for place, estimate in zip(exported, estimates, strict=True):
            answers[place] = estimate
        return answers

    def chip(self, device: str = "cpu") -> str:
        import jax

        from kernels.machines import tpu

        if jax.default_backend() == "cpu":
            return processor()
        return tpu.chips.here(fallback=card(jax.devices()[0].device_kind))


class _Xla(OnTpu):
    name = "XLA"
    is_library = True

    def _no_machine(self, device: str) -> str:
        import jax

        return "runs on the CPU here" if device == "cuda" and jax.default_backend() != "gpu" else ""


XLA = _Xla()
