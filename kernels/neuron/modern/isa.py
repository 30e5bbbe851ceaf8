"""nki.isa: one function for each instruction; dst comes first.

Engines compute in float32 and cast to dst's dtype. Costs are the estimator's business.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from kernels.neuron.errors import MissingName, place, refuse
from kernels.neuron.machine import PSUM, SBUF, SUMMED, machine
from kernels.neuron.operations import function
from kernels.neuron.tensors import Tensor


class engine(Enum):
    """An engine of the NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5


_NAMES = {engine.vector: "Vector", engine.scalar: "Scalar", engine.gpsimd: "GpSimd"}
unknown, vector = engine.unknown, engine.vector


def _on(instruction: str, chosen: Any, *accepted: str) -> str:
    """The engine's name; the first accepted one where the kernel does not choose."""
    if chosen in (None, engine.unknown):
        return accepted[0]
    name = _NAMES.get(chosen)
    if name not in accepted:
        refuse(f"{instruction} cannot run on {chosen}; accepted: {', '.join(accepted)}")
    return name


def _tensors(instruction: str, **operands: Any) -> None:
    for name, operand in operands.items():
        if not isinstance(operand, Tensor):
            refuse(f"{instruction}: {name} is a {type(operand).__name__}; accepted: a tile")


def _constant(instruction: str, name: str, value: Any) -> np.float32:
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number)):
        refuse(f"{instruction}: {name} is {value!r}; accepted: a number or a tile [partitions, 1]")
    return np.float32(value)


def dma_copy(dst: Any, src: Any, **options: Any) -> None:
    """Copy between HBM and SBUF; shapes are equal, dtypes may differ."""
    _tensors("dma_copy", dst=dst, src=src)
    machine().copy("dma_copy", dst, src)


def memset(dst: Any, value: Any, engine: engine = unknown, name: str | None = None) -> None:
    """Fill a tile with a constant."""
    _tensors("memset", dst=dst)
    number = _constant("memset", "value", value)
    where = _on("memset", engine, "Vector", "GpSimd")
    machine().compute(where, "memset", lambda: np.full(dst.shape, number), dst, inputs=1)


def tensor_copy(dst: Any, src: Any, engine: engine = unknown, name: str | None = None) -> None:
    """Copy a tile on the chip: the way between SBUF and PSUM."""
    _tensors("tensor_copy", dst=dst, src=src)
    where = _on("tensor_copy", engine, "Vector", "Scalar", "GpSimd")
    machine().compute(where, "tensor_copy", np.positive, dst, src)


def tensor_tensor(
    dst: Any, data1: Any, data2: Any, op: Any, engine: engine = unknown, name: str | None = None
) -> None:
    """dst = data1 op data2."""
    _tensors("tensor_tensor", dst=dst, data1=data1, data2=data2)
    apply = function("tensor_tensor", op, 2)
    if machine().limits and data1.buffer == data2.buffer == PSUM:
        refuse(f"tensor_tensor: {data1} and {data2}; only one of the inputs may be in PSUM")
    where = _on("tensor_tensor", engine, "Vector", "GpSimd")
    machine().compute(where, "tensor_tensor", apply, dst, data1, data2)


