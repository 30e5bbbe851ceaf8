"""Export a JAX program for a GPU: StableHLO, made without the plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernels.machines import optional
from kernels.machines.checks import fail
from kernels.machines.compat import xla_gpu
from kernels.machines.gpu import chips
from kernels.machines.gpu.errors import GpuCompileError, translate


@dataclass(frozen=True)
class Program:
    """A program exported for a GPU: what a child compiles.

    Args:
        name: of the function.
        chip: one of CHIPS.
        data: jax.export's serialisation.
        jaxpr: what JAX traced.
        mosaic: whether a kernel in it is Mosaic GPU's.
        mesh: axes and sizes of the GPUs that share it; () for one.
    """

    name: str
    chip: str
    data: bytes = field(repr=False)
    jaxpr: Any = field(repr=False, compare=False)
    mosaic: bool
    mesh: tuple[tuple[str, int], ...] = ()

    @cached_property
    def calls(self) -> tuple[Any, ...]:
        """Its pallas_calls as kernels.pallas.Call, in order."""
        from kernels.machines.pallas.calls import calls_in

        return tuple(calls_in(self.jaxpr))


@contextmanager
def abstract_device(chip: str, mesh: Mapping[str, int] | None = None) -> Iterator[None]:
    """Within it, JAX traces and lowers as if the default device were a `chip`.

    Args:
        chip: one of CHIPS.
        mesh: axis name → size, of several such GPUs.
    """
    from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

    target = chips.chip(chip)
    device = AbstractDevice(device_kind=target.device_kind, num_cores=target.sms, platform="gpu")
    sizes, names = tuple((mesh or {}).values()), tuple(mesh or {})
    kinds = (AxisType.Auto,) * len(names)
    of_mesh = AbstractMesh(sizes, names, kinds, abstract_device=device)
    with use_abstract_mesh(of_mesh), xla_gpu.known(target.device_kind, target.capability):
        yield


def export(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "h100",
    name: str = "",
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Program:
    """Export `function(*args)` for `chip`, without the plugin; nothing runs.

    Args:
        function: kernels inside that leave interpret=None are taken as compiled.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.
        name: of the program; that of the function if left out.
        mesh, in_specs, out_specs: as in compile.

    Raises:
        GpuCompileError: for what JAX already knows the hardware to refuse.
        ValueError: for an unknown chip, or a kernel with interpret=True.
        Exception: whatever `function` itself raises.
    """
    import jax

    from kernels.machines.pallas.calls import for_a_tpu, interpreted

    chips.chip(chip)
    optional.require("flatbuffers", "handing a program to the GPU's compiler")
    name = name or _name_of(function)
    with abstract_device(chip, mesh):
        jitted = jax.jit(_called(function, name), **_shardings(mesh, in_specs, out_specs))
        traced = jitted.trace(*args)
        if names := interpreted(traced.jaxpr):
            fail(
                "function",
                f"one that interprets its kernel {names[0]}, wherever it is traced for",
                "one that leaves interpret=None to its kernels, or passes interpret=False: what "
                "stands in for a kernel on a CPU says nothing of a GPU",
            )
        if names := for_a_tpu(traced.jaxpr):
            raise GpuCompileError(
                "unsupported",
                f"{names[0]} is written for a TPU, with compiler_params of "
                "jax.experimental.pallas.tpu: leave them out, or write it for Mosaic GPU",
            )
        try:
            exported = jax.export.export(
                jitted, platforms=["cuda"], disabled_checks=xla_gpu.exportable()
            )(*args)
            data = exported.serialize()
        except MemoryError:
            raise
        except Exception as error:
            raise translate(str(error)) from error
    over = tuple((mesh or {}).items())
    mosaic = xla_gpu.MOSAIC in exported.mlir_module()
    return Program(name, chip, bytes(data), traced.jaxpr, mosaic, over)


def _called(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function under a name that XLA can take."""
    word = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_") or "program"

    def call(*args: Any) -> Any:
        return function(*args)

    call.__name__ = word
    return call


def _name_of(function: Callable[..., Any]) -> str:
    """A function's name, or that of its type."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__name__", "") or type(function).__name__


def _shardings(mesh: Mapping[str, int] | None, in_specs: Any, out_specs: Any) -> dict[str, Any]:
    """Options of jax.jit that cut arguments and results over the mesh of the context."""
    import jax

    given = {"in_specs": in_specs, "out_specs": out_specs}
    given = {name: specs for name, specs in given.items() if specs is not None}
    if mesh is None:
        if given:
            raise ValueError(f"{' and '.join(given)} cut arrays over a mesh; accepted: with mesh=")
        return {}
    gpus = jax.sharding.get_abstract_mesh()

    def leaf(value: Any) -> bool:
        return isinstance(value, jax.sharding.PartitionSpec)

    return {
        name.replace("specs", "shardings"): jax.tree.map(
            lambda spec: jax.sharding.NamedSharding(gpus, spec), specs, is_leaf=leaf
        )
        for name, specs in given.items()
    }
