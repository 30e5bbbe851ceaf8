"""Tiles of beta 1: with operators, and indexed by grids that a mask may cut."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.neuron.errors import refuse
from kernels.neuron.machine import (
    MASKED,
    ON_CHIP,
    PARTITIONS,
    SBUF,
    UNWRITTEN,
    WRITTEN,
    Access,
    View,
    machine,
    starts,
)
from kernels.neuron.tensors import sliced


class Operators:
    """What tiles and indexed tiles have in common: arithmetic, which nki.language gives them."""

    __array_ufunc__ = None  # so that NumPy leaves `number * tile` to the tile


class Tile(Operators, View):
    """A tile of beta 1, or a tensor in HBM."""

    def __getitem__(self, key: Any) -> Tile | Grid:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(one, np.ndarray) for one in keys):
            return Grid(self, keys)
        return sliced(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        assign(self[key], value, None)

    __hash__ = object.__hash__


class Grid(Operators):
    """tile[i_p, i_f]: elements of a tile, one for each point of a grid of indices."""

    def __init__(self, tile: Tile, keys: tuple[Any, ...]) -> None:
        bad = [k for k in keys if not isinstance(k, (int, np.integer, np.ndarray))]
        if bad or len(keys) != tile.ndim:
            refuse(
                f"{tile} is indexed with {len(keys)} of {tile.ndim} dimensions"
                + (f", one a {type(bad[0]).__name__}" if bad else "")
                + "; accepted: for each a grid of nl.arange or a whole number"
            )
        self.tile = tile
        self.keys = tuple(np.broadcast_arrays(*keys))
        self.shape = self.keys[0].shape
        self.ndim = len(self.shape)
        self.dtype = tile.dtype
        self.buffer = tile.buffer
        self._storage = tile._storage

    def __repr__(self) -> str:
        return f"{self.tile} indexed by a grid of {list(self.shape)}"

    def inside(self, name: str, mask: np.ndarray | None) -> np.ndarray:
        """Where the grid is taken; a point outside the tile that no mask leaves out is refused."""
        taken = np.ones(self.shape, bool) if mask is None else np.broadcast_to(mask, self.shape)
        for axis, (key, size) in enumerate(zip(self.keys, self.tile.shape)):
            outside = taken & ((key < 0) | (key >= size))
            if outside.any():
                if machine().limits:
                    refuse(
                        f"{name}: {int(outside.sum())} indices of {self} are out of bounds: "
                        f"dimension {axis} has {size} elements; leave them out with mask="
                    )
                taken = taken & ~outside
        return taken

    def clipped(self) -> tuple[np.ndarray, ...]:
        """The indices, moved inside."""
        return tuple(np.clip(k, 0, n - 1) for k, n in zip(self.keys, self.tile.shape))

    def access(self, taken: np.ndarray) -> Access:
        """The range that it touches."""
        box = list(self.tile._box)
        for axis, key in enumerate(self.keys):
            own = self.tile._axes[axis]
            if own is not None and taken.any():
                first = self.tile._box[own][0]
                box[own] = (first + int(key[taken].min()), first + int(key[taken].max()) + 1)
        return Access(self._storage.number, tuple(box))

    @property
    def stride(self) -> int:
        """Bytes between neighbours along the last dimension."""
        key = self.keys[-1]
        step = int(key.flat[1] - key.flat[0]) if key.shape[-1] > 1 else 1
        return abs(step) * self.dtype.itemsize


Operand = Tile | Grid


def read(name: str, operand: Operand, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of an operand, and which of them are anything; others unwritten are refused."""
    if isinstance(operand, Grid):
        taken, where = operand.inside(name, mask), operand.clipped()
        values, state = operand.tile._data[where], operand.tile._state[where]
        state = np.where(taken, state, MASKED)
    else:
        values, state = operand._data, operand._state
        if mask is not None:
            state = np.where(np.broadcast_to(mask, operand.shape), state, MASKED)
    missing = int((state == UNWRITTEN).sum())
    if missing and machine().limits:
        refuse(f"{name} reads {missing} elements of {operand} that were never written")
    return values, state == MASKED


def apply(
    name: str,
    engine: str,
    function: Callable[..., np.ndarray],
    *operands: Any,
    inputs: int,
    passes: int = 1,
    mask: np.ndarray | None = None,
    dtype: Any = None,
) -> Tile:
    """A new tile: function of tiles and numbers, computed in float32."""
    tiles = [o for o in operands if isinstance(o, (Tile, Grid))]
    if operands and not tiles:
        refuse(f"{name} of {' and '.join(map(str, operands))}: at least one operand is a tile")
    if machine().limits:
        for tile in tiles:
            _check(name, tile)
        if len({tile.shape[0] for tile in tiles}) > 1:
            refuse(f"{name}: {' and '.join(map(str, tiles))} differ in partitions")
    values, anything = [], [np.zeros((), bool)]
    for operand in operands:
        if operand in tiles:
            value, masked = read(name, operand, mask)
            values.append(value.astype(np.float32))
            anything.append(masked)
        elif isinstance(operand, (int, float, np.number)):
            values.append(np.float32(operand))
        else:
            refuse(f"{name}: an operand is a {type(operand).__name__}; accepted: tiles and numbers")
    try:
        with np.errstate(all="ignore"):
            result = function(*values)
        loose = functools.reduce(np.logical_or, anything)
    except ValueError:
        refuse(f"{name}: {' and '.join(map(str, tiles))} cannot be broadcast to each other")
    tile = machine().allocate(result.shape, dtype or tiles[0].dtype, SBUF, kind=Tile)
    tile._data[...] = result
    tile._state[...] = np.where(np.broadcast_to(loose, result.shape), MASKED, WRITTEN)
    tile._storage.stored = True
    tile._storage.whole = not loose.any()
    _note(engine, name, tile, tiles, mask, inputs=inputs, passes=passes)
    return tile


