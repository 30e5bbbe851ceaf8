"""Tiles of beta 1: with operators, and indexed by grids that a mask may cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions import dma, elementwise
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import (
    ON_CHIP,
    PSUM,
    SUMMED,
    UNDEFINED,
    UNWRITTEN,
    WRITTEN,
    Picked,
    View,
    lattice,
)
from kernels.machines.neuron.tensors import Span, Viewable, offsets, sliced


class Beta1Tile(Viewable):
    """A tile of beta 1, or a tensor in HBM; nki.language gives it arithmetic."""

    __slots__ = ()
    __array_ufunc__ = None  # so that NumPy leaves `number * tile` to the tile

    def __getitem__(self, key) -> Any:
        keys = key if isinstance(key, tuple) and not isinstance(key, Span) else (key,)
        if _is_mask(key):
            return masked("an index", self, key)
        if any(isinstance(one, (np.ndarray, View)) for one in keys):
            return grid(self, keys)
        return sliced(self, key)

    def __setitem__(self, key, value) -> None:
        assign(self[key], value)

    __hash__ = object.__hash__


class Grid(Picked, Beta1Tile):
    """tile[i_p, i_f]: elements of a tile, one for each point of a grid of indices. keys: of each
    dimension; they may lie outside, where a mask leaves them out."""

    __slots__ = ("_dynamic", "_keys", "_of")
    _dynamic: bool
    _keys: Any
    _of: Any

    def _again(self, places: np.ndarray, taken: np.ndarray | None) -> Grid:
        picked = _grid_of(self._of, places, None, self._dynamic)
        picked._taken = taken
        return picked

    def __repr__(self) -> str:
        return f"{self._of} indexed by a grid of {list(self.shape)}"

    def __getitem__(self, key) -> Any:
        if isinstance(key, tuple) and all(k is Ellipsis or k == slice(None) for k in key):
            return self
        if _is_mask(key):
            return masked("an index", self, key)
        refuse(f"{self} is indexed again; index the tile")

    __hash__ = object.__hash__


def _is_mask(key) -> bool:
    """Whether a key says where, not which: tile[i_f < n], an older form of mask=."""
    return isinstance(key, (bool, np.bool_, np.ndarray)) and np.asarray(key).dtype == bool


def _affine(key: np.ndarray) -> tuple[int, list[int]] | None:
    """first + Σ step × index, where an array of indices is that."""
    first = int(key.flat[0])
    next_to_it = np.eye(key.ndim, dtype=int)
    steps = [int(key[tuple(at)]) - first if n > 1 else 0 for at, n in zip(next_to_it, key.shape)]
    line = lattice(first, [step * np.arange(n) for step, n in zip(steps, key.shape)])
    return (first, steps) if np.array_equal(line, key) else None


def grid(tile: Beta1Tile, keys: tuple[Any, ...]) -> Any:
    """tile[keys]: a view where the indices go in steps and stay inside, else a Grid."""
    bad = [k for k in keys if not isinstance(k, (int, np.integer, np.ndarray, View))]
    if bad or len(keys) != tile.ndim:
        refuse(
            f"{tile} is indexed with {len(keys)} of {tile.ndim} dimensions"
            + (f", one a {type(bad[0]).__name__}" if bad else "")
            + "; accepted: for each a grid of nl.arange or a whole number"
        )
    dynamic = any(isinstance(k, View) for k in keys)
    arrays = [
        offsets("the index", k).reshape(k.shape) if isinstance(k, View) else np.asarray(k)
        for k in keys
    ]
    try:
        full = np.broadcast_arrays(*arrays)
    except ValueError:
        sizes = " and ".join(str(list(array.shape)) for array in arrays)
        refuse(f"{tile} is indexed by grids of {sizes}, which cannot be broadcast to each other")
    shape = full[0].shape
    if not dynamic and not isinstance(tile, Picked):
        plain = _regular(tile, arrays, shape)
        if plain is not None:
            return plain
    places = np.full(shape, tile.offset, np.int64)
    for key, step in zip(full, tile.strides):
        places = places + key.astype(np.int64) * step
    return _grid_of(tile, places, full, dynamic)


def _regular(tile: Beta1Tile, arrays: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    """The view where the indices go in steps and stay inside."""
    strides = np.zeros(len(shape), int)
    first = tile._offset
    for key, step, size in zip(arrays, tile._data.strides, tile.shape):
        affine = _affine(key.reshape((1,) * (len(shape) - key.ndim) + key.shape))
        if affine is None or key.min() < 0 or key.max() >= size:
            return None
        first += affine[0] * step
        strides += np.multiply(affine[1], step)
    par = 0 if all(a.size == 1 for a in arrays[: tile._par]) else tile._par
    return Beta1Tile(tile._storage, tile._strided(shape, strides.tolist(), first)._data, par)


def _grid_of(tile: View, places: np.ndarray, keys=None, dynamic: bool = False) -> Grid:
    grid = Grid(tile._storage, places, None, tile._storage.data)
    grid._of, grid._keys, grid._dynamic = tile, keys, dynamic
    return grid


def masked(name: str, operand, mask: np.ndarray | None, skip: bool = False) -> Any:
    """The operand as far as a mask takes it; a point outside that no mask leaves out is refused,
    unless `skip` leaves it out."""
    if not isinstance(operand, View):
        return operand
    if not isinstance(operand, Grid):
        if mask is None:
            return operand
        picked = _grid_of(operand, operand._places())
        picked._taken = _fitted(name, operand, mask)
        return picked
    lanes = machine().chip.lanes
    if machine().limits and operand.buffer in ON_CHIP and operand.shape[0] > lanes:
        refuse(f"{name}: {operand} has {operand.shape[0]} partitions; there are {lanes}")
    taken = np.array(inside(operand))
    if mask is not None:
        taken &= _fitted(name, operand, mask)
    outside = np.zeros(operand.shape, bool)
    for axis, key in enumerate(operand._keys or ()):
        size = operand._of.shape[axis]
        beyond = taken & ((key < 0) | (key >= size))
        if beyond.any():
            if machine().limits and not skip:
                refuse(
                    f"{name}: {int(beyond.sum())} indices of {operand} are out of bounds: "
                    f"dimension {axis} has {size} elements; leave them out with mask="
                )
            outside |= beyond
    taken &= ~outside
    if taken.all():
        return operand
    picked = operand._again(operand._flat, taken)
    picked._keys = operand._keys
    return picked


def _fitted(name: str, operand: View, mask) -> np.ndarray:
    """The mask of an operand; what stands for a whole dimension is taken if any of it is."""
    mask = np.asarray(mask)
    for axis in range(-1, -1 - min(mask.ndim, operand.ndim), -1):
        if operand.shape[axis] == 1 < mask.shape[axis]:
            mask = mask.any(axis=axis, keepdims=True)
    try:
        return np.broadcast_to(mask, operand.shape)
    except ValueError:
        refuse(f"{name}: a mask of {list(mask.shape)} does not fit {operand}")


def inside(view: View) -> np.ndarray:
    """Which elements a mask takes."""
    taken = getattr(view, "_taken", None)
    return np.broadcast_to(True if taken is None else taken, view.shape)


def new(shape, dtype, buffer: str = "sbuf") -> Beta1Tile:
    """A tile for a result."""
    return machine().allocate(tuple(shape), dtype, buffer, kind=Beta1Tile)


def loosen(tile: Beta1Tile, mask: Any) -> Beta1Tile:
    """A result; what a mask leaves out of it is anything. A mask of other elements says nothing."""
    over = zip(reversed(np.shape(mask)), reversed(tile.shape))
    if mask is None or np.ndim(mask) > tile.ndim or any(n not in (1, size) for n, size in over):
        return tile
    left = ~np.broadcast_to(mask, tile.shape)
    if left.any():
        tile._change(left, UNDEFINED)
        tile._storage.left = left
    return tile


def _masked_out(dst, value) -> Any:
    """dst without what the mask of value's instruction left out: no instruction writes there."""
    left = value._storage.left
    return dst if left is None else masked("", dst, ~left.reshape(dst.shape))


