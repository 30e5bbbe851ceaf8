"""nki.language: tiles, dtypes, memories, loops, and operations that make tiles.

Names, arguments and limits are those of the AWS Neuron documentation of nki.language, 0.3 to 0.7.
What is made of several instructions, such as nl.softmax, is left to kernels.
"""

import builtins
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import nothing_but, own_names, refuse
from kernels.machines.neuron.grid import OF_BOTH, num_programs
from kernels.machines.neuron.instructions import dma, elementwise
from kernels.machines.neuron.instructions.along import reduce_axes, tensor_reduce
from kernels.machines.neuron.instructions.common import VECTOR, tiles
from kernels.machines.neuron.instructions.tensor_engine import spread
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import READ, SBUF, running
from kernels.machines.neuron.operations import FUNCTION, REDUCTIONS, TABLE, MathOperation
from kernels.machines.neuron.tensors import Register, Tensor


class _Fields(type):
    """Classes whose attributes are fields, annotated or not."""

    def __call__(cls, *arguments, **fields) -> Any:
        taken = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
        named = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
        later = {
            n: v for n, v in fields.items() if not named and n not in taken and hasattr(cls, n)
        }
        fields = {n: v for n, v in fields.items() if n not in later}
        data = dataclasses.is_dataclass(cls)  # of which a field that nobody gives is not there
        asked = [*taken.values()][1 + len(arguments) :]
        missing = [p.name for p in asked if data and p.default is p.empty and p.name not in fields]
        instance = super().__call__(*arguments, **fields, **dict.fromkeys(missing))
        for name in missing:
            vars(instance).pop(name)
        for name, value in later.items():
            setattr(instance, name, value)
        return instance


class NKIObject(metaclass=_Fields):
    """The base of a kernel's own data classes: keyword arguments become fields."""

    def __init__(self, **fields) -> None:
        for name, value in fields.items():
            setattr(self, name, value)


def ndarray(
    shape: Sequence[int],
    dtype,
    buffer: str | None = SBUF,
    name: str = "",
    address: tuple[int, int] | None = None,
    **options,
) -> Tensor:
    """A new tile, or a tensor in HBM. Nothing in it is written."""
    base = 0 if address is None else int(address[0])
    return machine().allocate(shape, dtype, buffer or SBUF, name, Tensor, base=base)


def zeros(shape: Sequence[int], dtype, buffer: str = SBUF, name: str = "") -> Tensor:
    """A new tile of zeros: an allocation and a memset."""
    tile = ndarray(shape, dtype, buffer, name)
    if tile._on_chip:
        elementwise.memset(tile, 0.0)
    else:  # tensors in HBM come filled; what is stored later replaces it
        tile._put(np.zeros(tile.shape, tile.dtype))
        tile._mark(READ)
    return tile


def shared_constant(constant) -> Tensor:
    """A tensor in HBM with the numbers of a NumPy array, or of a .npy file."""
    values = np.load(constant) if isinstance(constant, str) else np.asarray(constant)
    if values.dtype.itemsize > 4:
        refuse(f"shared_constant: {values.dtype}; accepted: at most 32 bits")
    return machine().argument(np.array(values, order="C"), "a constant", Tensor)


def shared_identity_matrix(n: int, dtype=dtypes.uint8, dst=None) -> Tensor:
    """An identity matrix in SBUF."""
    tile = ndarray((n, n), dtype) if dst is None else dst
    dma.identity(tile)
    return tile


def load(src: Tensor, dtype=None, **options) -> Tensor:
    """A new tile in SBUF with the numbers of a tensor in HBM."""
    if not isinstance(src, Tensor) or src._on_chip:
        refuse(f"load: src {src}; accepted: a tensor in HBM")
    shape = src.shape if src.ndim > 1 else (src.shape[0], 1)
    tile = ndarray(shape, src.dtype if dtype is None else dtype)
    dma.dma_copy(tile, src, what="load")
    return tile


def load_transpose2d(src: Tensor, dtype=None) -> Tensor:
    """A new tile in SBUF with a tensor's rows as columns."""
    tile = ndarray(src.shape[::-1], src.dtype if dtype is None else dtype)
    dma.dma_transpose(tile, src)
    return tile


def store(dst: Tensor, value: Tensor, **options) -> None:
    """A tile to a tensor in HBM."""
    if not isinstance(dst, Tensor) or dst._on_chip:
        refuse(f"store: dst {dst}; accepted: a tensor in HBM")
    dma.dma_copy(dst, value, what="store")


def broadcast_to(x: Tensor, shape: Sequence[int], dtype=None) -> Tensor:
    """A tile whose dimensions of size 1 repeat; over partitions by the Tensor engine."""
    wanted = tuple(shape)
    if x.shape == wanted and dtype is None:
        return x
    if x.shape[0] == 1 < wanted[0]:
        tile = ndarray(wanted, x.dtype if dtype is None else dtype)
        spread(tile, x)
        return tile
    return _unary(TABLE["copy"], x.broadcast_to(wanted), dtype)


