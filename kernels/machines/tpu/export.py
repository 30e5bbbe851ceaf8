"""Export a JAX program for a TPU: StableHLO, a few kilobytes, made without libtpu."""

from collections.abc import Mapping
from typing import Any

from kernels.machines.checks import fail
from kernels.machines.compat import jax_mlir
from kernels.machines.exporting import Machine
from kernels.machines.tpu import chips
from kernels.machines.tpu.diagnose import (
    TpuCompileError,
    flat_text,
    primitive_line,
    translate,
    user_line,
)


class _Tpu(Machine):
    title, device, platform, default, chips = "TPU", "tpu", "tpu", "v5e", chips.CHIPS
    kernels = jax_mlir.TPU

    def check(self, chip: str, mesh: Mapping[str, int] | None) -> None:
        chips.topology(chip, mesh)

    def cores(self, chip: str) -> int:
        return chips.chip(chip).tensor_cores

    def refused(self, error: Exception, jaxpr: Any = None) -> TpuCompileError:
        text = flat_text(error)
        if jaxpr is None:
            return translate(text, source=user_line(error))
        refusal = translate(text)
        refusal.source = refusal.source or primitive_line(jaxpr, text)
        return refusal

    def accept(self, jaxpr: Any) -> None:
        from kernels.machines.pallas.calls import empty

        super().accept(jaxpr)
        if handed := empty(jaxpr):
            fail(
                "function",
                f"one that hands its kernel {handed[0]} an array of shape {handed[1]}",
                "arrays without an empty dimension: a TPU kernel has no block of no elements",
            )


TPU = _Tpu()
abstract_device, export, lower = TPU.abstract_device, TPU.export, TPU.lower
