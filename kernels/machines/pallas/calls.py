"""Read a pallas_call as JAX traced it: the grid, and the block that each program touches.

Nothing here is told by the kernel's author. The grid, the block shapes, the memory spaces and the
index maps come out of the traced program, so a picture or a count made from them cannot drift
away from the code.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.pallas.scalars import Ref
from kernels.machines.pallas.values import Value, handed
from kernels.machines.pallas.walk import Walk, given_trips, walk, worth_it

FAST = ("vmem", "smem")  # memories that the pipeline fills and empties
MAX_PROGRAMS = 1 << 20  # index maps are evaluated at every grid point; beyond this, say so


@dataclass(frozen=True)
class Operand:
    """One input or output of a pallas_call.

    Args:
        name: as the kernel calls it.
        role: "input" or "output".
        shape, dtype: of the whole array.
        block: the block's shape, squeezed dimensions as 1.
        memory: "vmem", "smem", "hbm" (left in place) or "any" (left to the compiler).
        starts: int array [programs, rank], the first element of the block that each program
            touches, in grid order.
        known: False where the index map reads values that are not known.
        aliased: whether an output shares its memory with an input.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...]
    memory: str
    starts: np.ndarray = field(repr=False, compare=False)
    known: bool = True
    aliased: bool = False

    @property
    def blocked(self) -> bool:
        """Whether the operand is cut into more than one block."""
        return self.block != self.shape

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in fast memory."""
        return math.prod(self.block) * jaxprs.bits(self.dtype) // 8

    @property
    def whole_bytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * jaxprs.bits(self.dtype) // 8

    @cached_property
    def moved(self) -> np.ndarray:
        """Whether each program touches another block than the one before it.

        A TPU's pipeline fetches an input, or writes an output back, only when its block changes.
        Where the blocks are not known, each program is taken to touch another one.

        Returns:
            bool [programs].
        """
        if not self.known:
            return np.ones(len(self.starts), bool)
        changed = np.any(self.starts[1:] != self.starts[:-1], axis=1)
        return np.concatenate([np.ones(min(1, len(self.starts)), bool), changed])

    @property
    def traffic(self) -> int:
        """Bytes moved between HBM and fast memory over the grid; a clipped block counts clipped.

        An operand left in HBM has no index map, so it counts 0; Call.moved knows what the kernel
        copies of it by hand.
        """
        return int(self.moved_bytes.sum()) if self.memory in FAST else 0

    @cached_property
    def moved_bytes(self) -> np.ndarray:
        """Bytes that each program moves anew, int [programs]; a clipped block counts clipped."""
        if not self.known:
            return np.full(len(self.starts), self.block_bytes)
        sizes = np.minimum(np.array(self.block), np.array(self.shape) - self.starts)
        elements = np.prod(np.maximum(sizes, 0), axis=1, dtype=np.int64)
        return np.where(self.moved, elements * jaxprs.bits(self.dtype) // 8, 0)


@dataclass(frozen=True)
class Call:
    """One pallas_call: its grid, the semantics of each grid dimension, and its operands.

    Args:
        name: the kernel's.
        machine: "tpu" or "gpu", whichever the kernel was written for.
        grid: programs in each dimension; 1 in one whose size is not known.
        semantics: of each grid dimension, such as "parallel".
        operands: inputs, then outputs.
        scratch: each piece of scratch memory, in words.
        equation: the call in the jaxpr.
        values: what the program hands it, of each operand of the equation.
        trips: how often what data decides runs, as somebody says; see walk.
        open_grid: whether the size of a dimension is data that is not given.
    """

    name: str
    machine: str
    grid: tuple[int, ...]
    semantics: tuple[str, ...]
    operands: tuple[Operand, ...]
    scratch: tuple[str, ...] = ()
    equation: Any = field(default=None, repr=False, compare=False)  # of the jaxpr
    values: tuple[Value, ...] = field(default=(), repr=False, compare=False)
    trips: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    open_grid: bool = field(default=False, repr=False, compare=False)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """The operands that the kernel reads."""
        return tuple(o for o in self.operands if o.role == "input")

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """The operands that the kernel writes."""
        return tuple(o for o in self.operands if o.role == "output")

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The names of the grid's dimensions, as the index maps call them."""
        names = jax_pallas.axis_names(self.equation)
        plain = all(n and n.isidentifier() for n in names) and len(set(names)) == len(names)
        return tuple(names if plain else "ijklmnop"[: len(names)])

    @property
    def traffic(self) -> int:
        """Bytes moved between HBM and fast memory, by the pipeline and by hand, over the grid."""
        walked = self.walk.moved.get(-1, 0) if self.walk else 0
        return sum(map(self.moved, self.operands)) + int(walked)

    def moved(self, operand: Operand, *, least: bool = False) -> int:
        """Bytes moved between HBM and fast memory of one operand, by the pipeline and by hand.

        Args:
            operand: one of this call's.
            least: where values that are not known decide, the least, and not the most.
        """
        if operand.memory in FAST:
            if least and not operand.known:
                return operand.block_bytes
            return operand.traffic
        if not self.walk:
            return 0
        number = self.operands.index(operand) + len(self.scalars)
        return int((self.walk.least_moved if least else self.walk.moved).get(number, 0))

    @cached_property
    def scalars(self) -> tuple[np.ndarray | None, ...]:
        """The prefetched scalars; None for what is not known."""
        return _scalars(self.equation, self.values)

    @property
    def open_axes(self) -> tuple[int, ...]:
        """The dimensions of the grid whose sizes are not known."""
        axes = jax_pallas.dynamic_axes(self.equation)
        return tuple(a for a, size in zip(axes, _sizes(axes, self.values)) if size is None)

    @cached_property
    def depends(self) -> tuple[str, ...]:
        """What decides how much the kernel does, and is not known: arguments, in words."""
        axes = jax_pallas.dynamic_axes(self.equation)
        names = set(self.walk.depends if self.walk else ())
        for axis, value in zip(axes, self.values):
            names |= value.unknown if axis in self.open_axes else set()
        first, rank = len(axes), len(self.grid)
        for operand, block in zip(self.operands, jax_pallas.blocks(self.equation), strict=True):
            if not operand.known:
                for number in block.scalars_read(rank):
                    if first + number < len(self.values):
                        names |= self.values[first + number].unknown
                    else:
                        names.add("prefetched scalars")
        return tuple(sorted(names))

    @property
    def by_data(self) -> tuple[str, ...]:
        """Loops whose length, and the grid where its size, is data that is not given, in words;
        `trips` or not."""
        grid = (f"the grid of {self.name}",) if self.open_grid else ()
        return grid + (self.walk.by_data if self.walk else ())

    @property
    def unbounded(self) -> bool:
        """Whether what is not known decides how often something runs, so that there is no most."""
        return bool(self.open_axes) or (self.walk is not None and self.walk.open)

    @cached_property
    def walk(self) -> Walk | None:
        """What the kernel's scalar code does; None where its program ids alone decide."""
        return _walk(self) if worth_it(self.equation) else None

    def buffers(self) -> tuple[tuple[str, int], ...]:
        """What the kernel keeps in VMEM: blocks, twice where they change, and scratch.

        The compiler adds its own temporaries to them.

        Returns:
            Pairs of a name and its bytes.
        """
        held = []
        for o in (o for o in self.operands if o.memory == "vmem"):
            twice = bool(o.moved[1:].any())
            name = f"{o.role} {o.name}" + " (2 buffers)" * twice
            held.append((name, o.block_bytes * (1 + twice)))
        for piece in jax_pallas.scratch(self.equation):
            if piece.in_vmem and piece.shape is not None:
                size = math.prod(piece.shape) * jaxprs.bits(piece.dtype) // 8
                name = piece.name if piece.name.startswith("scratch") else f"scratch {piece.name}"
                held.append((name, size))
        return tuple(held)

    @cached_property
    def programs(self) -> np.ndarray:
        """int [programs, grid rank]: the program ids in the order in which one core runs them."""
        return _ids(self.grid)

    def problems(self) -> list[str]:
        """What the index maps alone show to be wrong.

        An index that leaves the array is moved back inside by interpret=True, and not looked at by
        the lowering. An output block that no program writes keeps whatever was in memory; one that
        shares its memory with an input keeps that.
        """
        problems = []
        for operand in self.operands:
            if not operand.known:
                continue
            outside = (operand.starts < 0) | (operand.starts >= np.array(operand.shape))
            if outside.any():
                step, dim = map(int, np.argwhere(outside)[0])
                program = tuple(int(i) for i in self.programs[step])
                problems.append(
                    f"{operand.role} {operand.name}: program {program} asks for the block "
                    f"that starts at {int(operand.starts[step, dim])} in dimension {dim}, "
                    f"whose size is {operand.shape[dim]}"
                )
            elif operand.role == "output" and not operand.aliased and operand.memory in FAST:
                blocks = math.prod(
                    -(-s // b) for s, b in zip(operand.shape, operand.block, strict=True)
                )
                written = len(np.unique(operand.starts, axis=0))
                if written < blocks:
                    problems.append(
                        f"output {operand.name}: {blocks - written} of its {blocks} blocks are "
                        "written by no program"
                    )
        return problems


def _ids(grid: tuple[int, ...]) -> np.ndarray:
    return np.indices(grid).reshape(len(grid), math.prod(grid)).T


def _sizes(axes: Sequence[int], values: Sequence[Value]) -> list[int | None]:
    """The sizes of the dynamic dimensions of a grid; None for one that is not known."""
    sizes = [value.get() for value in values[: len(axes)]]
    return [None if size is None else int(size) for size in sizes] or [None] * len(axes)


def _scalars(equation: Any, values: Sequence[Value]) -> tuple[np.ndarray | None, ...]:
    first, count = len(jax_pallas.dynamic_axes(equation)), jax_pallas.num_scalars(equation)
    scalars = [value.get() for value in values[first : first + count]]
    return tuple(scalars) or (None,) * count


def _walk(call: Call) -> Walk:
    equation, values = call.equation, call.values
    first = len(jax_pallas.dynamic_axes(equation))
    refs = []
    for number, scalar in enumerate(call.scalars):
        unknown = values[first + number].unknown if values else frozenset({"prefetched scalars"})
        refs.append(Ref(number, "smem", unknown, scalar, from_outside=True))
    starts = {}
    for operand in call.operands:
        number, value = len(refs), None
        place = first + number
        names = frozenset({f"what is in {operand.name}"})
        if operand.role == "input" and place < len(values):
            names = values[place].unknown or names
            if operand.memory == "smem" and operand.known:
                value = values[place].get()
                starts[number] = operand.starts, operand.block
        refs.append(Ref(number, operand.memory, names, value, from_outside=value is not None))
    unsized = [values[i].unknown for i, a in enumerate(range(first)) if a < len(values)]
    depends = frozenset().union(*unsized) if call.open_axes else frozenset()
    return walk(equation, call.grid, refs, starts, depends, call.trips)


def calls(function: Callable[..., Any], *args: Any) -> list[Call]:
    """Trace `function(*args)` for the pallas_calls in it.

    Args:
        function: of arrays.
        args: arrays or jax.ShapeDtypeStruct.

    Returns:
        Each pallas_call, in the order of execution.

    Raises:
        ValueError: where the trace holds no pallas_call, and for a grid of more than MAX_PROGRAMS.
    """
    traced = calls_in(jaxprs.trace(function, *args))
    if not traced:
        raise ValueError("function is one without a pallas_call; accepted: one that makes one")
    return traced


@dataclass(frozen=True)
class Affine:
    """An index map as offset + steps · program ids, in multiples of `unit` elements."""

    offset: np.ndarray  # int [rank]
    steps: np.ndarray  # int [rank, grid rank]
    # int [rank]; a unit is a block, or 1 where the map counts elements (pl.Element).
    unit: np.ndarray


def affine(call: Call) -> list[Affine | None]:
    """The index maps of a call that are affine in the program ids, one for each operand; None where
    a map is not. Exact: the map is evaluated at every program, and beside the grid where a
    dimension has one program only, which says nothing of what would follow."""
    maps: list[Affine | None] = []
    wider = tuple(max(g, 2) for g in call.grid)
    ids = _ids(wider)
    for operand, block in zip(call.operands, jax_pallas.blocks(call.equation), strict=True):
        starts = _starts(block, wider) if operand.known else None
        if starts is None:
            maps.append(None)
            continue
        unit = _units(block)
        offset = starts[0]
        steps = np.zeros((len(unit), len(wider)), int)
        for axis in range(len(wider)):
            steps[:, axis] = starts[math.prod(wider[axis + 1 :])] - offset
        exact = np.array_equal(starts, offset + ids @ steps.T)
        maps.append(Affine(offset // unit, steps // unit[:, None], unit) if exact else None)
    return maps


def calls_in(
    jaxpr: Any,
    values: Mapping[int, Any] | None = None,
    names: Sequence[str] = (),
    trips: Mapping[str, int] | None = None,
) -> list[Call]:
    """Each pallas_call of a jaxpr, those inside loops and other jaxprs included.

    Args:
        jaxpr: of a program.
        values, names: of its arguments, number → value for what depends on values, and all names.
        trips: as of walk, and the name of a kernel or "" → the size of each dimension of its grid
            that is data.
    """
    pairs = handed(jaxpr, values or {}, names)
    kernels = ((e, operands) for e, operands in pairs if jax_pallas.is_kernel(e))
    return [_call(e, tuple(operands), trips or {}) for e, operands in kernels]


def _kernels(jaxpr: Any) -> Iterator[Any]:
    return filter(jax_pallas.is_kernel, jax_pallas.outside_kernels(jaxpr))


def interpreted(jaxpr: Any) -> list[str]:
    """The names of the kernels in a jaxpr that are to be interpreted instead of compiled."""
    return [jax_pallas.name(e) for e in _kernels(jaxpr) if jax_pallas.is_interpreted(e)]


def for_a_tpu(jaxpr: Any) -> list[str]:
    """The names of the kernels in a jaxpr that only a TPU's compiler takes."""
    return [jax_pallas.name(e) for e in _kernels(jaxpr) if jax_pallas.is_for_a_tpu(e)]


def empty(jaxpr: Any) -> tuple[str, tuple[int, ...]] | None:
    """The first kernel of a jaxpr that is handed an array without elements, and its shape."""
    for equation in _kernels(jaxpr):
        for variable in (*jaxprs.inputs(equation), *jaxprs.outputs(equation)):
            if 0 in (jaxprs.shape(variable) or ()):
                return jax_pallas.name(equation), tuple(jaxprs.shape(variable))
    return None


def off_limits(jaxpr: Any) -> str | None:
    """Why nothing is said of how long a program takes: a kernel for the SparseCore, or with more
    programs than are looked at; None where there is none."""
    for equation in _kernels(jaxpr):
        name = jax_pallas.name(equation)
        if jax_pallas.on_sparse_core(equation):
            return f"its kernel {name} runs on the SparseCore, of which nothing is known here"
        if math.prod(size := jax_pallas.grid(equation)) > MAX_PROGRAMS:
            return f"its kernel {name} has a grid of {size}, over {MAX_PROGRAMS:,} programs"
    return None


def _call(equation: Any, values: tuple[Value, ...], trips: Mapping[str, int]) -> Call:
    axes = jax_pallas.dynamic_axes(equation)
    unsized = [place for place, size in enumerate(_sizes(axes, values)) if size is None]
    said = given_trips(trips, jax_pallas.name(equation))
    if said is not None:
        values = tuple(
            Value(known=np.asarray(said)) if place in unsized else value
            for place, value in enumerate(values)
        )
    grid = jax_pallas.grid(equation, _sizes(axes, values))
    scalars = _scalars(equation, values)
    if math.prod(grid) > MAX_PROGRAMS:
        raise ValueError(f"grid is {grid}; accepted: at most {MAX_PROGRAMS} programs to look at")
    machine = "gpu" if jax_pallas.is_triton(equation) else "tpu"
    inputs = jax_pallas.num_inputs(equation)
    aliased = jax_pallas.aliased_outputs(equation)
    operands = []
    for index, block in enumerate(jax_pallas.blocks(equation)):
        memory = block.memory
        if memory in ("none", "default", "device"):
            # A TPU's pipeline fills and empties VMEM; a GPU's program reads global memory itself.
            memory = "vmem" if machine == "tpu" else "hbm"
        starts = _starts(block, grid, scalars)
        unknown = np.zeros((math.prod(grid), len(block.shape)), int)
        operands.append(
            Operand(
                name=block.name,
                role="input" if index < inputs else "output",
                shape=block.shape,
                dtype=block.dtype,
                block=block.sizes,
                memory=memory,
                starts=unknown if starts is None else starts,
                known=starts is not None,
                aliased=index - inputs in aliased,
            )
        )
    return Call(
        jax_pallas.name(equation),
        machine,
        grid,
        jax_pallas.semantics(equation),
        tuple(operands),
        tuple(piece.text for piece in jax_pallas.scratch(equation)),
        equation,
        values,
        trips,
        bool(unsized),
    )


def _units(block: jax_pallas.Block) -> np.ndarray:
    """Elements that a step of the index map's result is long, in each dimension."""
    return np.array([1 if e else s for s, e in zip(block.sizes, block.elements)], int)


def _starts(
    block: jax_pallas.Block, grid: tuple[int, ...], scalars: Sequence[np.ndarray | None] = ()
) -> np.ndarray | None:
    """The first element of the block at every grid point: int [programs, rank]; None where the
    index map reads prefetched scalars that are not known."""
    indices = block.indices(grid, scalars)
    return None if indices is None else indices * _units(block)
