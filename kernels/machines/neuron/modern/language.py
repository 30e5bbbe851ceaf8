"""nki.language: tiles, dtypes, memories, loops, and operations that make tiles.

Names, arguments and limits are those of the AWS Neuron documentation of nki.language, 0.3 to 0.7.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kernels.machines.neuron import instructions as do
from kernels.machines.neuron.dtypes import (
    bfloat16,
    bool_,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from kernels.machines.neuron.dtypes import of as dtype_of
from kernels.machines.neuron.errors import absent, refuse
from kernels.machines.neuron.instructions import engine, reduce_axes
from kernels.machines.neuron.launch_grid import num_programs, program_id, program_ndim
from kernels.machines.neuron.machine import (
    HBM,
    ON_CHIP,
    PSUM,
    READ,
    SBUF,
    SHARED_HBM,
    is_sampled,
    machine,
)
from kernels.machines.neuron.operations import BITS, FUNCTION, TABLE, Operation
from kernels.machines.neuron.sizes import TileSize
from kernels.machines.neuron.tensors import Register, Span, Tensor

sbuf, psum, shared_hbm, private_hbm, hbm = SBUF, PSUM, SHARED_HBM, HBM, HBM
NkiTensor = tensor = Tensor
ds = Span
tile_size = TileSize()


class _Fields(type):
    """Classes whose attributes are fields, annotated or not."""

    def __call__(cls, *arguments: Any, **fields: Any) -> Any:
        taken = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
        named = any(each.kind is each.VAR_KEYWORD for each in taken.values())
        later = {
            n: v for n, v in fields.items() if not named and n not in taken and hasattr(cls, n)
        }
        fields = {n: v for n, v in fields.items() if n not in later}
        missing: list[str] = []
        if dataclasses.is_dataclass(cls):  # a field that nobody gives is not there
            asked = list(taken)[1 + len(arguments) :]
            needed = [n for n in asked if taken[n].default is inspect.Parameter.empty]
            missing = [n for n in needed if n not in fields]
        made = super().__call__(*arguments, **fields, **dict.fromkeys(missing))
        for name in missing:
            vars(made).pop(name)
        for name, value in later.items():
            setattr(made, name, value)
        return made


class NKIObject(metaclass=_Fields):
    """The base of a kernel's own data classes: keyword arguments become fields."""

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)


# --- making tiles --------------------------------------------------------------------------------


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: str | None = SBUF,
    name: str = "",
    address: tuple[int, int] | None = None,
    **options: Any,
) -> Tensor:
    """A new tile, or a tensor in HBM. Nothing in it is written."""
    base = 0 if address is None else int(address[0])
    return machine().allocate(shape, dtype, buffer or SBUF, name, Tensor, base=base)


def full(
    shape: Sequence[int], fill_value: Any, dtype: Any, buffer: str = SBUF, name: str = ""
) -> Tensor:
    """A new tile of one number: an allocation and a memset."""
    tile = ndarray(shape, dtype, buffer, name)
    if tile._on_chip:
        do.memset(tile, fill_value)
    else:  # tensors in HBM come filled; what is stored later replaces it
        tile._put(np.full(tile.shape, fill_value).astype(tile.dtype))
        tile._mark(READ)
    return tile


def zeros(shape: Sequence[int], dtype: Any, buffer: str = SBUF, name: str = "") -> Tensor:
    """A new tile of zeros: an allocation and a memset."""
    return full(shape, 0.0, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Any, buffer: str = SBUF, name: str = "") -> Tensor:
    """A new tile of ones: an allocation and a memset."""
    return full(shape, 1.0, dtype, buffer, name)


def zeros_like(x: Tensor, dtype: Any = None, buffer: str | None = None, name: str = "") -> Tensor:
    """A new tile of zeros, as large as another."""
    return zeros(x.shape, x.dtype if dtype is None else dtype, buffer or x.buffer, name)


