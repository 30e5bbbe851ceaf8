"""Read a pallas_call as JAX traced it: the grid, and the block that each program touches.

Nothing here is told by the kernel's author. The grid, the block shapes, the memory spaces and the
index maps come out of the traced program, so a picture or a count made from them cannot drift
away from the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kernels.compat import jax_pallas, jaxprs

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
        known: False where the index map reads values that only the run knows.
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

        An operand left in HBM has no index map, so it counts 0; what the kernel copies of it by
        hand is not known here.
        """
        return int(self.moved_bytes.sum()) if self.memory in FAST else 0

    @cached_property
    def moved_bytes(self) -> np.ndarray:
        """Bytes of the block that each program touches anew.

        Returns:
            int [programs]; a clipped block counts clipped, and one that stays counts 0.
        """
        if not self.known:
            return np.full(len(self.starts), self.block_bytes)
        sizes = np.minimum(np.array(self.block), np.array(self.shape) - self.starts)
        elements = np.prod(np.maximum(sizes, 0), axis=1, dtype=np.int64)
        return np.where(self.moved, elements * np.dtype(self.dtype).itemsize, 0)


@dataclass(frozen=True)
class Call:
    """One pallas_call: its grid, the semantics of each grid dimension, and its operands.

    Args:
        name: the kernel's.
        machine: "tpu" or "gpu", whichever the kernel was written for.
        grid: programs in each dimension.
        semantics: of each grid dimension, such as "parallel".
        operands: inputs, then outputs.
        scratch: each piece of scratch memory, in words.
        equation: the call in the jaxpr.
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
        names = jax_pallas.axis_names(self.equation)
        plain = all(n and n.isidentifier() for n in names) and len(set(names)) == len(names)
        return tuple(names if plain else "ijklmnop"[: len(names)])

    @property
    def traffic(self) -> int:
        """Bytes moved between HBM and fast memory by the pipeline, over the whole grid."""
        return sum(operand.traffic for operand in self.operands)

    def buffers(self) -> tuple[tuple[str, int], ...]:
        """What the kernel keeps in VMEM: blocks, twice where they change, and scratch.

        The compiler adds its own temporaries to them.

        Returns:
            Pairs of a name and its bytes.
        """
        held = [
            (
                f"{o.role} {o.name}" + (" (2 buffers)" if o.moved[1:].any() else ""),
                o.block_bytes * (2 if o.moved[1:].any() else 1),
            )
            for o in self.operands
            if o.memory == "vmem"
        ]
        for each in jax_pallas.scratch(self.equation):
            if each.in_vmem and each.shape is not None:
                size = math.prod(each.shape) * np.dtype(each.dtype).itemsize
                name = each.name if each.name.startswith("scratch") else f"scratch {each.name}"
                held.append((name, size))
        return tuple(held)

    @cached_property
    def programs(self) -> np.ndarray:
        """int [programs, grid rank]: the program ids in the order in which one core runs them."""
        return np.stack(np.unravel_index(np.arange(math.prod(self.grid)), self.grid or (1,)), 1)[
            :, : len(self.grid)
        ]

    def problems(self) -> list[str]:
        """What the index maps alone show to be wrong.

        An index that leaves the array is moved back inside by interpret=True, and not looked at by
        the lowering. An output block that no program writes keeps whatever was in memory; one that
        shares its memory with an input keeps that.

        Returns:
            A sentence for each problem; empty where they show nothing.
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
    """Trace `function(*args)` for the pallas_calls in it.

    Args:
        function: of arrays.
        args: arrays or jax.ShapeDtypeStruct.

    Returns:
        Each pallas_call, in the order of execution.

    Raises:
        ValueError: where the trace holds no pallas_call, and for a grid of more than MAX_PROGRAMS.
    """
    found = calls_in(jaxprs.trace(function, *args))
    if not found:
        raise ValueError("function is one without a pallas_call; accepted: one that makes one")
    return found


