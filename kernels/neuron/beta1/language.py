"""neuronxcc.nki.language: functions that make tiles, operators behind them, grids and masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.neuron.beta1 import tiles
from kernels.neuron.beta1.tiles import Tile
from kernels.neuron.errors import MissingName, place
from kernels.neuron.machine import CORE, HBM, PSUM, SBUF, SHARED_HBM, machine
from kernels.neuron.modern.language import bfloat16  # noqa: F401

sbuf, psum, hbm, private_hbm, shared_hbm = SBUF, PSUM, HBM, HBM, SHARED_HBM
float32, float16, int32 = np.float32, np.float16, np.int32

tile_size = SimpleNamespace(
    pmax=CORE.lanes,
    psum_fmax=CORE.psum_bank_bytes // 4,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
)


def arange(*bounds: int) -> np.ndarray:
    """Indices; with [:, None] those of partitions, with [None, :] those within a partition."""
    return np.arange(*bounds)


def par_dim(size: int) -> int:
    """Marks the dimension of the partitions: here the first one, always."""
    return size


def ndarray(
    shape: Sequence[int], dtype: Any, *, buffer: str = SBUF, name: str = "", **options: Any
) -> Tile:
    """A new tile, or a tensor in HBM. Nothing in it is written."""
    return machine().allocate(shape, dtype, buffer, name, Tile)


def zeros(shape: Sequence[int], dtype: Any, *, buffer: str = SBUF, name: str = "") -> Tile:
    """A new tile of zeros."""
    tile = ndarray(shape, dtype, buffer=buffer, name=name)
    tiles.assign(tile, 0.0, None)
    return tile


def load(src: Any, *, mask: Any = None, dtype: Any = None) -> Tile:
    """Copy from HBM into a new tile; what the mask leaves out is anything."""
    return tiles.load(src, mask, dtype)


def store(dst: Any, value: Any, *, mask: Any = None) -> None:
    """Copy a tile to HBM, where the mask is."""
    tiles.store(dst, value, mask)


def affine_range(*bounds: int) -> Iterator[int]:
    """A loop whose iterations are independent: the simulator runs it in any order."""
    return machine().iterations(*bounds)


def sequential_range(*bounds: int) -> range:
    """A loop whose iterations depend on each other."""
    return range(*bounds)


static_range = sequential_range


def device_print(text: str, value: Any) -> None:
    """Print a tile, while simulating."""
    print(text, value._data if isinstance(value, Tile) else value)


def _binary(name: str, function: Any) -> Any:
    def operation(x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
        both = [o for o in (x, y) if not isinstance(o, (int, float, np.number))]
        return tiles.apply(name, "Vector", function, x, y, inputs=len(both), mask=mask, dtype=dtype)

    operation.__name__ = name
    operation.__doc__ = f"{name}(x, y) of tiles and numbers, a new tile, on the Vector engine."
    return operation


add = _binary("add", np.add)
subtract = _binary("subtract", np.subtract)
multiply = _binary("multiply", np.multiply)
maximum = _binary("maximum", np.maximum)
minimum = _binary("minimum", np.minimum)


def divide(x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """x / y. Costed as a reciprocal, 8 N, and a product, 2 N or N: the documents give no figure."""
    if isinstance(y, (int, float, np.number)):
        return multiply(x, 1.0 / y, dtype=dtype, mask=mask)
    one = isinstance(x, (int, float, np.number))
    inputs, passes = (1, 9) if one else (2, 5)
    return tiles.apply(
        "divide", "Vector", np.divide, x, y, inputs=inputs, passes=passes, mask=mask, dtype=dtype
    )


def _unary(name: str, engine: str, function: Any, passes: int = 1) -> Any:
    def operation(x: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
        return tiles.apply(
            name, engine, function, x, inputs=1, passes=passes, mask=mask, dtype=dtype
        )

    operation.__name__ = name
    operation.__doc__ = f"{name}(x) of a tile, a new tile, on the {engine} engine."
    return operation


reciprocal = _unary("reciprocal", "Vector", lambda x: np.float32(1) / x, passes=8)
exp = _unary("exp", "Scalar", np.exp)
sqrt = _unary("sqrt", "Scalar", np.sqrt)
abs = _unary("abs", "Scalar", np.abs)
copy = _unary("copy", "Vector", np.positive)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise MissingName(
        f"neuronxcc.nki.language has no {name} here: the simulator knows the subset that this book "
        "uses",
        place(),
    )


def _method(operation: Any, swap: bool) -> Any:
    def method(self: Any, other: Any) -> Tile:
        return operation(other, self) if swap else operation(self, other)

    return method


for _name, _operation in (("add", add), ("sub", subtract), ("mul", multiply), ("truediv", divide)):
    setattr(tiles.Operators, f"__{_name}__", _method(_operation, swap=False))
    setattr(tiles.Operators, f"__r{_name}__", _method(_operation, swap=True))