def empty_like(x: Tensor, dtype: Any = None, buffer: str | None = None, name: str = "") -> Tensor:
    """A new tile, as large as another; nothing in it is written."""
    return ndarray(x.shape, x.dtype if dtype is None else dtype, buffer or x.buffer, name)


def shared_constant(constant: Any) -> Tensor:
    """A tensor in HBM with the numbers of a NumPy array, or of a .npy file."""
    values = np.load(constant) if isinstance(constant, str) else np.asarray(constant)
    if values.dtype.itemsize > 4:
        refuse(f"shared_constant: {values.dtype}; accepted: at most 32 bits")
    return machine().given(np.array(values, order="C"), "a constant", Tensor)


def shared_identity_matrix(n: int, dtype: Any = uint8, dst: Any = None) -> Tensor:
    """An identity matrix in SBUF."""
    tile = ndarray((n, n), dtype, SBUF) if dst is None else dst
    values = np.eye(n).astype(np.float32)
    core = machine()
    fresh = core.write("shared_identity_matrix", tile, values)
    size = tile.size * tile.dtype.itemsize
    core.note(
        "DMA", "shared_identity_matrix", tile, (), bytes_moved=size, run=tile._run, fresh=fresh
    )
    return tile


def rand(shape: Sequence[int], dtype: Any, buffer: str = SBUF, name: str = "") -> Tensor:
    """Random numbers from 0 to 1: not the hardware's."""
    tile = ndarray(shape, dtype, buffer, name)
    rng = machine().rng
    machine().compute(
        "Vector", "rand", lambda: rng.random(tile.shape, np.float32), tile, work=tile._elements
    )
    return tile


def random_seed(seed: Any) -> None:
    """Where nl.rand starts from: a tile [1, 1] of 32 bits."""
    do.set_rng_seed(seed)


# --- moving tiles --------------------------------------------------------------------------------


def load(src: Tensor, dtype: Any = None, **options: Any) -> Tensor:
    """A new tile in SBUF with the numbers of a tensor in HBM."""
    if not isinstance(src, Tensor) or src._on_chip:
        refuse(f"load: src {src}; accepted: a tensor in HBM")
    shape = src.shape if src.ndim > 1 else (src.shape[0], 1)
    tile = ndarray(shape, src.dtype if dtype is None else dtype)
    do.dma_copy(tile, src, name="load")
    return tile


def load_transpose2d(src: Tensor, dtype: Any = None) -> Tensor:
    """A new tile in SBUF with a tensor's rows as columns."""
    tile = ndarray(src.shape[::-1], src.dtype if dtype is None else dtype)
    do.dma_transpose(tile, src)
    return tile


def store(dst: Tensor, value: Tensor, **options: Any) -> None:
    """A tile to a tensor in HBM."""
    if not isinstance(dst, Tensor) or dst._on_chip:
        refuse(f"store: dst {dst}; accepted: a tensor in HBM")
    do.dma_copy(dst, value, name="store")


def copy_of(x: Tensor, dtype: Any = None) -> Tensor:
    """A new tile in SBUF with the numbers of another."""
    tile = ndarray(x.shape, x.dtype if dtype is None else dtype)
    do.tensor_copy(tile, x, name="copy")
    return tile


def transpose(x: Tensor, dtype: Any = None) -> Tensor:
    """A new tile in PSUM with partitions and elements exchanged."""
    tile = ndarray((x._elements, x.shape[0]), x.dtype if dtype is None else dtype, PSUM)
    do.nc_transpose(tile, x, engine.tensor, name="transpose")
    return tile


def matmul(x: Tensor, y: Tensor, transpose_x: bool = False) -> Tensor:
    """x y, or with transpose_x the transposed x times y, in PSUM."""
    left = x if transpose_x else copy_of(transpose(x))
    tile = ndarray((left.shape[1], y.shape[1]), float32, PSUM)
    do.nc_matmul(tile, left, y, name="matmul")
    return tile