def _maker(value) -> int | None:
    """The place from the end of the instruction that made this tile, where nothing has used it yet:
    the last one, or the one before it, if that reads out what the other has reduced."""
    core = machine()
    if isinstance(value, Picked) or not isinstance(value, Beta1Tile):
        return None
    place = -2 if core.instructions and core.instructions[-1].name == "reduce_res" else -1
    if len(core.instructions) < -place:
        return None
    writes = core.instructions[place].writes
    own = len(writes) == 1 and writes[0].storage == value._storage.number
    return place if own and value.size == value._storage.data.size else None


def assign(dst, value) -> None:
    """dst = value: the result of the last instruction goes there at once; else a copy."""
    if not isinstance(value, View):
        elementwise.memset(dst, value)
        return
    same = value._storage is dst._storage and value._access() == dst._access()
    if same and value.shape == dst.shape:
        return  # dst[…] += value, which has been done
    core = machine()
    if not core.limits and dst.size != value.size:
        refuse(f"tensor_copy: {value} and dst {dst} differ in shape")
    place = _maker(value)
    last = None if place is None else core.instructions[place]
    if last is not None and dst.size == value.size:
        dst = _masked_out(dst, value)
    direct = (
        last is not None
        and (last.engine != "Tensor" or dst.buffer == PSUM)
        and (last.engine != "DMA" or dst.buffer == "sbuf")
        and dst.buffer in ON_CHIP
        and dst.size == value.size
    )
    if not direct:
        if dst.buffer not in ON_CHIP or value.buffer not in ON_CHIP:
            dma.dma_copy(dst, value, what="store")
        else:
            elementwise.tensor_copy(dst, value)
        return
    assert last is not None and place is not None
    states = value._states()
    summed = last.engine == "Tensor"
    numbers = value._values() if core.numbers else None
    fresh = core.write(last.name, dst, numbers, state=SUMMED if summed else WRITTEN)
    if not summed and not isinstance(states, int):
        core.loosen(last.name, dst, (value,), (states,))
    if core.limits:
        core.check_operand(last.name, last.engine, dst)
        if core.loops:
            total = value._storage.number  # of nl.loop_reduce: all iterations write one
            core._watch(last.name, f"total {total}" * (total in core.totals), (), (dst,))
    psum = last.psum or dst.buffer == PSUM
    core.instructions[place] = last._replace(
        writes=(dst._access(),),
        fresh=fresh,
        psum=psum,
        stride=max(last.stride, dst._stride),
        hoisted=False,
    )


def added(dst, value) -> bool:
    """dst += value where both are in PSUM and the Tensor engine has just made value: it adds."""
    core = machine()
    last = core.instructions[-1] if _maker(value) == -1 else None
    if not last or last.engine != "Tensor" or dst.buffer != PSUM or dst.size != value.size:
        return False
    core.instructions.pop()
    dst, values = _masked_out(dst, value), None
    if core.numbers:
        known = np.broadcast_to(dst._states() != UNWRITTEN, dst.shape)
        before = np.where(known, dtypes.wide(dst._values()), np.float32(0))
        values = value._values().reshape(dst.shape) + before
    fresh = core.write(last.name, dst, values, state=SUMMED)
    core.instructions.append(last._replace(writes=(dst._access(),), fresh=fresh))
    return True
