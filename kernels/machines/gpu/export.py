"""Export a JAX program for a GPU: StableHLO, made without the plugin."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernels.machines.compat import jax_mlir, xla_gpu
from kernels.machines.exporting import Machine
from kernels.machines.gpu import chips
from kernels.machines.gpu.errors import GpuCompileError, translate


class _Gpu(Machine):
    title, device, platform, default, chips = "GPU", "gpu", "cuda", "h100", chips.CHIPS
    kernels = jax_mlir.GPU

    def check(self, chip: str, mesh: Mapping[str, int] | None) -> None:
        chips.chip(chip)

    def cores(self, chip: str) -> int:
        return chips.chip(chip).sms

    def refused(self, error: Exception, jaxpr: Any = None) -> GpuCompileError:
        return translate(str(error))

    def unchecked(self) -> list[Any]:
        return xla_gpu.exportable()

    @contextmanager
    def abstract_device(self, chip: str, mesh: Mapping[str, int] | None = None) -> Iterator[None]:
        target = chips.chip(chip)
        with (
            super().abstract_device(chip, mesh),
            xla_gpu.known(target.device_kind, target.capability),
        ):
            yield

    def accept(self, jaxpr: Any) -> None:
        from kernels.machines.pallas.calls import for_a_tpu

        super().accept(jaxpr)
        if names := for_a_tpu(jaxpr):
            raise GpuCompileError(
                "unsupported",
                f"{names[0]} is written for a TPU, with compiler_params of "
                "jax.experimental.pallas.tpu: leave them out, or write it for Mosaic GPU",
            )

    def named(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        word = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")

        def call(*arrays: Any, **fixed: Any) -> Any:
            return function(*arrays, **fixed)

        call.__name__ = word or "program"
        return call


GPU = _Gpu()
abstract_device, export, lower = GPU.abstract_device, GPU.export, GPU.lower
