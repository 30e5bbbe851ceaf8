"""Export a JAX program for a TPU: StableHLO, a few kilobytes, made without libtpu."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kernels.machines import optional
from kernels.machines.checks import fail
from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.tpu import chips
from kernels.machines.tpu.diagnose import flat_text, primitive_line, translate, user_line
from kernels.machines.tpu.lowering import abstract_device


@dataclass(frozen=True)
class Program:
    """A program exported for a chip: what a child compiles.

    Args:
        data: jax.export's serialisation.
        jaxpr: what JAX traced.
        fingerprint: the same for the same program, whichever line of code asked for it.
        row_major: lay its arguments and results out row by row, instead of as XLA would choose.
        mesh: axes and sizes of the chips that share it; () for one chip.
        donated: the arguments whose memory the results may take, by number.
        values: of the arguments whose values are given, by number.
        names: of all arguments.
        trips: how often a loop runs, or how many steps a grid has, where data decides; see
            kernels.pallas.calls.calls_in.
    """

    name: str
    chip: str
    data: bytes = field(repr=False)
    jaxpr: Any = field(repr=False, compare=False)
    fingerprint: str = field(default="", repr=False)
    row_major: bool = False
    mesh: tuple[tuple[str, int], ...] = ()
    donated: tuple[int, ...] = ()
    values: Mapping[int, Any] = field(default_factory=dict, repr=False, compare=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    trips: Mapping[str, int] = field(default_factory=dict, repr=False)

    @cached_property
    def calls(self) -> tuple[Any, ...]:
        """Its pallas_calls as kernels.pallas.Call, in order."""
        from kernels.machines.pallas.calls import calls_in

        return tuple(calls_in(self.jaxpr, self.values, self.names, self.trips))

    def with_trips(self, trips: Mapping[str, int]) -> Program:
        """The same program, of which somebody says how often what data decides runs.

        Args:
            trips: FILE:LINE of a loop, the name of a kernel, or "" for all → how often the loop
                runs, and how many steps each dimension of the grid has whose size is data.

        Raises:
            ValueError: for what names no such loop or kernel.
        """
        if not trips:
            return self
        made = replace(
            self, trips=dict(trips), fingerprint=f"{self.fingerprint} {sorted(trips.items())}"
        )
        known = [words for call in made.calls for words in call.by_data]
        outside = map(jaxprs.operation, jax_pallas.outside_kernels(self.jaxpr))
        if "" in trips and (known or "while" in outside):
            return made
        for name in filter(None, trips):
            if not any(re.search(rf"\b{re.escape(name)}(?= of |$)", words) for words in known):
                fail("trips", f"of {name!r}", ", ".join(known) or "none: nothing depends on data")
        return made

    @property
    def integers(self) -> tuple[tuple[int, ...], ...]:
        """The lists of integers among the arguments whose values are given."""
        import numpy as np

        given = map(np.asarray, self.values.values())
        return tuple(
            tuple(each.tolist()) for each in given if each.ndim == 1 and each.dtype.kind in "iu"
        )


def export(
    function: Callable[..., Any],
    *args: Any,
    chip: str = "v5e",
    name: str = "",
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    values: Mapping[str | int, Any] | None = None,
    **options: Any,
) -> Program:
    """Export `function(*args)` for `chip`, without libtpu; nothing runs.

    Args:
        function: kernels inside that leave interpret=None are taken as compiled, whatever they do
            on this machine, and whether or not they were traced for it before.
        args: arrays or jax.ShapeDtypeStruct.
        chip: one of CHIPS.
        name: of the program; that of the function if left out.
        mesh, in_specs, out_specs: as in compile.
        values: as in estimate.
        options: keyword arguments of the function, as in compile.

    Raises:
        TpuCompileError: for what JAX already knows the hardware to refuse.
        ValueError: for an unknown chip, an impossible mesh, a kernel with interpret=True or of an
            array without elements, or values of no argument.
        Exception: whatever `function` itself raises.
    """
    import jax

    chips.topology(chip, mesh)
    optional.require("flatbuffers", "handing a program to the TPU compiler")
    name = name or name_of(function)
    with abstract_device(chip, mesh):
        # A function that is jitted already keeps its static arguments, and what it donates.
        own = hasattr(function, "trace") and hasattr(function, "lower") and mesh is None
        arrays = {k: v for k, v in options.items() if own or _is_array(v)}
        fixed = {k: v for k, v in options.items() if k not in arrays}
        shardings = _shardings(mesh, in_specs, out_specs)
        whole = functools.partial(function, **fixed) if fixed else function
        jitted: Any = function if own else jax.jit(whole, **shardings)
        try:
            traced = jitted.trace(*args, **arrays)
        except Exception as error:
            found = translate(flat_text(error), source=user_line(error))
            if found.kind == "other":
                raise
            raise found from error
        _accept(traced.jaxpr)
        try:
            exported = jax.export.export(jitted, platforms=["tpu"])(*args, **arrays)
            data = exported.serialize()
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            found = translate(flat_text(error))
            found.source = found.source or primitive_line(traced.jaxpr, flat_text(error))
            raise found from error
    names = jaxprs.argument_names(traced.jaxpr)
    given = _given(values or {}, names, args, jaxprs.inputs(traced.jaxpr))
    fingerprint = _fingerprint(exported.mlir_module(), given)
    leaves = jax.tree.leaves(traced.args_info, is_leaf=lambda each: hasattr(each, "donated"))
    donated = tuple(i for i, each in enumerate(leaves) if getattr(each, "donated", False))
    return Program(
        name,
        chip,
        bytes(data),
        traced.jaxpr,
        fingerprint,
        mesh=tuple((mesh or {}).items()),
        donated=donated,
        values=given,
        names=names,
    )


def _accept(jaxpr: Any) -> None:
    """ValueError for a program whose kernels no TPU would run."""
    from kernels.machines.pallas.calls import empty, interpreted

    if names := interpreted(jaxpr):
        fail(
            "function",
            f"one that interprets its kernel {names[0]}, wherever it is traced for",
            "one that leaves interpret=None to its kernels, or passes interpret=False: what "
            "stands in for a kernel on a CPU says nothing of a TPU",
        )
    if found := empty(jaxpr):
        fail(
            "function",
            f"one that hands its kernel {found[0]} an array of shape {found[1]}",
            "arrays without an empty dimension: a TPU kernel has no block of no elements",
        )


def _is_array(value: Any) -> bool:
    """Whether a value is arrays, and what they hold may change from call to call."""
    import jax

    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(hasattr(v, "shape") and hasattr(v, "dtype") for v in leaves)


def _given(
    values: Mapping[str | int, Any],
    names: Sequence[str],
    args: Sequence[Any],
    variables: Sequence[Any],
) -> dict[int, Any]:
    """The number of an argument of the program → the value given for it."""
    import jax
    import numpy as np

    given: dict[int, Any] = {}
    for key, value in values.items():
        if isinstance(key, int) and 0 <= key < len(args):
            first = len(jax.tree.leaves(list(args[:key])))
            places = list(range(first, first + len(jax.tree.leaves(args[key]))))
        else:
            places = [i for i, n in enumerate(names) if re.split(r"[\[.]", n)[0] == key or n == key]
        leaves = [value] if len(places) == 1 else jax.tree.leaves(value)
        if not places:
            fail("values", f"of {key!r}", f"of {', '.join(names)}, or of their numbers")
        if len(leaves) != len(places):
            fail(f"values[{key!r}]", f"{len(leaves)} arrays", f"{len(places)}")
        for place, leaf in zip(places, leaves):
            found, shape = np.asarray(leaf), tuple(jaxprs.shape(variables[place]))
            if found.shape != shape:
                fail(f"values[{key!r}].shape", found.shape, f"{shape}")
            given[place] = found.astype(jaxprs.dtype(variables[place]))
    return given


def name_of(function: Callable[..., Any]) -> str:
    """A function's name, or that of its type."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__name__", "") or type(function).__name__


def _fingerprint(module: str, given: Mapping[int, Any]) -> str:
    """A digest of StableHLO text without its source locations and its name, and of values."""
    lines = (line for line in module.splitlines() if not line.startswith("#loc"))
    text = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)|(?<=^module) @\S+", "", "\n".join(lines))
    digest = hashlib.sha256(text.encode())
    for place, value in sorted(given.items()):
        digest.update(f"{place}".encode() + value.tobytes())
    return digest.hexdigest()


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
