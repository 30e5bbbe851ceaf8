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
    Picked,
    View,
)
from kernels.machines.neuron.tensors import Span, Viewable, offsets, sliced, strided


class Operators:
    """What tiles and indexed tiles have in common: arithmetic, which nki.language gives them."""

    __slots__ = ()
    __array_ufunc__ = None  # so that NumPy leaves `number * tile` to the tile


class Beta1Tile(Operators, Viewable):
    """A tile of beta 1, or a tensor in HBM."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) and not isinstance(key, Span) else (key,)
        if any(isinstance(one, (np.ndarray, View)) for one in keys):
            return grid(self, keys)
        return sliced(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
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
        picked = Grid(self._storage, places, taken, self._storage.data)
        picked._keys, picked._of, picked._dynamic = None, self._of, self._dynamic
        return picked

    def _label(self) -> str:
        return f"{self._of._label()} indexed by a grid of {list(self.shape)}"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and all(k is Ellipsis or k == slice(None) for k in key):
            return self
        refuse(f"{self} is indexed again; index the tile")

    __hash__ = object.__hash__


def _affine(key: np.ndarray) -> tuple[int, list[int]] | None:
    """first + Σ step × index, where an array of indices is that."""
    first = int(key.flat[0])
    steps, line = [], np.full((1,) * key.ndim, first)
    for axis, size in enumerate(key.shape):
        at = tuple([1 if a == axis else 0 for a in range(key.ndim)])
        step = int(key[at]) - first if size > 1 else 0
        steps.append(step)
        if step:
            line = line + (step * np.arange(size)).reshape(
                [-1 if a == axis else 1 for a in range(key.ndim)]
            )
    return (first, steps) if np.array_equal(np.broadcast_to(line, key.shape), key) else None


def grid(tile: Beta1Tile, keys: tuple[Any, ...]) -> Any:
    """tile[keys]: a view where the indices go in steps and stay inside, else a Grid."""
    bad = [k for k in keys if not isinstance(k, (int, np.integer, np.ndarray, View))]
    if bad or len(keys) != tile.ndim:
        refuse(
            f"{tile} is indexed with {len(keys)} of {tile.ndim} dimensions"
            + (f", one a {type(bad[0]).__name__}" if bad else "")
            + "; accepted: for each a grid of nl.arange or a whole number"
        )
    dynamic = [isinstance(k, View) for k in keys]
    arrays = [
        offsets("the index", k).reshape(k.shape) if isinstance(k, View) else np.asarray(k)
        for k in keys
    ]
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    strides = [0] * len(shape)
    first, box, plain = 0, [], not any(dynamic) and not isinstance(tile, Picked)
    for axis, key in enumerate(arrays):
        if not plain:
            break
        affine = _affine(key.reshape((1,) * (len(shape) - key.ndim) + key.shape))
        low, high = int(key.min()), int(key.max())
        if affine is None or low < 0 or high >= tile.shape[axis]:
            plain = False
            break
        box.append((low, high + 1))
        step = tile._data.strides[axis]
        first += affine[0] * step
        for a, by in enumerate(affine[1]):
            strides[a] += by * step
    if plain:
        item = tile.dtype.itemsize
        start = (tile._offset + first) // item
        flat = tile._storage.data.reshape(-1)
        if flat.dtype != tile.dtype:
            flat = flat.view(tile.dtype)
        data = strided(flat, start, shape, strides)
        known = None
        if tile._box is not None and tile._axes is not None and None not in tile._axes:
            new = list(tile._box)
            owners: Any = tile._axes
            for (low, high), own in zip(box, owners):
                begin = tile._box[own][0]
                new[own] = (begin + low, begin + high)
            known = tuple(new)
        par = tile._par
        if par and all(a.ndim == 0 or a.size == 1 for a in arrays[:par]):
            par = 0
        return Beta1Tile(tile._storage, data, known, None, par)
    full = np.broadcast_arrays(*arrays)
    places = np.full(shape, tile._offset // tile.dtype.itemsize, np.int64)
    for axis, key in enumerate(full):
        places = places + key.astype(np.int64) * (tile._data.strides[axis] // tile.dtype.itemsize)
    result = Grid(tile._storage, places, None, tile._storage.data)
    result._of = tile
    result._keys = full
    result._dynamic = any(dynamic)
    return result


def masked(name: str, operand: Any, mask: np.ndarray | None, skip: bool = False) -> Any:
    """The operand as far as a mask takes it; a point outside that no mask leaves out is refused.

    Args:
        skip: leave out what is outside.
    """
    if not isinstance(operand, View):
        return operand
    if not isinstance(operand, Grid):
        if mask is None:
            return operand
        picked = Grid(operand._storage, operand._places(), None, operand._storage.data)
        picked._of, picked._keys, picked._dynamic = operand, None, False
        picked._taken = np.broadcast_to(mask, operand.shape)
        return picked
    lanes = machine().chip.lanes
    if machine().limits and operand.buffer in ON_CHIP and operand.shape[0] > lanes:
        refuse(f"{name}: {operand} has {operand.shape[0]} partitions; there are {lanes}")
    taken = np.ones(operand.shape, bool)
    if mask is not None:
        taken = np.array(np.broadcast_to(mask, operand.shape))
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


def new(shape: Any, dtype: Any, buffer: str = "sbuf") -> Beta1Tile:
    """A tile for a result."""
    return machine().allocate(tuple(shape), dtype, buffer, kind=Beta1Tile)


def loosen(tile: View, mask: np.ndarray | None) -> None:
    """What a mask leaves out of a result is anything."""
    if mask is None:
        return
    left = ~np.broadcast_to(mask, tile.shape) if np.ndim(mask) <= tile.ndim else None
    if left is None or not left.any():
        return
    tile._storage.states()
    seen = tile._states()
    assert isinstance(seen, np.ndarray)
    seen[left] = UNDEFINED


def _is_result(value: Any) -> bool:
    """Whether the last instruction made this tile, and nothing has used it yet."""
    core = machine()
    if isinstance(value, Picked) or not isinstance(value, Beta1Tile) or not core.instructions:
        return False
    writes = core.instructions[-1].writes
    return (
        len(writes) == 1
        and writes[0].storage == value._storage.number
        and value.size == value._storage.data.size
    )


def assign(dst: Any, value: Any, mask: np.ndarray | None = None) -> None:
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
    last = core.instructions[-1] if core.instructions else None
    direct = (
        _is_result(value)
        and last is not None
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
    assert last is not None
    core.instructions.pop()
    states = value._states()
    fresh = core.write(last.name, dst, value._values() if core.numbers else None)
    state = SUMMED if last.engine == "Tensor" else None
    if state is not None:
        dst._mark(state)
    elif not isinstance(states, int):
        core.loosen(last.name, dst, (value,), (states,))
    if core.limits:
        core.check_operand(last.name, last.engine, dst)
        if core.loops:
            core._watch(last.name, "", (), (dst,))
    psum = last.psum or dst.buffer == PSUM
    core.instructions.append(
        last._replace(
            writes=(dst._access(),),
            fresh=fresh,
            psum=psum,
            stride=max(last.stride, dst._stride),
            hoisted=False,
        )
    )


def added(dst: Any, value: Any) -> bool:
    """dst += value where both are in PSUM and the Tensor engine has just made value: it adds."""
    core = machine()
    if not (isinstance(value, Beta1Tile) and _is_result(value)):
        return False
    last = core.instructions[-1]
    if last.engine != "Tensor" or dst.buffer != PSUM or dst.size != value.size:
        return False
    core.instructions.pop()
    values = None
    if core.numbers:
        known = np.broadcast_to(dst._states() != UNWRITTEN, dst.shape)
        before = np.where(known, dtypes.wide(dst._values()), np.float32(0))
        values = value._values().reshape(dst.shape) + before
    fresh = core.write(last.name, dst, values, state=SUMMED)
    core.instructions.append(last._replace(writes=(dst._access(),), fresh=fresh))
    return True