@dataclass(frozen=True)
class Affine:
    """An index map as offset + steps · program ids, in multiples of `unit` elements.

    Args:
        offset: int [rank].
        steps: int [rank, grid rank].
        unit: int [rank]; a unit is a block, or 1 where the map counts elements (pl.Element).
    """

    offset: np.ndarray
    steps: np.ndarray
    unit: np.ndarray


def affine(call: Call) -> list[Affine | None]:
    """The index maps of a call that are affine in the program ids.

    Exact: the map is evaluated at every program, and beside the grid where a dimension has one
    program only, which says nothing of what would follow.

    Args:
        call: as `calls` gives it.

    Returns:
        One for each operand; None where its map is not affine.
    """
    found: list[Affine | None] = []
    wider = tuple(max(g, 2) for g in call.grid)
    ids = np.stack(np.unravel_index(np.arange(math.prod(wider)), wider or (1,)), 1)[:, : len(wider)]
    for operand, block in zip(call.operands, jax_pallas.blocks(call.equation), strict=True):
        starts = _starts(block, wider) if operand.known else None
        if starts is None:
            found.append(None)
            continue
        unit = _units(block)
        offset = starts[0]
        steps = np.zeros((len(unit), len(wider)), int)
        for axis in range(len(wider)):
            steps[:, axis] = starts[math.prod(wider[axis + 1 :])] - offset
        exact = np.array_equal(starts, offset + ids @ steps.T)
        found.append(Affine(offset // unit, steps // unit[:, None], unit) if exact else None)
    return found


def calls_in(jaxpr: Any) -> list[Call]:
    """Each pallas_call of a jaxpr, those inside loops and other jaxprs included."""
    return [_call(e) for e in jax_pallas.outside_kernels(jaxpr) if jax_pallas.is_pallas_call(e)]


def interpreted(jaxpr: Any) -> list[str]:
    """The names of the kernels in a jaxpr that are to be interpreted instead of compiled."""
    return [
        jax_pallas.name(e)
        for e in jax_pallas.outside_kernels(jaxpr)
        if jax_pallas.is_pallas_call(e) and jax_pallas.is_interpreted(e)
    ]


def _call(equation: Any) -> Call:
    grid = jax_pallas.grid(equation)
    if math.prod(grid) > MAX_PROGRAMS:
        raise ValueError(f"grid is {grid}; accepted: at most {MAX_PROGRAMS} programs to look at")
    machine = "gpu" if jax_pallas.is_triton(equation) else "tpu"
    inputs = jax_pallas.num_inputs(equation)
    aliased = jax_pallas.aliased_outputs(equation)
    operands = []
    for index, block in enumerate(jax_pallas.blocks(equation)):
        starts = _starts(block, grid)
        unknown = np.zeros((math.prod(grid), len(block.shape)), int)
        operands.append(
            Operand(
                name=block.name,
                role="input" if index < inputs else "output",
                shape=block.shape,
                dtype=block.dtype,
                block=block.sizes,
                memory=_memory(block, machine),
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
        tuple(each.text for each in jax_pallas.scratch(equation)),
        equation,
    )


def _memory(block: jax_pallas.Block, machine: str) -> str:
    if block.memory in ("none", "default", "device"):
        # A TPU's pipeline fills and empties VMEM; a GPU's program reads global memory itself.
        return "vmem" if machine == "tpu" else "hbm"
    return block.memory


def _units(block: jax_pallas.Block) -> np.ndarray:
    """Elements that a step of the index map's result is long, in each dimension."""
    return np.array([1 if e else s for s, e in zip(block.sizes, block.elements)], int)


def _starts(block: jax_pallas.Block, grid: tuple[int, ...]) -> np.ndarray | None:
    """The first element of the block at every grid point: int [programs, rank].

    None where the index map reads prefetched scalars, whose values only the run knows.
    """
    indices = block.indices(grid)
    return None if indices is None else indices * _units(block)
