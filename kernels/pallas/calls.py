"""Read a pallas_call as JAX traced it: the grid, and the block that each program touches.

Nothing here is told by the kernel's author. The grid, the block shapes, the memory spaces and the
index maps come out of the traced program, so a picture or a count made from them cannot drift
away from the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

FAST = ("vmem", "smem")  # memories that the pipeline fills and empties
MAX_PROGRAMS = 1 << 20  # index maps are evaluated at every grid point; beyond this, say so


@dataclass(frozen=True)
class Operand:
    """One input or output of a pallas_call.

    shape, dtype: of the whole array. block: the block's shape, squeezed dimensions as 1.
    memory: "vmem", "smem", "hbm" (left in place) or "any" (left to the compiler). starts: int array
    [programs, rank], the first element of the block that each program touches, in grid order.
    aliased: whether an output shares its memory with an input.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...]
    memory: str
    starts: np.ndarray = field(repr=False, compare=False)
    known: bool = True  # False where the index map reads values that only the run knows
    aliased: bool = False

    @property
    def blocked(self) -> bool:
        """Whether the operand is cut into more than one block."""
        return self.block != self.shape

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in fast memory."""
        return math.prod(self.block) * np.dtype(self.dtype).itemsize

    @cached_property
    def moved(self) -> np.ndarray:
        """bool [programs]: whether the program touches another block than the one before it.

        A TPU's pipeline fetches an input, or writes an output back, only when its block changes.
        Where the blocks are not known, each program is taken to touch another one.
        """
        if not self.known:
            return np.ones(len(self.starts), bool)
        changed = np.any(self.starts[1:] != self.starts[:-1], axis=1)
        return np.concatenate([np.ones(min(1, len(self.starts)), bool), changed])

    @property
    def traffic(self) -> int:
        """Bytes moved between HBM and fast memory over the grid; a clipped block counts clipped.

        An operand left in HBM has no index map, so it counts 0; what the kernel copies of it by
        hand is not known here.
        """
        return int(self.moved_bytes.sum()) if self.memory in FAST else 0

    @cached_property
    def moved_bytes(self) -> np.ndarray:
        """int [programs]: bytes of the block that the program touches anew; a clipped block counts
        clipped, and one that stays counts 0."""
        if not self.known:
            return np.full(len(self.starts), self.block_bytes)
        sizes = np.minimum(np.array(self.block), np.array(self.shape) - self.starts)
        elements = np.prod(np.maximum(sizes, 0), axis=1, dtype=np.int64)
        return np.where(self.moved, elements * np.dtype(self.dtype).itemsize, 0)


@dataclass(frozen=True)
class Call:
    """One pallas_call: its grid, the semantics of each grid dimension, and its operands.

    machine: "tpu" or "gpu", whichever the kernel was written for.
    """

    name: str
    machine: str
    grid: tuple[int, ...]
    semantics: tuple[str, ...]
    operands: tuple[Operand, ...]
    scratch: tuple[str, ...] = ()
    equation: Any = field(default=None, repr=False, compare=False)  # of the jaxpr

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
        mapping = self.equation.params["grid_mapping"]
        named = [b.index_map_jaxpr.jaxpr.debug_info.arg_names for b in mapping.block_mappings]
        names = max(named, key=lambda n: sum(map(bool, n or ())), default=None) or ()
        names = [*names, *[""] * len(self.grid)][: len(self.grid)]
        plain = all(n and n.isidentifier() for n in names) and len(set(names)) == len(names)
        return tuple(names if plain else "ijklmnop"[: len(names)])

    @property
    def traffic(self) -> int:
        """Bytes moved between HBM and fast memory by the pipeline, over the whole grid."""
        return sum(operand.traffic for operand in self.operands)

    def buffers(self) -> tuple[tuple[str, int], ...]:
        """Name and bytes of what the kernel keeps in VMEM: blocks, twice where they change, and
        scratch. The compiler adds its own temporaries to them."""
        held = [
            (
                f"{o.role} {o.name}" + (" (2 buffers)" if o.moved[1:].any() else ""),
                o.block_bytes * (2 if o.moved[1:].any() else 1),
            )
            for o in self.operands
            if o.memory == "vmem"
        ]
        kernel, mapping = self.equation.params["jaxpr"], self.equation.params["grid_mapping"]
        first = mapping.num_index_operands + len(mapping.block_mappings)
        for index, variable in enumerate(kernel.invars[first:], first):
            aval = getattr(variable.aval, "inner_aval", variable.aval)
            if "vmem" in str(variable.aval).lower() and hasattr(aval, "dtype"):
                size = math.prod(aval.shape) * np.dtype(aval.dtype).itemsize
                name = _name(kernel, index)
                held.append((name if name.startswith("scratch") else f"scratch {name}", size))
        return tuple(held)

    @cached_property
    def programs(self) -> np.ndarray:
        """int [programs, grid rank]: the program ids in the order in which one core runs them."""
        return np.stack(np.unravel_index(np.arange(math.prod(self.grid)), self.grid or (1,)), 1)[
            :, : len(self.grid)
        ]

    def problems(self) -> list[str]:
        """What the index maps alone show to be wrong; empty where they show nothing.

        An index that leaves the array is moved back inside by interpret=True, and not looked at by
        the lowering. An output block that no program writes keeps whatever was in memory; one that
        shares its memory with an input keeps that.
        """
        found = []
        for operand in self.operands:
            if not operand.known:
                continue
            outside = (operand.starts < 0) | (operand.starts >= np.array(operand.shape))
            if outside.any():
                step, dim = map(int, np.argwhere(outside)[0])
                found.append(
                    f"{operand.role} {operand.name}: program {self._id(step)} asks for the block "
                    f"that starts at {int(operand.starts[step, dim])} in dimension {dim}, "
                    f"whose size is {operand.shape[dim]}"
                )
            elif operand.role == "output" and not operand.aliased and operand.memory in FAST:
                blocks = math.prod(
                    -(-s // b) for s, b in zip(operand.shape, operand.block, strict=True)
                )
                written = len(np.unique(operand.starts, axis=0))
                if written < blocks:
                    found.append(
                        f"output {operand.name}: {blocks - written} of its {blocks} blocks are "
                        "written by no program"
                    )
        return found

    def _id(self, step: int) -> tuple[int, ...]:
        return tuple(int(i) for i in self.programs[step])


def calls(function: Callable[..., Any], *args: Any) -> list[Call]:
    """Trace `function(*args)` and return each pallas_call in it, in the order of execution.

    args: arrays or jax.ShapeDtypeStruct. Raises ValueError where the trace holds no pallas_call.
    """
    import jax

    found = calls_in(jax.make_jaxpr(function)(*args).jaxpr)
    if not found:
        raise ValueError("function is one without a pallas_call; accepted: one that makes one")
    return found


@dataclass(frozen=True)
class Affine:
    """An index map as offset + steps · program ids, in multiples of `unit` elements.

    offset, unit: int [rank]; a unit is a block, or 1 where the map counts elements (pl.Element).
    steps: int [rank, grid rank].
    """

    offset: np.ndarray
    steps: np.ndarray
    unit: np.ndarray


def affine(call: Call) -> list[Affine | None]:
    """The index map of each operand where it is affine in the program ids, otherwise None.

    Exact: the map is evaluated at every program, and beside the grid where a dimension has one
    program only, which says nothing of what would follow.
    """
    from jax.experimental import pallas as pl

    found: list[Affine | None] = []
    wider = tuple(max(g, 2) for g in call.grid)
    ids = np.stack(np.unravel_index(np.arange(math.prod(wider)), wider or (1,)), 1)[:, : len(wider)]
    for operand, block in zip(call.operands, call.equation.params["grid_mapping"].block_mappings):
        starts = _starts(block, wider, operand.shape) if operand.known else None
        if starts is None:
            found.append(None)
            continue
        counted = [1 if isinstance(b, pl.Element) else _size(b) for b in block.block_shape]
        unit = np.array(counted, int)
        offset = starts[0]
        steps = np.zeros((len(unit), len(wider)), int)
        for axis in range(len(wider)):
            steps[:, axis] = starts[math.prod(wider[axis + 1 :])] - offset
        exact = np.array_equal(starts, offset + ids @ steps.T)
        found.append(Affine(offset // unit, steps // unit[:, None], unit) if exact else None)
    return found


def calls_in(jaxpr: Any) -> list[Call]:
    """Each pallas_call of a jaxpr, those inside loops and other jaxprs included."""
    return [_call(eqn) for eqn in _pallas_calls(jaxpr)]


def interpreted(jaxpr: Any) -> list[str]:
    """The names of the kernels in a jaxpr that are to be interpreted instead of compiled."""
    return [_kernel_name(eqn) for eqn in _pallas_calls(jaxpr) if eqn.params.get("interpret")]


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the jaxprs inside it, kernels included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations(inner)


def inner_jaxprs(eqn: Any) -> Iterator[Any]:
    """The jaxprs among an equation's parameters."""
    for value in eqn.params.values():
        for inner in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield inner


