"""A traced pallas_call by itself: on another grid, or with its blocks laid side by side."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.machines.compat import jax_pallas
from kernels.machines.pallas.calls import Call


def alone(
    call: Call, grid: tuple[int, ...], *, side_by_side: bool = False, share: float = 1.0
) -> tuple[Callable[..., Any], list[Any]]:
    """A function that makes this one pallas_call on another grid, and the shapes that it takes.

    Its arrays keep their shapes, and its programs do what the first ones of the whole grid do; of a
    kernel whose scalars are known, what programs spread over the whole grid do.

    Args:
        call, grid: as kernels.pallas.calls gives it, and programs in each dimension.
        side_by_side: store each block of the arrays of rank 3 and more in one piece, so that moving
            it is one contiguous DMA; the kernel sees the same blocks. NotImplementedError where an
            index map does not count whole blocks.
        share: of the rounds of its outermost loops of known length, how many are left.
    """
    replaced = None
    if side_by_side:
        blocks = jax_pallas.blocks(call.equation)
        replaced = [_side_by_side(block, len(grid)) for block in blocks]
    tables, toggles = {}, None
    if of_values(call):
        places = _spread(call.grid, grid)
        if call.walk:
            tables = {
                # What a program read, or the one nearest to it that read something.
                site: [read[min(read, key=lambda other: abs(other - place))] for place in places]
                for site, read in call.walk.read.items()
            }
        blocks = jax_pallas.blocks(call.equation)
        toggles = [
            [bool(operand.moved[place]) for place in places]
            if operand.known and block.scalars_read(len(grid))
            else None
            for operand, block in zip(call.operands, blocks, strict=True)
        ]
    return jax_pallas.rebuilt(call.equation, grid, replaced, tables, toggles, share)


def of_values(call: Call) -> bool:
    """Whether the values that a kernel is handed decide what it does, and are known."""
    blocks = jax_pallas.blocks(call.equation)
    rank = len(call.grid)
    maps = any(o.known and b.scalars_read(rank) for o, b in zip(call.operands, blocks, strict=True))
    return maps or bool(call.walk and call.walk.read)


def _spread(whole: tuple[int, ...], grid: tuple[int, ...]) -> list[int]:
    """For each program of a reduced grid the one of the whole grid that it stands for."""
    axes = [
        np.linspace(0, size - 1, n).round().astype(int) if n < size else np.arange(n) % size
        for n, size in zip(grid, whole, strict=True)
    ]
    if not axes:
        return [0]
    places = np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), whole)
    return [int(place) for place in places.reshape(-1)]


def _side_by_side(block: jax_pallas.Block, rank: int) -> jax_pallas.Replacement | None:
    """An array [blocks, *block] in the place of the block's own; None where that one may stay."""
    if len(block.shape) < 3 or block.sizes == block.shape:
        return None
    if any(block.elements) or not jax_pallas.reads_only_ids(block, rank):
        raise NotImplementedError("an index map that does not count whole blocks")
    counts = [-(-whole // size) for whole, size in zip(block.shape, block.sizes, strict=True)]

    def raveled(indices: Sequence[Any]) -> tuple[Any, ...]:
        import jax.numpy as jnp

        place = jnp.int32(0)
        for index, count in zip(indices, counts, strict=True):
            place = place * count + index
        return (place, *[jnp.int32(0)] * len(counts))

    return (math.prod(counts), *block.sizes), raveled