def broadcast_to(x: Tensor, shape: Sequence[int], dtype: Any = None) -> Tensor:
    """A tile whose dimensions of size 1 repeat; over partitions by the Tensor engine."""
    wanted = tuple(shape)
    if x.shape == wanted and dtype is None:
        return x
    if x.shape[0] == 1 < wanted[0]:
        tile = ndarray(wanted, x.dtype if dtype is None else dtype)
        core = machine()
        source = core.read("broadcast_to", x)
        fresh = core.write(
            "broadcast_to", tile, np.broadcast_to(source, wanted) if core.numbers else None
        )
        # a product with a row of ones, and a copy out of PSUM
        core.note(
            "Tensor", "broadcast_to", tile, (x,), work=builtins.max(64, tile._elements), fresh=fresh
        )
        return tile
    return copy_of(x.broadcast_to(wanted), dtype)


def expand_dims(x: Tensor, axis: int) -> Tensor:
    """A view with one dimension more, of size 1."""
    return x.expand_dim(axis)


# --- operations ----------------------------------------------------------------------------------


class Function(Operation):
    """An operation that is also a function of tiles, which makes a new one."""

    def __init__(self, operation: Operation) -> None:
        self.__dict__.update(operation.__dict__)

    def __call__(self, *operands: Any, dtype: Any = None, **options: Any) -> Tensor:
        given = operands
        if len(given) == self.inputs + 1:
            *given, dtype = operands  # type: ignore[assignment]
        make: Any = _binary if self.inputs == 2 else _unary
        return make(self, *given, dtype=dtype)


def _binary(operation: Operation, x: Any, y: Any, dtype: Any = None) -> Tensor:
    """x op y of tiles and numbers; one of them may have one element a partition."""
    tiles = [t for t in (x, y) if isinstance(t, Tensor)]
    if not tiles:
        refuse(f"{operation!r} of {x} and {y}: at least one operand is a tile")
    if len(tiles) == 2:
        rows = builtins.max(t.shape[0] for t in tiles)
        x, y = (
            t if t.shape[0] == rows or rows == 1 else broadcast_to(t, (rows, *t.shape[1:]))
            for t in (x, y)
        )
        largest = builtins.max((x, y), key=lambda t: t.size)
        if x.shape == y.shape:
            tile = ndarray(x.shape, x.dtype if dtype is None else dtype)
            do.tensor_tensor(tile, x, y, operation, name=operation.name)
            return tile
        column, reverse = (x, True) if largest is y else (y, False)
        if column._elements != 1:
            wide = column.broadcast_to(largest.shape)
            tile = ndarray(largest.shape, largest.dtype if dtype is None else dtype)
            do.tensor_tensor(
                tile,
                *((wide, largest) if reverse else (largest, wide)),
                operation,
                name=operation.name,
            )
            return tile
        if column.dtype != np.float32 and operation.kind != BITS:
            column = copy_of(column, float32)
        operand: Any = column
    else:
        largest, reverse = tiles[0], tiles[0] is y
        operand = x if reverse else y
    tile = ndarray(largest.shape, largest.dtype if dtype is None else dtype)
    do.tensor_scalar(tile, largest, [(operation, operand, reverse)], name=operation.name)
    return tile


def _unary(operation: Operation, x: Any, dtype: Any = None) -> Tensor:
    do.tiles(operation.name, x=x)
    tile = ndarray(x.shape, x.dtype if dtype is None else dtype)
    if operation.name == "reciprocal":
        do.reciprocal(tile, x)
    elif operation.name == "copy":
        do.tensor_copy(tile, x, name="copy")
    elif operation.activation and operation.kind == FUNCTION and operation.name != "sin":
        do.activation(tile, operation, x, name=operation.name)
    elif operation.kind == FUNCTION:  # sin reduces its argument first; the rest are several steps
        machine().compute(
            "Scalar", operation.name, operation.function, tile, x, work=2 * x._elements
        )
    else:
        do.tensor_scalar(tile, x, [(operation, 0.0, False)], engine.vector, name=operation.name)
    return tile