def _pallas_calls(jaxpr: Any) -> Iterator[Any]:
    """Walk a jaxpr and every jaxpr inside it, but do not enter kernels."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "pallas_call":
            yield eqn
            continue
        for inner in inner_jaxprs(eqn):
            yield from _pallas_calls(inner)


def _call(eqn: Any) -> Call:
    mapping = eqn.params["grid_mapping"]
    grid = tuple(int(g) for g in mapping.grid)
    if math.prod(grid) > MAX_PROGRAMS:
        raise ValueError(f"grid is {grid}; accepted: at most {MAX_PROGRAMS} programs to look at")
    params = eqn.params.get("compiler_params")
    machine = "gpu" if "triton" in type(params).__module__ else "tpu"
    given = iter(getattr(params, "dimension_semantics", None) or ())
    # jax.vmap adds grid dimensions of its own; their programs know nothing of each other.
    semantics = tuple(
        "parallel" if i in mapping.vmapped_dims else _word(next(given, "arbitrary"))
        for i in range(len(grid))
    )
    kernel = eqn.params["jaxpr"]
    aliased = {output for _, output in eqn.params.get("input_output_aliases") or ()}
    operands = []
    for index, block in enumerate(mapping.block_mappings):
        role = "input" if index < mapping.num_inputs else "output"
        aval = block.array_aval
        shape = tuple(aval.shape)
        starts = _starts(block, grid, shape)
        operands.append(
            Operand(
                name=_name(kernel, mapping.num_index_operands + index),
                role=role,
                shape=shape,
                dtype=str(aval.dtype),
                block=tuple(_size(b) for b in block.block_shape),
                memory=_memory(block, machine),
                starts=np.zeros((math.prod(grid), len(shape)), int) if starts is None else starts,
                known=starts is not None,
                aliased=index - mapping.num_inputs in aliased,
            )
        )
    scratch = tuple(
        str(getattr(v.aval, "inner_aval", v.aval))
        for v in kernel.invars[mapping.num_index_operands + len(mapping.block_mappings) :]
    )
    return Call(_kernel_name(eqn), machine, grid, semantics, tuple(operands), scratch, eqn)


def _kernel_name(eqn: Any) -> str:
    source = getattr(eqn.params["jaxpr"].debug_info, "func_src_info", None) or "kernel"
    return eqn.params.get("name") or source.split(" at ")[0]


def _name(kernel: Any, index: int) -> str:
    names = getattr(kernel.debug_info, "arg_names", None)
    name = (names[index] if names and index < len(names) else None) or f"operand {index}"
    return name.removesuffix("_ref")


def _size(dimension: Any) -> int:
    """The size of one block dimension; a squeezed one counts 1."""
    from jax.experimental import pallas as pl

    if dimension is None or isinstance(dimension, pl.Squeezed):
        return 1
    return int(getattr(dimension, "block_size", dimension))


def _memory(block: Any, machine: str) -> str:
    name = _word(getattr(block.transformed_block_aval, "memory_space", None))
    if name in ("none", "default", "device"):
        # A TPU's pipeline fills and empties VMEM; a GPU's program reads global memory itself.
        return "vmem" if machine == "tpu" else "hbm"
    return name


def _word(value: Any) -> str:
    """The plain word for one of JAX's enumerations."""
    return str(getattr(value, "value", value)).lower()


