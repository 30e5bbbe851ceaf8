"""nki.language: tiles, dtypes, memories, loops, and the names of operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from kernels.neuron.errors import MissingName, place
from kernels.neuron.machine import CORE, HBM, PSUM, SBUF, SHARED_HBM, machine
from kernels.neuron.operations import Operation
from kernels.neuron.tensors import Tensor

sbuf, psum, shared_hbm, private_hbm, hbm = SBUF, PSUM, SHARED_HBM, HBM, HBM

float32, float16 = np.dtype("float32"), np.dtype("float16")
bfloat16 = np.dtype(ml_dtypes.bfloat16)
int32, int16, int8 = np.dtype("int32"), np.dtype("int16"), np.dtype("int8")
uint32, uint16, uint8 = np.dtype("uint32"), np.dtype("uint16"), np.dtype("uint8")

add = Operation("add", np.add)
subtract = Operation("subtract", np.subtract)
multiply = Operation("multiply", np.multiply)
maximum = Operation("maximum", np.maximum)
minimum = Operation("minimum", np.minimum)
copy = Operation("copy", np.positive)
abs = Operation("abs", np.abs)
square = Operation("square", np.square)
sqrt = Operation("sqrt", np.sqrt)
exp = Operation("exp", np.exp)
relu = Operation("relu", lambda x: np.maximum(x, np.float32(0)))
reciprocal = Operation("reciprocal", lambda x: np.float32(1) / x)

tile_size = SimpleNamespace(
    pmax=CORE.lanes,
    psum_fmax=CORE.psum_bank_bytes // 4,  # until NKI 0.3; since 0.4 psum_bank_fmax
    psum_bank_fmax=CORE.psum_bank_bytes // 4,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
    total_available_sbuf_size=CORE.sbuf_bytes,
)


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: str = SBUF,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> Tensor:
    """A new tile, or a tensor in HBM. Nothing in it is written."""
    return machine().allocate(shape, dtype, buffer, name, Tensor)


def zeros(shape: Sequence[int], dtype: Any, buffer: str = SBUF, name: str = "") -> Tensor:
    """A new tile of zeros: an allocation and a memset."""
    from kernels.neuron.modern import isa

    tile = ndarray(shape, dtype, buffer, name)
    isa.memset(dst=tile, value=0.0)
    return tile


def affine_range(*bounds: int) -> Iterator[int]:
    """A loop whose iterations are independent; deprecated since NKI 0.7, an alias of range.

    The simulator runs it in the order that InterpretParams asks for.
    """
    return machine().iterations(*bounds)


def sequential_range(*bounds: int) -> range:
    """A loop whose iterations depend on each other."""
    return range(*bounds)


static_range = sequential_range

_INSTEAD = {
    "divide": "multiply by nisa.reciprocal(dst, data)",
    "arange": "slice the tile, as in tile[:, 0:n:2]",
    "mgrid": "slice the tile, as in tile[:, 0:n:2]",
    "par_dim": "the first dimension is the partitions",
    "load": "nisa.dma_copy(dst=tile, src=tensor[…])",
    "store": "nisa.dma_copy(dst=tensor[…], src=tile)",
}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    instead = _INSTEAD.get(name, "the simulator knows the subset that this book uses")
    raise MissingName(f"nki.language has no {name}: {instead}", place())