def assign(dst: Operand, value: Any, mask: np.ndarray | None) -> None:
    """dst = value, a copy on the chip."""
    if not isinstance(value, (Tile, Grid)):
        number = np.full(dst.shape, value, np.float32)
        value = apply("memset", "Vector", lambda: number, inputs=1, dtype=dst.dtype)
    if machine().limits:
        _check("tensor_copy", dst)
        _check("tensor_copy", value)
    _put("tensor_copy", dst, value, mask)
    _note("Vector", "tensor_copy", dst, [value], mask, inputs=1)


def load(src: Operand, mask: np.ndarray | None, dtype: Any) -> Tile:
    """HBM → a new tile in SBUF."""
    if machine().limits and src.buffer in ON_CHIP:
        refuse(f"load: src {src}; accepted: a tensor in HBM")
    values, anything = read("load", src, mask)
    tile = machine().allocate(values.shape, dtype or src.dtype, SBUF, kind=Tile)
    with np.errstate(all="ignore"):
        tile._data[...] = np.where(anything, tile._data, values)
    tile._state[...] = np.where(anything, MASKED, WRITTEN)
    tile._storage.stored = True
    tile._storage.whole = not anything.any()
    moved = int((~anything).sum()) * tile.dtype.itemsize
    _note("DMA", "load", tile, [src], mask, bytes_moved=moved)
    return tile


def store(dst: Operand, value: Operand, mask: np.ndarray | None) -> None:
    """A tile → HBM."""
    if machine().limits and dst.buffer in ON_CHIP:
        refuse(f"store: dst {dst}; accepted: a tensor in HBM")
    written = _put("store", dst, value, mask)
    _note("DMA", "store", dst, [value], mask, bytes_moved=written * dst.dtype.itemsize)


def _put(name: str, dst: Operand, value: Operand, mask: np.ndarray | None) -> int:
    """Write a value's numbers into dst, where the mask is; how many."""
    core, storage = machine(), dst._storage
    if tuple(dst.shape) != tuple(value.shape):
        if core.limits or np.prod(dst.shape) != np.prod(value.shape):
            refuse(f"{name}: {value} and dst {dst} differ in shape")
        value = value.reshape(dst.shape)
    values, _ = read(name, value, mask)
    if isinstance(dst, Grid):
        taken, where = dst.inside(name, mask), dst.clipped()
        data, state = dst.tile._data, dst.tile._state
    else:
        taken = np.broadcast_to(True if mask is None else mask, dst.shape)
        where = tuple(np.indices(dst.shape, sparse=True))
        data, state = dst._data, dst._state
    if core.limits:
        source = value.tile._state[value.clipped()] if isinstance(value, Grid) else value._state
        loose = int((taken & (source == MASKED)).sum())
        if loose:
            refuse(f"{name} takes {loose} elements of {value} that a mask had left out")
    if not storage.stored and storage.whole:  # an argument: from now on it is an output
        storage.whole = False
        storage.state.fill(UNWRITTEN)
    where = tuple(np.broadcast_to(k, dst.shape)[taken] for k in where)
    if core.limits and storage.buffer not in ON_CHIP:
        again = int((state[where] == WRITTEN).sum())
        if again:
            refuse(
                f"{name} writes {again} elements of {dst} a second time: which write comes last "
                "is left to the DMA queues"
            )
    data[where] = values[taken]
    state[where] = WRITTEN
    storage.stored = True
    return int(taken.sum())


def _check(name: str, operand: Operand) -> None:
    if operand.buffer not in ON_CHIP:
        refuse(f"{name}: {operand}; an engine reaches SBUF and PSUM only, nl.load it first")
    if operand.shape[0] > PARTITIONS:
        refuse(f"{name}: {operand} has {operand.shape[0]} partitions; there are {PARTITIONS}")
    first = int(operand.keys[0].min()) if isinstance(operand, Grid) else operand._start
    if first not in starts(operand.shape[0]):
        refuse(
            f"{name}: {operand} starts at partition {first}; {operand.shape[0]} partitions may "
            f"start at {', '.join(map(str, starts(operand.shape[0])))}"
        )
    if isinstance(operand, Grid) and operand.keys[0].shape[0] > 1:
        lanes = operand.keys[0].reshape(operand.shape[0], -1)[:, 0]
        if (np.diff(lanes) != 1).any():
            refuse(f"{name}: {operand} takes partitions with a step; they must be neighbours")


def _note(
    engine: str,
    name: str,
    dst: Operand,
    sources: list[Operand],
    mask: np.ndarray | None,
    inputs: int = 1,
    passes: int = 1,
    bytes_moved: int = 0,
) -> None:
    views = [o.tile if isinstance(o, Grid) else o for o in (dst, *sources)]
    machine().note(
        engine,
        name,
        views[0],
        views[1:],
        inputs=inputs,
        passes=passes,
        bytes_moved=bytes_moved,
        elements=max(int(np.prod(o.shape[1:])) for o in (dst, *sources)),
        stride=max((_stride(o) for o in (dst, *sources) if o.buffer in ON_CHIP), default=0),
        accesses=[_access(o, mask) for o in (dst, *sources)],
    )


def _stride(operand: Operand) -> int:
    return operand.stride if isinstance(operand, Grid) else operand._stride


def _access(operand: Operand, mask: np.ndarray | None) -> Access:
    if not isinstance(operand, Grid):
        return operand._access()
    return operand.access(
        np.ones(operand.shape, bool) if mask is None else np.broadcast_to(mask, operand.shape)
    )