class Reduction(Operation):
    """nl.max and its like: a function of a tile and axes, and the name of an operation."""

    def __init__(self, name: str, operation: Operation) -> None:
        self.__dict__.update(operation.__dict__)
        self.shown = name

    def __call__(
        self, x: Any, axis: Any, dtype: Any = None, keepdims: bool = False, **options: Any
    ) -> Tensor:
        return _reduced(self, x, axis, dtype, keepdims)

    def __repr__(self) -> str:
        return f"nl.{self.shown}"


def _left(x: Tensor, axes: Sequence[int], keepdims: bool) -> list[int]:
    if keepdims:
        return [1 if a in axes else n for a, n in enumerate(x.shape)]
    shape = [n for a, n in enumerate(x.shape) if a not in axes]
    return shape if len(shape) > 1 else [*shape, 1]


def _reduced(operation: Operation, x: Any, axis: Any, dtype: Any, keepdims: bool) -> Tensor:
    do.tiles(operation.name, x=x)
    axes = reduce_axes(operation.name, x, axis)
    tile = ndarray(_left(x, axes, keepdims), x.dtype if dtype is None else dtype)
    do.tensor_reduce(tile, operation, x, axes, name=operation.name)
    return tile


def mean(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The mean over the last axes."""
    axes = reduce_axes("mean", x, axis)
    total = _reduced(TABLE["add"], x, axes, float32, keepdims)
    number = math.prod(x.shape[a] for a in axes)
    return _binary(TABLE["multiply"], total, 1.0 / number, x.dtype if dtype is None else dtype)


def var(x: Any, axis: Any, dtype: Any = None, keepdims: bool = True) -> Tensor:
    """The variance over the last axes, which stay with size one."""
    axes = reduce_axes("var", x, axis)
    middle = mean(x, axes, float32, keepdims=True)
    apart = _binary(TABLE["subtract"], x, middle, float32)
    return mean(
        _unary(TABLE["square"], apart), axes, x.dtype if dtype is None else dtype, keepdims=True
    )


def all(x: Any, axis: Any, dtype: Any = None) -> Tensor:
    """Whether all elements of the last axes are not zero."""
    return _reduced(TABLE["minimum"], _binary(TABLE["not_equal"], x, 0.0), axis, dtype, False)


def softmax(x: Any, axis: Any = -1, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along the last axes."""
    axes = reduce_axes("softmax", x, axis)
    highest = _reduced(TABLE["maximum"], x, axes, float32, keepdims=True)
    apart = _binary(TABLE["subtract"], x, highest, float32)
    raised = _unary(TABLE["exp"], apart)
    total = _reduced(TABLE["add"], raised, axes, float32, keepdims=True)
    wanted = x.dtype if dtype is None else dtype
    return _binary(TABLE["multiply"], raised, _unary(TABLE["reciprocal"], total), wanted)


def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: int,
    epsilon: float = 1e-6,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> Tensor:
    """x w over the root of the mean of x² along the last axes."""
    squares = _reduced(
        TABLE["add"], _unary(TABLE["square"], x, float32), axis, float32, keepdims=True
    )
    tile = ndarray(squares.shape, float32)
    do.tensor_scalar(
        tile, squares, [(TABLE["multiply"], 1.0 / n, False), (TABLE["add"], epsilon, False)]
    )
    scaled = _binary(TABLE["multiply"], x, _unary(TABLE["rsqrt"], tile), float32)
    return _binary(TABLE["multiply"], scaled, w, x.dtype if dtype is None else dtype)


def where(condition: Any, x: Any, y: Any, dtype: Any = None) -> Tensor:
    """x where condition is not zero, else y."""
    like = next(t for t in (x, y, condition) if isinstance(t, Tensor))
    tile = ndarray(condition.shape, like.dtype if dtype is None else dtype)
    sources = [t for t in (x, y) if isinstance(t, Tensor)]

    def choose(taken: np.ndarray, *given: np.ndarray) -> np.ndarray:
        values = iter(given)
        one, other = (next(values) if isinstance(t, Tensor) else np.float32(t) for t in (x, y))
        return np.where(taken != 0, one, other)

    machine().compute("Vector", "where", choose, tile, condition, *sources)
    return tile


def dropout(x: Any, rate: Any, dtype: Any = None) -> Tensor:
    """Zeros in place of some elements, at random."""
    tile = ndarray(x.shape, x.dtype if dtype is None else dtype)
    do.dropout(tile, x, rate)
    return tile


def gather_flattened(data: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Tensor:
    """data[indices], in each partition."""
    tile = ndarray(indices.shape, data.dtype if dtype is None else dtype)
    do.nc_n_gather(tile, data, indices)
    return tile


# --- loops, the launch grid, the rest ------------------------------------------------------------


def affine_range(*bounds: int) -> Iterator[int]:
    """A loop whose iterations are independent; deprecated since NKI 0.7, an alias of range.

    The simulator runs it in the order that InterpretParams asks for, and refuses an iteration that
    reads what another one wrote.
    """
    return machine().iterations(*bounds)


def sequential_range(*bounds: int) -> range | Iterator[int]:
    """A loop whose iterations depend on each other."""
    return machine().dependent(*bounds) if is_sampled() else range(*bounds)


static_range = sequential_range


def _number(value: Any) -> int:
    return value.number() if isinstance(value, Register) else int(value)


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[int]:
    """A loop on the device, whose bounds may be registers."""
    bounds = (0, _number(start)) if stop is None else (_number(start), _number(stop))
    return iter(range(*bounds, step))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Register], Any], step: int = 1) -> None:
    """body_fun for each number, which it gets in a register."""
    for number in range(_number(lower), _number(upper), step):
        body_fun(Register(number))