def _starts(block: Any, grid: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray | None:
    """Evaluate one index map at every grid point; element indices, int [programs, rank].

    None where the map reads prefetched scalars, whose values only the run knows.
    """
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.extend.core import jaxpr_as_fun

    count = math.prod(grid)
    ids = np.stack(np.unravel_index(np.arange(count), grid or (1,)), 0)[: len(grid)]
    closed = block.index_map_jaxpr
    prefetched = closed.jaxpr.invars[len(grid) :]
    if prefetched:
        read = {v for eqn in closed.jaxpr.eqns for v in eqn.invars if not hasattr(v, "val")}
        if read & set(prefetched):
            return None
        closed = closed.replace(jaxpr=closed.jaxpr.replace(invars=closed.jaxpr.invars[: len(grid)]))
    if grid:
        indices = jax.vmap(jaxpr_as_fun(closed))(*map(jnp.asarray, ids))
    else:
        indices = [jnp.reshape(i, (1,)) for i in jaxpr_as_fun(closed)()]
    # The index map counts blocks, except where pl.Element makes it count elements.
    scale = [1 if isinstance(b, pl.Element) else _size(b) for b in block.block_shape]
    columns = [
        np.broadcast_to(np.asarray(i), count) * s for i, s in zip(indices, scale, strict=True)
    ]
    return np.stack(columns, 1) if columns else np.zeros((count, 0), int)