def _binary(operation: MathOperation, x, y, dtype=None, **options) -> Tensor:
    """x op y of tiles and numbers; one of them may have one element a partition."""
    operands = [t for t in (x, y) if isinstance(t, Tensor)]
    if not operands:
        refuse(f"{operation!r} of {x} and {y}: at least one operand is a tile")
    rows = builtins.max(t.shape[0] for t in operands)
    x, y = (
        broadcast_to(t, (rows, *t.shape[1:])) if isinstance(t, Tensor) and t.shape[0] != rows else t
        for t in (x, y)
    )
    pair = isinstance(x, Tensor) and isinstance(y, Tensor)
    reverse = y is builtins.max((x, y), key=lambda t: t.size) if pair else isinstance(y, Tensor)
    largest, other = (y, x) if reverse else (x, y)
    tile = ndarray(largest.shape, largest.dtype if dtype is None else dtype)
    if pair and (other.shape == largest.shape or other._elements != 1):
        other = other if other.shape == largest.shape else other.broadcast_to(largest.shape)
        x, y = (other, largest) if reverse else (largest, other)
        elementwise.tensor_tensor(tile, x, y, operation, what=operation.name)
        return tile
    if pair and other.dtype != np.float32:
        other = _unary(TABLE["copy"], other, dtypes.float32)
    elementwise.tensor_scalar(tile, largest, operation, other, reverse, what=operation.name)
    return tile


def _unary(operation: MathOperation, x, dtype=None, **options) -> Tensor:
    name = operation.name
    tiles(name, x=x)
    tile = ndarray(x.shape, x.dtype if dtype is None else dtype)
    if name == "reciprocal":
        elementwise.reciprocal(tile, x)
    elif name == "copy":
        elementwise.tensor_copy(tile, x, what=name)
    elif operation.activation and operation.kind == FUNCTION and name != "sin":
        elementwise.activation(tile, operation, x, what=name)
    elif operation.kind == FUNCTION:  # sin reduces its argument first; floor is several steps
        machine().compute("Scalar", name, operation.function, tile, x, work=2 * x._elements)
    else:
        elementwise.tensor_scalar(tile, x, operation, 0.0, engine=VECTOR, what=name)
    return tile


def _reduced(operation, x, axis, dtype=None, keepdims: bool = False, **options) -> Tensor:
    """A new tile: x reduced over its last axes."""
    tiles(operation.name, x=x)
    axes = reduce_axes(operation.name, x, axis)
    shape = [1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes]
    shape = shape if len(shape) > 1 else [*shape, 1]
    tile = ndarray(shape, x.dtype if dtype is None else dtype)
    tensor_reduce(tile, operation, x, axes, what=operation.name)
    return tile


def affine_range(*bounds: int) -> Iterator[int]:
    """A loop whose iterations are independent; deprecated, an alias of range. The
    simulator runs it in the order that InterpretParams asks for. An iteration that reads what
    another one wrote is warned of in the order written, and refused in any other."""
    return machine().iterations(*bounds)


def sequential_range(*bounds: int) -> range | Iterator[int]:
    """A loop whose iterations depend on each other."""
    core = running.get()  # where iterations are left out, it has to know of the loop
    return core.dependent(*bounds) if core is not None and core.sample else range(*bounds)


static_range = sequential_range


def dynamic_range(start, stop=None, step: int = 1) -> Iterator[int]:
    """A loop on the device, whose bounds may be registers."""
    bounds = (0, int(start)) if stop is None else (int(start), int(stop))
    return iter(range(*bounds, step))


def fori_loop(lower, upper, body_fun: Callable[[Register], Any], step: int = 1) -> None:
    """body_fun for each number, which it gets in a register."""
    for number in range(int(lower), int(upper), step):
        body_fun(Register(number))


def device_print(print_prefix: str, tensor) -> None:
    """Print a tile, while simulating."""
    print(print_prefix, tensor._values() if isinstance(tensor, Tensor) else tensor)


_OPERATIONS = {
    name: dataclasses.replace(operation, make=_binary if operation.inputs == 2 else _unary)
    for name, operation in TABLE.items()
    if name != "divide"
} | {
    name: dataclasses.replace(TABLE[REDUCTIONS[name]], make=_reduced, shown=name)
    for name in ("max", "min", "sum")
}
globals().update(OF_BOTH | dtypes.ALL | _OPERATIONS)

REMOVED = {  # and what to write instead
    "arange": "a slice, as in tile[:, 0:n:2]",
    "mgrid": "a slice, as in tile[:, 0:n:2]",
    "par_dim": "the partitions as the first dimension",
    "divide": "nisa.reciprocal(dst, data), and a product",
}
__all__ = ["num_programs"]
__all__ += [*OF_BOTH, *own_names(globals()), *dtypes.ALL, *_OPERATIONS]
__getattr__ = nothing_but("nki.language", __all__, REMOVED)
