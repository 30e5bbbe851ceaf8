"""Programs on their way to a compiler: exported by their caller, compiled by a child.

The caller needs no compiler: `Machine.export` traces and lowers a function as if the chip were
here. The child has one, and calls `compile_exported`. What a TPU and a GPU do alike stands here; a
Machine says what is its own: its chips, its platforms, what it refuses.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.machines import cache, optional
from kernels.machines.base import CompileError
from kernels.machines.checks import fail, name_of, one_of, takes
from kernels.machines.compat import jax_mlir, jax_pallas, jaxprs, xla_gpu

if TYPE_CHECKING:
    from kernels.machines.pallas.lowered import Lowered

# --- on the caller's side -------------------------------------------------------------------------


@dataclass(frozen=True)
class ExportedProgram:
    """A program exported for a chip: what a child compiles."""

    name: str
    chip: str
    data: bytes = field(repr=False)  # jax.export's serialisation
    jaxpr: Any = field(repr=False, compare=False)  # what JAX traced
    # Of what the compiler reads, whichever line of code asked for it; then of values and trips.
    fingerprint: str = field(default="", repr=False)
    # Lay its arguments and results out row by row, instead of as XLA would choose.
    row_major: bool = False
    # Axes and sizes of the chips that share it; () for one chip.
    mesh: tuple[tuple[str, int], ...] = ()
    donated: tuple[int, ...] = ()  # the arguments whose memory the results may take, by number
    # Of the arguments that decide how much it does and whose values are known, by number.
    values: Mapping[int, Any] = field(default_factory=dict, repr=False, compare=False)
    names: tuple[str, ...] = field(default=(), repr=False)  # of all arguments
    # How often a loop runs, or how many steps a grid has, where data decides; see
    # kernels.machines.pallas.calls.calls_in.
    trips: Mapping[str, int] = field(default_factory=dict, repr=False)
    mosaic: bool = False  # whether a kernel in it is Mosaic GPU's

    @cached_property
    def calls(self) -> tuple[Any, ...]:
        """Its pallas_calls as kernels.pallas.Call, in order."""
        from kernels.machines.pallas.calls import calls_in

        return tuple(calls_in(self.jaxpr, self.values, self.names, self.trips))

    def with_trips(self, trips: Mapping[str, int]) -> ExportedProgram:
        """The same program, of which somebody says how often what data decides runs; ValueError for
        what names no such loop or kernel."""
        if not trips:
            return self
        said = f"{self.fingerprint} {sorted(trips.items())}"
        program = replace(self, trips=dict(trips), fingerprint=said)
        known = [words for call in program.calls for words in call.by_data]
        outside = map(jaxprs.operation, jax_pallas.outside_kernels(self.jaxpr))
        if "" in trips and (known or "while" in outside):
            return program
        for name in filter(None, trips):
            if not any(re.search(rf"\b{re.escape(name)}(?= of |$)", words) for words in known):
                fail("trips", f"of {name!r}", ", ".join(known) or "none: nothing depends on data")
        return program

    @property
    def rounds(self) -> int | None:
        """How often the loops outside of its kernels run whose length is data: as somebody says, or
        as the arguments do; None where they leave that open, or the loops differ."""
        ranges, unknown = self.decisive("while")
        counts = {max(end - start, 0) for start, end in ranges}
        agree = self.values and len(counts) == 1 and not unknown  # XLA counts what is constant
        return self.trips.get("", counts.pop() if agree else None)

    def decisive(self, operation: str) -> tuple[list[list[Any]], frozenset[str]]:
        """What decides how much XLA does in each "ragged_dot" or "while" of the program: the values
        of each of which they are known, and the names of what decides the others."""
        from kernels.machines.pallas.values import decisive

        known, unknown = [], frozenset[str]()
        for name, operands in decisive(self.jaxpr, self.values, self.names):
            if name.startswith(operation):
                values = [v.tolist() for v in (o.get() for o in operands) if v is not None]
                if values and len(values) == len(operands):
                    known.append(values)
                else:
                    names = frozenset().union(*[operand.unknown for operand in operands])
                    unknown |= names or {"how often a loop of the program runs"}
        return known, unknown


class Machine(ABC):
    """A kind of chip that programs are exported for: what a TPU and a GPU do alike, and what not.

    Each has a `title` for messages, JAX's name of its `device` and the `platform` to export for,
    its `chips` by name, the `default` one, and the custom call in which `kernels` travel.
    """

    title: str
    device: str
    platform: str
    default: str
    chips: Mapping[str, Any]
    kernels: str

    @abstractmethod
    def check(self, chip: str, mesh: Mapping[str, int] | None) -> None:
        """ValueError for an unknown chip, and for a mesh that no such chips make."""

    @abstractmethod
    def cores(self, chip: str) -> int:
        """How many cores JAX is told of."""

    @abstractmethod
    def refused(self, error: Exception, jaxpr: Any = None) -> CompileError:
        """What JAX's exception says of the hardware, or an error of the kind "other"."""

    def accept(self, jaxpr: Any) -> None:
        """ValueError for a program with a kernel that no such chip would run."""
        from kernels.machines.pallas.calls import interpreted

        if names := interpreted(jaxpr):
            fail(
                "function",
                f"one that interprets its kernel {names[0]}, wherever it is traced for",
                "one that leaves interpret=None to its kernels, or passes interpret=False: what "
                f"stands in for a kernel on a CPU says nothing of a {self.title}",
            )

    def named(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function under a name that its compiler can take, or as it is where none matters."""
        return function

    def unchecked(self) -> Sequence[Any]:
        """What jax.export shall let pass."""
        return ()

    def abstract_device(
        self, chip: str, mesh: Mapping[str, int] | None = None
    ) -> AbstractContextManager[Any]:
        """Within it, JAX traces as if the default device were a `chip`, or a mesh of several."""
        from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

        one_of("chip", chip, self.chips)
        device = AbstractDevice(
            device_kind=self.chips[chip].device_kind,
            num_cores=self.cores(chip),
            platform=self.device,
        )
        sizes, names = tuple((mesh or {}).values()), tuple(mesh or {})
        # As the compiler's mesh is: JAX's own default is another kind, and 0.12 compares the two.
        kinds = (AxisType.Auto,) * len(names)
        return use_abstract_mesh(AbstractMesh(sizes, names, kinds, abstract_device=device))

    def export(
        self,
        function: Callable[..., Any],
        *args: Any,
        chip: str = "",
        name: str = "",
        mesh: Mapping[str, int] | None = None,
        in_specs: Any = None,
        out_specs: Any = None,
        **options: Any,
    ) -> ExportedProgram:
        """Export `function(*args)` for `chip`, without its compiler; nothing runs.

        Args:
            function: kernels inside that leave interpret=None are taken as compiled, whatever they
                do on this machine, and whether or not they were traced for it before.
            args: arrays or jax.ShapeDtypeStruct. They stay arguments of the program; but an array
                of integers is its value, where that decides how much is done.
            chip: one of CHIPS; the machine's default if left out.
            name: of the program; that of the function if left out.
            mesh, in_specs, out_specs: as in compile.
            options: keyword arguments of the function.

        Raises:
            CompileError: for what JAX already knows the hardware to refuse.
            ValueError: for what is no function, arguments that it does not take, an unknown chip,
                an impossible mesh, a kernel with interpret=True or of an array without elements.
            Exception: whatever `function` itself raises.
        """
        import jax

        if not callable(function):
            fail("function", repr(function), "a function of arrays")
        chip, name, written = chip or self.default, name or name_of(function), function
        if mesh is not None and not isinstance(mesh, Mapping):
            fail("mesh", repr(mesh), 'axis name → size, such as {"x": 4}')
        function = self.named(function, name)
        self.check(chip, mesh)
        optional.require("flatbuffers", f"handing a program to the {self.title} compiler")
        with self.abstract_device(chip, mesh):
            # A function that is jitted already keeps its static arguments, and what it donates.
            own = hasattr(function, "trace") and hasattr(function, "lower") and mesh is None
            arrays = {k: v for k, v in options.items() if own or _is_array(v)}
            fixed = {k: v for k, v in options.items() if k not in arrays}
            whole = functools.partial(function, **fixed) if fixed else function
            shardings = _shardings(mesh, in_specs, out_specs)
            jitted: Any = function if own else jax.jit(whole, **shardings)
            try:
                traced = jitted.trace(*args, **arrays)
            except Exception as error:
                refusal = self.refused(error)
                if refusal.kind != "other":
                    raise refusal from error
                if isinstance(error, TypeError):
                    takes("args", written, args, options)
                    for leaf in () if own else jax.tree.leaves(args):
                        if isinstance(leaf, str) or (not np.isscalar(leaf) and not _is_array(leaf)):
                            fail("args", repr(leaf), "arrays, jax.ShapeDtypeStruct and numbers")
                raise
            self.accept(traced.jaxpr)
            try:
                exported = jax.export.export(
                    jitted, platforms=[self.platform], disabled_checks=self.unchecked()
                )(*args, **arrays)
                data = exported.serialize()
            except MemoryError:
                raise
            except Exception as error:
                raise self.refused(error, traced.jaxpr) from error
        names = jaxprs.argument_names(traced.jaxpr)
        values = _values(function, traced, args, arrays, names)
        module = exported.mlir_module()
        leaves = jax.tree.leaves(traced.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated"))
        return ExportedProgram(
            name,
            chip,
            bytes(data),
            traced.jaxpr,
            _fingerprint(module, values),
            mesh=tuple((mesh or {}).items()),
            donated=tuple(i for i, leaf in enumerate(leaves) if getattr(leaf, "donated", False)),
            values=values,
            names=names,
            mosaic=xla_gpu.MOSAIC in module,
        )

    def lower(self, function: Callable[..., Any], *args: Any, chip: str = "") -> Lowered:
        """Lower `function(*args)` for `chip`, without its compiler; nothing runs.

        Args:
            function: kernels inside are taken as compiled, whatever they do on this machine. For a
                GPU they must be written for Triton, as their compiler_params say.
            args: arrays or jax.ShapeDtypeStruct.
            chip: one of CHIPS; the machine's default if left out.

        Returns:
            The program, with each of its kernels.

        Raises:
            ValueError: for an unknown chip, where no kernel reaches the program, or one insists on
                being interpreted.
            Exception: what JAX raises where the hardware could not take the kernel.
        """
        import jax

        from kernels.machines.pallas.calls import interpreted
        from kernels.machines.pallas.lowered import Lowered

        chip = chip or self.default
        none = f"hands no kernel to a {self.title}"
        start = time.perf_counter()
        with self.abstract_device(chip):
            traced = jax.jit(function).trace(*args)
            if names := interpreted(traced.jaxpr):
                fail(
                    "function",
                    f"one that interprets its kernel {names[0]}, and {none}",
                    "one that leaves interpret=None to its kernels, or passes interpret=False",
                )
            lowered = traced.lower(lowering_platforms=(self.platform,))
        seconds = time.perf_counter() - start
        kernels = tuple(jax_mlir.kernels(lowered, self.kernels))
        if not kernels:
            fail("function", f"one that {none}", "a pallas_call for it, with interpret=False")
        return Lowered(chip, seconds, kernels, lowered.as_text())


def _is_array(value: Any) -> bool:
    """Whether a value is arrays, and what they hold may change from call to call."""
    import jax

    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(hasattr(v, "shape") and hasattr(v, "dtype") for v in leaves)


def _values(
    function: Callable[..., Any],
    traced: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
    names: Sequence[str],
) -> dict[int, Any]:
    """The number of an argument of the program → its value, of those that are there and decide how
    much it does: a large array of integers that is only computed with is not looked at."""
    import jax

    from kernels.machines.pallas.values import decisive

    positional, options = traced.args_info
    if len(positional) < len(args):  # the others are static, and have no name there
        own = {re.split(r"[\[.]", name)[0] for name in names}
        whole = inspect.signature(function).bind_partial(*args).arguments
        args = [value for name, value in whole.items() if name in own]
    leaves = jax.tree.leaves((list(args), {name: named[name] for name in options}))
    dtypes = [*map(jaxprs.dtype, jaxprs.inputs(traced.jaxpr))]
    known = {
        place: leaf
        for place, (leaf, dtype) in enumerate(zip(leaves, dtypes))
        if dtype.startswith(jaxprs.INTEGERS) and not isinstance(leaf, jax.ShapeDtypeStruct)
    }
    if not known or len(leaves) != len(dtypes):
        return {}
    values = [value for _, some in decisive(traced.jaxpr, {}, names) for value in some]
    deciding = frozenset().union(*[value.unknown for value in values])
    wanted = [place for place in known if names[place] in deciding]
    return {place: np.asarray(known[place]).astype(dtypes[place]) for place in wanted}


def _fingerprint(module: str, values: Mapping[int, Any]) -> str:
    """A digest of StableHLO text without its source locations and its name; one of values."""
    lines = (line for line in module.splitlines() if not line.startswith("#loc"))
    text = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)|(?<=^module) @\S+", "", "\n".join(lines))
    text = re.sub(r"(?<=\\22body\\22: \\22)[\w+/=]+", jax_mlir.unlocated, text)
    known = [part for place, value in sorted(values.items()) for part in (place, value.tobytes())]
    return f"{cache.digest(text)} {cache.digest(*known) if known else ''}".strip()


def _shardings(mesh: Mapping[str, int] | None, in_specs: Any, out_specs: Any) -> dict[str, Any]:
    """Options of jax.jit that cut arguments and results over the mesh of the context."""
    import jax

    trees = {"in_specs": in_specs, "out_specs": out_specs}
    trees = {name: specs for name, specs in trees.items() if specs is not None}
    if mesh is None:
        if trees:
            raise ValueError(f"{' and '.join(trees)} cut arrays over a mesh; accepted: with mesh=")
        return {}
    chips = jax.sharding.get_abstract_mesh()

    def leaf(value: Any) -> bool:
        return isinstance(value, jax.sharding.PartitionSpec)

    options = {}
    for name, specs in trees.items():
        for spec in jax.tree.leaves(specs, is_leaf=leaf):
            if not leaf(spec):
                raise ValueError(f"{name} holds {spec!r}; accepted: jax.sharding.PartitionSpec")
        try:
            options[name.replace("specs", "shardings")] = jax.tree.map(
                lambda spec: jax.sharding.NamedSharding(chips, spec), specs, is_leaf=leaf
            )
        except Exception as error:  # JAX has several kinds for it
            raise ValueError(f"{name}: {error}") from error
    return options


# --- in the child ---------------------------------------------------------------------------------


def compile_exported(
    program: bytes,
    devices: Sequence[Any],
    mesh: Mapping[str, int],
    *,
    donated: Sequence[int] = (),
    row_major: bool = False,
    named: bool = False,
    options: dict[str, Any] | None = None,
) -> Any:
    """Compile what `Machine.export` made, `program` being its data, for devices, of which the first
    counts where there is no mesh; a jax.stages.Compiled.

    `donated` numbers the arguments whose memory results may take, `row_major` lays its arrays out
    row by row, as Pallas kernels want them, and `named` gives it the exported function's name.
    """
    import jax
    from jax import export

    exported = export.deserialize(bytearray(program))
    sharding = jax.sharding.SingleDeviceSharding(devices[0])
    # The results name the chip too: a program without arguments has nothing else to.
    jitting: dict[str, Any] = {"out_shardings": sharding}
    shardings: list[Any] = [sharding] * len(exported.in_avals)
    if mesh:
        shardings, jitting["out_shardings"] = _on_mesh(exported, devices, mesh)
    shapes = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s)
        for a, s in zip(exported.in_avals, shardings)
    ]
    if donated and not mesh:

        def program_of_leaves(*leaves: Any) -> Any:
            args, kwargs = jax.tree.unflatten(exported.in_tree, leaves)
            return exported.call(*args, **kwargs)

        jitted = jax.jit(program_of_leaves, donate_argnums=tuple(donated), **jitting)
        return jitted.lower(*shapes).compile(options)
    if row_major:
        jitting = _in_rows(exported, sharding)
    call = exported.call
    if named:
        call = lambda *args, **kwargs: exported.call(*args, **kwargs)
        call.__name__ = exported.fun_name
    args, kwargs = jax.tree.unflatten(exported.in_tree, shapes)
    return jax.jit(call, **jitting).lower(*args, **kwargs).compile(options)


def _on_mesh(program: Any, devices: Any, axes: Mapping[str, int]) -> tuple[list[Any], Any]:
    """The shardings of the arguments, and of the results, on a mesh of these devices."""
    import jax
    from jax.experimental import mesh_utils

    kinds = (jax.sharding.AxisType.Auto,) * len(axes)  # the compiler cuts what has no spec
    sizes, names, wanted = tuple(axes.values()), tuple(axes), math.prod(axes.values())
    placed = np.asarray(devices[:wanted]).reshape(sizes)  # a part of a slice has no best order
    if wanted == len(devices):
        # 16 × 16 of 4 × 8 × 8 chips: an axis goes along two of theirs.
        placed = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    mesh = jax.sharding.Mesh(placed, names, axis_types=kinds)
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    args = [s or whole for s in program.in_shardings_jax(mesh)]
    # What the program does not say of a result, the partitioner chooses.
    return args, jax.tree.unflatten(program.out_tree, program.out_shardings_jax(mesh))


def _in_rows(program: Any, sharding: Any) -> dict[str, Any]:
    """Options of jax.jit that lay each array out row by row."""
    import jax
    from jax.experimental.layout import Format, Layout

    def formats(avals: Sequence[Any]) -> list[Any]:
        return [Format(Layout(tuple(range(a.ndim))), sharding) for a in avals]

    args, _ = jax.tree.unflatten(program.in_tree, formats(program.in_avals))
    results = jax.tree.unflatten(program.out_tree, formats(program.out_avals))
    return {"in_shardings": args, "out_shardings": results}


def memory_of(compiled: Any) -> dict[str, int]:
    """Bytes of a compiled program by what they are for: argument, output, alias, temp,
    generated_code.
    """
    memory = compiled.memory_analysis()
    names = ("argument", "output", "alias", "temp", "generated_code")
    return {name: getattr(memory, f"{name}_size_in_bytes", 0) for name in names}
