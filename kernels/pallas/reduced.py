"""A traced pallas_call by itself: on another grid, or with its blocks laid side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kernels.pallas.calls import Call


def alone(
    call: Call, grid: tuple[int, ...], *, side_by_side: bool = False
) -> tuple[Callable[..., Any], list[Any]]:
    """A function that makes this one pallas_call on `grid`, and the shapes that it takes.

    Its arrays keep their shapes, and its programs do what the first ones of the whole grid do.
    side_by_side: store each block of the arrays of rank 3 and more in one piece, so that moving it
    is one contiguous DMA; the kernel sees the same blocks. Raises NotImplementedError where an
    index map does not count whole blocks.
    """
    import jax

    equation = call.equation
    mapping = equation.params["grid_mapping"].replace(grid=grid)
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    params = dict(equation.params)
    if side_by_side:
        blocks = [_side_by_side(b, len(grid)) for b in mapping.block_mappings]
        mapping = mapping.replace(block_mappings=tuple(blocks))
        first = mapping.num_index_operands
        for i, block in enumerate(blocks[: mapping.num_inputs]):
            aval = block.array_aval
            shapes[first + i] = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
        results = blocks[mapping.num_inputs :]
        params["out_avals"] = tuple(
            aval.update(shape=block.array_aval.shape)
            for aval, block in zip(params["out_avals"], results, strict=True)
        )
    params["grid_mapping"] = mapping

    def kernel(*operands: Any) -> Any:
        return equation.primitive.bind(*operands, **params)

    return kernel, shapes


def _side_by_side(block: Any, rank: int) -> Any:
    """The block mapping over an array [blocks, *block], with the index map raveled."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.extend.core import jaxpr_as_fun

    shape = block.array_aval.shape
    sizes = [int(getattr(b, "block_size", 1) or 1) for b in block.block_shape]
    if len(shape) < 3 or tuple(sizes) == tuple(shape):
        return block
    closed = block.index_map_jaxpr
    if len(closed.in_avals) != rank or any(isinstance(b, pl.Element) for b in block.block_shape):
        raise NotImplementedError("an index map that does not count whole blocks")
    counts = [-(-whole // size) for whole, size in zip(shape, sizes, strict=True)]

    def raveled(*ids: Any) -> tuple[Any, ...]:
        place = jnp.int32(0)
        for index, count in zip(jaxpr_as_fun(closed)(*ids), counts, strict=True):
            place = place * count + index
        return (place, *[jnp.int32(0)] * len(shape))

    ids = [jax.ShapeDtypeStruct((), jnp.int32)] * rank
    return block.replace(
        block_shape=(pl.Squeezed(), *block.block_shape),
        index_map_jaxpr=jax.make_jaxpr(raveled)(*ids),
        index_map_out_tree=jax.tree.structure((0,) * (len(shape) + 1)),
        array_aval=block.array_aval.update(shape=(math.prod(counts), *sizes)),
    )
