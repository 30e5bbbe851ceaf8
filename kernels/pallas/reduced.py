"""A traced pallas_call by itself: on another grid, or with its blocks laid side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kernels.compat import jax_pallas
from kernels.pallas.calls import Call


def alone(
    call: Call, grid: tuple[int, ...], *, side_by_side: bool = False
) -> tuple[Callable[..., Any], list[Any]]:
    """A function that makes this one pallas_call on another grid.

    Its arrays keep their shapes, and its programs do what the first ones of the whole grid do.

    Args:
        call: as kernels.pallas.calls gives it.
        grid: programs in each dimension.
        side_by_side: store each block of the arrays of rank 3 and more in one piece, so that moving
            it is one contiguous DMA; the kernel sees the same blocks.

    Returns:
        The function, and the shapes that it takes.

    Raises:
        NotImplementedError: with side_by_side, where an index map does not count whole blocks.
    """
    replaced = None
    if side_by_side:
        blocks = jax_pallas.blocks(call.equation)
        replaced = [_side_by_side(block, len(grid)) for block in blocks]
    return jax_pallas.rebuilt(call.equation, grid, replaced)


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