def tensor_scalar(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: engine = unknown,
    name: str | None = None,
) -> None:
    """dst = (data op0 operand0) op1 operand1; operands are numbers, or tiles [partitions, 1]."""
    _tensors("tensor_scalar", dst=dst, data=data)
    steps = [(op0, operand0, reverse0)] + [(op1, operand1, reverse1)] * (op1 is not None)
    vectors = [operand for _, operand, _ in steps if isinstance(operand, Tensor)]

    def apply(values: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        given = iter(columns)
        for op, operand, reverse in steps:
            is_tile = isinstance(operand, Tensor)
            other = next(given) if is_tile else _constant("tensor_scalar", "operand", operand)
            both = (other, values) if reverse else (values, other)
            values = function("tensor_scalar", op, 2)(*both)
        return values

    where = _on("tensor_scalar", engine, "Vector", "Scalar", "GpSimd")
    machine().compute(where, "tensor_scalar", apply, dst, data, extra=vectors)


def scalar_tensor_tensor(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> None:
    """dst = (data op0 operand0) op1 operand1; operand0 is a number or [partitions, 1]."""
    _tensors("scalar_tensor_tensor", dst=dst, data=data, operand1=operand1)
    first = function("scalar_tensor_tensor", op0, 2)
    second = function("scalar_tensor_tensor", op1, 2)
    vectors = [operand0] if isinstance(operand0, Tensor) else []

    def apply(values: np.ndarray, tile: np.ndarray, *column: np.ndarray) -> np.ndarray:
        other = column[0] if column else _constant("scalar_tensor_tensor", "operand0", operand0)
        values = first(other, values) if reverse0 else first(values, other)
        return second(tile, values) if reverse1 else second(values, tile)

    machine().compute("Vector", "scalar_tensor_tensor", apply, dst, data, operand1, extra=vectors)


def reciprocal(dst: Any, data: Any, name: str | None = None) -> None:
    """dst = 1 / data, on the Vector engine: eight passes."""
    _tensors("reciprocal", dst=dst, data=data)
    machine().compute("Vector", "reciprocal", lambda x: np.float32(1) / x, dst, data, passes=8)


def activation(
    dst: Any, op: Any, data: Any, bias: Any = None, scale: Any = 1.0, name: str | None = None
) -> None:
    """dst = op(data scale + bias), on the Scalar engine; bias is a tile [partitions, 1]."""
    _tensors("activation", dst=dst, data=data)
    apply = function("activation", op, 1)
    factor = _constant("activation", "scale", scale)
    vectors = [] if bias is None else [bias]
    _tensors("activation", **({} if bias is None else {"bias": bias}))

    def whole(values: np.ndarray, *column: np.ndarray) -> np.ndarray:
        if factor != 1:
            values = values * factor
        return apply(values + column[0] if column else values)

    machine().compute("Scalar", "activation", whole, dst, data, extra=vectors)


def nc_matmul(
    dst: Any,
    stationary: Any,
    moving: Any,
    accumulate: bool | None = None,
    name: str | None = None,
) -> None:
    """dst [M, N] = stationary [K, M] transposed times moving [K, N]; dst is in PSUM.

    accumulate: False overwrites dst, True adds to what a product left there; None, the default,
    overwrites at the first product into dst and adds at later ones.
    """
    _tensors("nc_matmul", dst=dst, stationary=stationary, moving=moving)
    core = machine()
    if core.limits:
        _check_matmul(dst, stationary, moving)
    left, right = core.read("nc_matmul", stationary), core.read("nc_matmul", moving)
    values = left.T @ right
    if _adds(dst, accumulate):
        values = values + core.read("nc_matmul", dst)
    core.write("nc_matmul", dst, values, state=SUMMED)
    # float32 takes four times as long as what has 16 bits (architecture guide).
    passes = 4 if np.float32 in (stationary.dtype, moving.dtype) else 1
    core.note(
        "Tensor", "nc_matmul", dst, (stationary, moving), passes=passes, elements=dst.shape[1]
    )


def _adds(dst: Tensor, accumulate: Any) -> bool:
    """Whether a product is added to dst. What no product wrote cannot be added to, not even zeros:
    NeuronCore-v2 and -v3 do not define it (nki.isa.nc_matmul)."""
    if accumulate not in (None, True, False):
        refuse(f"nc_matmul: accumulate is {accumulate!r}; accepted: None, True and False")
    if accumulate is False:
        return False
    summed = int((dst._state == SUMMED).sum())
    if summed in (0, dst.size) if accumulate is None else summed == dst.size:
        return summed > 0
    if machine().limits:
        refuse(
            f"nc_matmul: no product has written {dst.size - summed} of the {dst.size} elements of "
            f"dst {dst}, so there is nothing to add to; start with accumulate=False"
        )
    return True


def _check_matmul(dst: Tensor, stationary: Tensor, moving: Tensor) -> None:
    for tile in (stationary, moving):
        if tile.buffer != SBUF:
            refuse(f"nc_matmul: {tile}; the Tensor engine reads SBUF only")
    if dst.buffer != PSUM:
        refuse(f"nc_matmul: dst {dst}; the Tensor engine writes PSUM only")
    k, m = stationary.shape
    n = moving.shape[1]
    if moving.shape[0] != k or dst.shape != (m, n):
        refuse(f"nc_matmul: {stationary} and {moving} do not make dst {dst}")
    if m > 128 or n > 512:  # 512 float32 fill a PSUM bank
        refuse(f"nc_matmul: {stationary} and {moving}; at most 128 stationary and 512 moving")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise MissingName(
        f"nki.isa has no {name} here: the simulator knows the subset that this book uses", place()
    )
