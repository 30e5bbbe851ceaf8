"""Export a JAX program for a TPU: StableHLO, a few kilobytes, made without libtpu."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernels import optional
from kernels.checks import fail
from kernels.tpu import chips
from kernels.tpu.diagnose import flat_text, primitive_line, translate, user_line
from kernels.tpu.lowering import abstract_device


@dataclass(frozen=True)
class Program:
    """A program exported for a chip: what a child compiles.

    data: jax.export's serialisation. jaxpr: what JAX traced. fingerprint: the same for the same
    program, whichever line of code asked for it. row_major: lay its arguments and results out row
    by row, instead of as XLA would choose. mesh: axes and sizes of the chips that share it; () for
    one chip.
    """

    name: str
    chip: str
    data: bytes = field(repr=False)
    jaxpr: Any = field(repr=False, compare=False)
    fingerprint: str = field(default="", repr=False)
    row_major: bool = False
    mesh: tuple[tuple[str, int], ...] = ()

    @cached_property
    def calls(self) -> tuple[Any, ...]:
        """Its pallas_calls as kernels.pallas.Call, in order."""
        from kernels.pallas.calls import calls_in

        return tuple(calls_in(self.jaxpr))


def export(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    name: str = "",
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Program:
    """Export `function(*args)` for `chip`, without libtpu; nothing runs.

    Args:
        function: kernels inside that leave interpret=None are taken as compiled, whatever they do
            on this machine, and whether or not they were traced for it before.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.
        name: of the program; that of the function if left out.
        mesh, in_specs, out_specs: as in compile.

    Raises:
        TpuCompileError: for what JAX already knows the hardware to refuse.
        ValueError: for an unknown chip, an impossible mesh, or a kernel with interpret=True.
        Exception: whatever `function` itself raises.
    """
    import jax

    from kernels.pallas.calls import interpreted

    chips.topology(chip, mesh)
    optional.require("flatbuffers", "handing a program to the TPU compiler")
    name = name or name_of(function)
    with abstract_device(chip, mesh):
        jitted = jax.jit(function, **_shardings(mesh, in_specs, out_specs))
        try:
            traced = jitted.trace(*args)
        except Exception as error:
            found = translate(flat_text(error), source=user_line(error))
            if found.kind == "other":
                raise
            raise found from error
        if names := interpreted(traced.jaxpr):
            fail(
                "function",
                f"one that interprets its kernel {names[0]}, wherever it is traced for",
                "one that leaves interpret=None to its kernels, or passes interpret=False: what "
                "stands in for a kernel on a CPU says nothing of a TPU",
            )
        try:
            exported = jax.export.export(jitted, platforms=["tpu"])(*args)
            data = exported.serialize()
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            found = translate(flat_text(error))
            found.source = found.source or primitive_line(traced.jaxpr, flat_text(error))
            raise found from error
    fingerprint = _fingerprint(exported.mlir_module())
    over = tuple((mesh or {}).items())
    return Program(name, chip, bytes(data), traced.jaxpr, fingerprint, mesh=over)


def name_of(function: Callable[..., Any]) -> str:
    """A function's name, or that of its type."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__name__", "") or type(function).__name__


def _fingerprint(module: str) -> str:
    """A digest of StableHLO text without its source locations and its name."""
    lines = (line for line in module.splitlines() if not line.startswith("#loc"))
    text = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)|(?<=^module) @\S+", "", "\n".join(lines))
    return hashlib.sha256(text.encode()).hexdigest()


def _shardings(mesh: Mapping[str, int] | None, in_specs: Any, out_specs: Any) -> dict[str, Any]:
    """Options of jax.jit that cut arguments and results over the mesh of the context."""
    import jax

    given = {"in_specs": in_specs, "out_specs": out_specs}
    given = {name: specs for name, specs in given.items() if specs is not None}
    if mesh is None:
        if given:
            raise ValueError(f"{' and '.join(given)} cut arrays over a mesh; accepted: with mesh=")
        return {}
    chips_of = jax.sharding.get_abstract_mesh()

    def leaf(value: Any) -> bool:
        return isinstance(value, jax.sharding.PartitionSpec)

    options = {}
    for name, specs in given.items():
        for spec in jax.tree.leaves(specs, is_leaf=leaf):
            if not leaf(spec):
                raise ValueError(f"{name} holds {spec!r}; accepted: jax.sharding.PartitionSpec")
        try:
            options[name.replace("specs", "shardings")] = jax.tree.map(
                lambda spec: jax.sharding.NamedSharding(chips_of, spec), specs, is_leaf=leaf
            )
        except Exception as error:  # JAX has several kinds for it
            raise ValueError(f"{name}: {error}") from error
    return options