def while_loop(init: Register, body_fun: Callable[[Register], Register]) -> None:
    """body_fun while the register that it returns is not zero."""
    register = init
    while register.number():
        register = body_fun(Register(register.number()))


def device_print(print_prefix: str, tensor: Any) -> None:
    """Print a tile, while simulating."""
    print(print_prefix, tensor._values() if isinstance(tensor, Tensor) else tensor)


@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Instructions in program order, which the simulator always keeps."""
    yield


def is_psum(buffer: Any) -> bool:
    """Whether it is PSUM."""
    return buffer == PSUM


def is_sbuf(buffer: Any) -> bool:
    """Whether it is SBUF."""
    return buffer == SBUF


def is_hbm(buffer: Any) -> bool:
    """Whether it is HBM."""
    return buffer in (HBM, SHARED_HBM)


def is_on_chip(buffer: Any) -> bool:
    """Whether it is SBUF or PSUM."""
    return buffer in ON_CHIP


globals().update({name: Function(op) for name, op in TABLE.items() if name != "divide"})
for _name, _of in (("max", "maximum"), ("min", "minimum"), ("sum", "add"), ("prod", "multiply")):
    globals()[_name] = Reduction(_name, TABLE[_of])

_INSTEAD = {
    "divide": "multiply by nisa.reciprocal(dst, data)",
    "arange": "slice the tile, as in tile[:, 0:n:2]",
    "mgrid": "slice the tile, as in tile[:, 0:n:2]",
    "par_dim": "the first dimension is the partitions",
}
_KNOWN = ["MemoryRegion"]
_DTYPES = (
    bool_,
    bfloat16,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    int8,
    int16,
    int32,
    tfloat32,
    uint16,
    uint32,
)
__all__ = ["Function", "Reduction", "dtype_of", "num_programs", "program_id", "program_ndim"]


def __getattr__(name: str) -> Any:
    return absent("nki.language", name, globals(), _KNOWN, _INSTEAD)
