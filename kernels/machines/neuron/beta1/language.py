"""neuronxcc.nki.language: functions that make tiles, operators behind them, grids and masks.

Names and arguments are those of the AWS Neuron documentation of SDK 2.20 to 2.26.
"""

from __future__ import annotations

import builtins
import math
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.machines.neuron import instructions as do
from kernels.machines.neuron.beta1 import tiles
from kernels.machines.neuron.beta1.tiles import Tile, masked, new
from kernels.machines.neuron.dtypes import (
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
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
from kernels.machines.neuron.errors import absent, place, refuse
from kernels.machines.neuron.instructions import reduce_axes
from kernels.machines.neuron.launch_grid import num_programs as num_programs_of
from kernels.machines.neuron.launch_grid import program_id, program_ndim
from kernels.machines.neuron.machine import (
    HBM,
    ON_CHIP,
    PSUM,
    SBUF,
    SHARED_HBM,
    UNDEFINED,
    UNWRITTEN,
    WRITTEN,
    View,
    is_undefined,
    machine,
)
from kernels.machines.neuron.operations import BITS, TABLE, Operation, binary, reduction
from kernels.machines.neuron.sizes import TileSize
from kernels.machines.neuron.tensors import Span

sbuf, psum, hbm, private_hbm, shared_hbm = SBUF, PSUM, HBM, HBM, SHARED_HBM
tensor = Tensor = Tile
tile_size = TileSize()
ds = Span
fp32 = SimpleNamespace(min=float(np.finfo(np.float32).min), max=float(np.finfo(np.float32).max))
finfo = np.finfo


# --- indices -------------------------------------------------------------------------------------


def arange(*bounds: int) -> np.ndarray:
    """Indices; with [:, None] those of partitions, with [None, :] those within a partition."""
    return np.arange(*bounds)


class Mesh(tuple):
    """Index grids by the name of their dimension: p, then x, y, z, w."""

    p = property(lambda self: self[0])
    x = property(lambda self: self[1])
    y = property(lambda self: self[2])
    z = property(lambda self: self[3])
    w = property(lambda self: self[4])


class _MeshMaker:
    def __getitem__(self, key: Any) -> Mesh:
        keys = key if isinstance(key, tuple) else (key,)
        lines = [np.arange(k.start or 0, k.stop, k.step or 1) for k in keys]
        return Mesh(np.meshgrid(*lines, indexing="ij", sparse=True))


mgrid = _MeshMaker()


class Partitions(int):
    """The size of a dimension that par_dim marked."""


def par_dim(size: int) -> Partitions:
    """Marks the dimension of the partitions; those before it are a list of blocks."""
    return Partitions(size)


# --- the launch grid -----------------------------------------------------------------------------


class Cores(int):
    """nl.nc(n): programs of the grid on so many cores."""

    def __mul__(self, other: int) -> int:
        return int(self) * int(other)

    __rmul__ = __mul__


nc = Cores


def spmd_dim(*sizes: int) -> int:
    """A dimension of the launch grid, some of it over cores."""
    return math.prod(int(size) for size in sizes)


def num_programs(axes: Any = None) -> Any:
    """How many programs the launch grid has, along axes."""
    return num_programs_of(axes)


# --- making tiles --------------------------------------------------------------------------------


def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **options: Any) -> Tile:
    """A new tile, or a tensor in HBM. Nothing in it is written."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    marked = [axis for axis, size in enumerate(shape) if isinstance(size, Partitions)]
    where = str(buffer or SBUF)
    par = marked[0] if marked and where in ON_CHIP else 0
    return machine().allocate(
        tuple(map(int, shape)) if marked else shape, dtype, where, name, Tile, par
    )


def full(
    shape: Sequence[int],
    fill_value: Any,
    dtype: Any,
    *,
    buffer: Any = None,
    name: str = "",
    **options: Any,
) -> Tile:
    """A new tile of one number."""
    tile = ndarray(shape, dtype, buffer=buffer, name=name)
    if tile.buffer not in ON_CHIP or tile._par:
        tile._put(np.full(tile.shape, fill_value).astype(tile.dtype))
        tile._mark(4 if tile.buffer not in ON_CHIP else 1)
        if tile._par and tile.buffer == PSUM and fill_value == 0:
            tile._mark(3)  # the first product into each block overwrites
        elif tile._par:
            blocks = math.prod(tile.shape[: tile._par])
            n = blocks * math.prod(tile.shape[tile._par + 1 :])
            machine().note("Vector", "memset", tile, (), work=n, elements=n, fresh=True)
        return tile
    if tile.buffer == PSUM and fill_value == 0:
        # The sum that the Tensor engine will add to; its first product overwrites.
        tile._put(np.zeros(tile.shape, tile.dtype))
        tile._mark(3)
        return tile
    do.memset(tile, fill_value)
    return tile


def zeros(
    shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **options: Any
) -> Tile:
    """A new tile of zeros."""
    return full(shape, 0.0, dtype, buffer=buffer, name=name)


def ones(
    shape: Sequence[int], dtype: Any, *, buffer: Any = None, name: str = "", **options: Any
) -> Tile:
    """A new tile of ones."""
    return full(shape, 1.0, dtype, buffer=buffer, name=name)


def zeros_like(
    a: Tile, dtype: Any = None, *, buffer: Any = None, name: str = "", **options: Any
) -> Tile:
    """A new tile of zeros, as large as another."""
    return zeros(a.shape, a.dtype if dtype is None else dtype, buffer=buffer or a.buffer)


def empty_like(
    a: Tile, dtype: Any = None, *, buffer: Any = None, name: str = "", **options: Any
) -> Tile:
    """A new tile, as large as another; nothing in it is written."""
    return ndarray(a.shape, a.dtype if dtype is None else dtype, buffer=buffer or a.buffer)


def shared_constant(constant: Any, dtype: Any = None, **options: Any) -> Tile:
    """A tensor in HBM with the numbers of a NumPy array."""
    values = np.asarray(constant)
    values = values.astype(dtype_of(dtype)) if dtype is not None else values
    return machine().given(np.array(values, order="C"), "a constant", Tile)


def shared_identity_matrix(n: int, dtype: Any = uint8, **options: Any) -> Tile:
    """An identity matrix in SBUF."""
    tile = new((n, n), dtype)
    core = machine()
    fresh = core.write("shared_identity_matrix", tile, np.eye(n, dtype=np.float32))
    size = tile.size * tile.dtype.itemsize
    core.note(
        "DMA", "shared_identity_matrix", tile, (), bytes_moved=size, run=tile._run, fresh=fresh
    )
    return tile


# --- moving tiles --------------------------------------------------------------------------------


def load(src: Any, *, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
    """Copy from HBM into a new tile; what the mask leaves out is anything."""
    core = machine()
    if not isinstance(src, View) or (core.limits and src.buffer in ON_CHIP):
        refuse(f"load: src {src}; accepted: a tensor in HBM")
    taken = masked("load", src, mask)
    tile = new(src.shape, src.dtype if dtype is None else dtype)
    states = core.check_written("load", taken)
    core.copy("load", tile, taken)
    if states is not None:
        moved = int(np.count_nonzero(states != UNDEFINED)) * tile.dtype.itemsize
        core.instructions[-1] = core.instructions[-1]._replace(bytes=moved)
    return tile


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
    """Copy from HBM into a new tile, rows as columns."""
    if mask is not None:
        refuse("load_transpose2d with mask=: not simulated")
    tile = new(src.shape[::-1], src.dtype if dtype is None else dtype)
    do.dma_transpose(tile, src)
    return tile


def store(dst: Any, value: Any, *, mask: Any = None, **options: Any) -> None:
    """Copy a tile to HBM, where the mask is."""
    core = machine()
    if not isinstance(dst, View) or (core.limits and dst.buffer in ON_CHIP):
        refuse(f"store: dst {dst}; accepted: a tensor in HBM")
    if not isinstance(value, View):
        value = full(dst.shape, value, dst.dtype)
    if dst.size != value.size:
        refuse(f"store: {value} and dst {dst} differ in shape")
    taken = masked("store", dst, mask)
    source = masked("store", value, mask if getattr(value, "_keys", None) is not None else None)
    if value.buffer == PSUM:  # the compiler puts a copy between
        between = new(value.shape, value.dtype)
        do.tensor_copy(between, source)
        source = between
    if core.limits:
        seen = np.broadcast_to(source._states(), source.shape).reshape(dst.shape)
        wanted = np.ones(dst.shape, bool)
        if getattr(taken, "_taken", None) is not None:
            wanted = np.broadcast_to(taken._taken, dst.shape)
        loose = int(np.count_nonzero(wanted & (seen == UNDEFINED)))
        if loose and (origin := core.origin(source)):
            refuse(f"store takes {loose} undefined elements of {value}{origin}")
        if loose:
            refuse(f"store takes {loose} elements of {value} that a mask had left out")
        missing = int(np.count_nonzero(wanted & (seen == UNWRITTEN)))
        if missing:
            refuse(f"store reads {missing} elements of {value} that were never written")
    held, core.limits = core.limits, False
    try:
        before = taken._states()
        again = int(np.count_nonzero(np.broadcast_to(before == WRITTEN, dst.shape)))
        if held and again and dst._storage.stored:
            refuse(
                f"store writes {again} elements of {dst} a second time: which write comes last "
                "is left to the DMA engines"
            )
        core.copy("store", taken, source)
    finally:
        core.limits = held
    if held and core.loops:
        core._watch("store", "", (source,), (taken,))
    if getattr(taken, "_taken", None) is not None:
        moved = int(np.count_nonzero(np.broadcast_to(taken._taken, dst.shape))) * dst.dtype.itemsize
        core.instructions[-1] = core.instructions[-1]._replace(bytes=moved)


class Index(int):
    """A number that knows whose it is.

    Args:
        loop: the number of the loop.
    """

    loop: int


def _indices(steps: Iterator[int]) -> Iterator[Index]:
    for step in steps:
        found = Index(step)
        found.loop = machine().turns_of_loops[-1][0]
        yield found


def affine_range(*bounds: int, **options: Any) -> Iterator[Index]:
    """A loop whose iterations are independent: the simulator runs it in any order."""
    return _indices(machine().iterations(*bounds))


def sequential_range(*bounds: int, **options: Any) -> Iterator[Index]:
    """A loop whose iterations depend on each other."""
    return _indices(machine().dependent(*bounds))


def static_range(*bounds: int) -> range:
    """A loop that is unrolled before anything is compiled."""
    return range(*bounds)


def device_print(prefix: str, x: Any, *, mask: Any = None, **options: Any) -> None:
    """Print a tile, while simulating."""
    print(prefix, x._values() if isinstance(x, View) else x)


# --- operations ----------------------------------------------------------------------------------


def _spread(name: str, operands: list[Any]) -> tuple[int, ...]:
    """The shape of an elementwise result: dimensions of size 1 repeat."""
    shapes = [o.shape for o in operands]
    rows = {shape[0] for shape in shapes}
    if machine().limits and len(rows - {1}) > 1:
        refuse(f"{name}: {' and '.join(map(str, operands))} differ in partitions")
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        refuse(f"{name}: {' and '.join(map(str, operands))} cannot be broadcast to each other")
        raise AssertionError from None


def elementwise(
    name: str,
    engine: str,
    operation: Operation,
    *operands: Any,
    passes: float = 1,
    dtype: Any = None,
    mask: Any = None,
) -> Tile:
    """A new tile: an operation of tiles and numbers, computed in float32 (or on bits)."""
    core = machine()
    for operand in operands:
        number = isinstance(operand, (int, float, np.number)) and not isinstance(operand, bool)
        if not isinstance(operand, View) and not number:
            refuse(f"{name}: an operand is a {type(operand).__name__}; accepted: tiles and numbers")
    given = [masked(name, o, mask) for o in operands if isinstance(o, View)]
    if not given:
        refuse(f"{name} of {' and '.join(map(str, operands))}: at least one operand is a tile")
    if core.limits:
        for operand in given:
            _check(name, engine, operand)
    shape = _spread(name, given)
    result = new(shape, given[0].dtype if dtype is None else dtype)
    states = [core.check_written(name, each) for each in given]
    values = None
    if core.numbers:
        bits = operation.kind == BITS
        read = (lambda v: v._values()) if bits else (lambda v: do.dtypes.wide(v._values()))
        tiles_left = iter(given)
        terms = [
            read(next(tiles_left)) if isinstance(o, View) else (o if bits else np.float32(o))
            for o in operands
        ]
        with np.errstate(all="ignore"):
            values = np.broadcast_to(operation.function(*terms), shape)
    fresh = core.write(name, result, values)
    for each, state in zip(given, states):
        if state is not None:
            bad = np.broadcast_to(is_undefined(state).reshape(each.shape), result.shape)
            core.mark_undefined(name, result, bad, (each,), (state,))
    n = result._elements
    inputs = len(given)
    if inputs == 2 and given[0]._storage.streamed != given[1]._storage.streamed:
        inputs = 1  # one comes from PSUM and one from SBUF: both ports are read at once
    plain = tuple(o for o in operands if not isinstance(o, View))
    core.note(
        engine,
        name,
        result,
        tuple(given),
        work=n * inputs * passes,
        elements=n,
        fresh=fresh,
        detail=(operation.name, *plain),
    )
    return result


def _check(name: str, engine: str, operand: Any) -> None:
    core = machine()
    if operand.buffer not in ON_CHIP:
        refuse(f"{name}: {operand}; an engine reaches SBUF and PSUM only, nl.load it first")
    if operand.shape[0] > core.chip.lanes:
        refuse(f"{name}: {operand} has {operand.shape[0]} partitions; there are {core.chip.lanes}")
    core.check_operand(name, engine, operand)


class Function(Operation):
    """An operation that is also a function of tiles, which makes a new one."""

    def __init__(self, operation: Operation, engine: str) -> None:
        self.__dict__.update(operation.__dict__)
        self.engine = engine

    def __call__(self, *operands: Any, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
        if len(operands) != self.inputs:
            refuse(f"nl.{self.name} takes {self.inputs} operands, here {len(operands)}")
        passes = 8.0 if self.name == "reciprocal" else 1.0
        return elementwise(
            self.name, self.engine, self, *operands, passes=passes, dtype=dtype, mask=mask
        )


def _engine(operation: Operation) -> str:
    if operation.name == "power":
        return "GpSimd"
    scalar = ("abs", "sqrt", "exp", "rsqrt", "square", "relu")
    return "Scalar" if operation.kind == "function" or operation.name in scalar else "Vector"


def divide(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
    """x / y. Costed as a reciprocal, 8 N, and a product, 2 N or N: the documents give no figure."""
    if isinstance(y, (int, float, np.number)):
        return elementwise(
            "multiply", "Vector", TABLE["multiply"], x, 1.0 / y, dtype=dtype, mask=mask
        )
    passes = 9 if isinstance(x, (int, float, np.number)) else 5
    return elementwise(
        "divide", "Vector", TABLE["divide"], x, y, passes=passes, dtype=dtype, mask=mask
    )


class Reduction(Operation):
    """nl.max and its like: a function of a tile and axes, and the name of an operation."""

    def __init__(self, operation: Operation) -> None:
        self.__dict__.update(operation.__dict__)

    def __call__(
        self,
        x: Any,
        axis: Any = None,
        *,
        dtype: Any = None,
        mask: Any = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Tile:
        return reduce(self.name, self, x, axis, dtype=dtype, mask=mask, keepdims=keepdims)


def reduce(
    name: str,
    op: Any,
    data: Any,
    axis: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    negate: bool = False,
    keepdims: bool = False,
) -> Tile:
    """A new tile: data reduced over its last axes. What a mask leaves out does not count."""
    operation = reduction(name, op, numpy=True)
    axes = _axes(name, data, axis)
    shape = [1 if a in axes else n for a, n in enumerate(data.shape)]
    if not keepdims:
        shape = [n for a, n in enumerate(data.shape) if a not in axes]
        shape = shape if len(shape) > 1 else [*shape, 1]
    taken = masked(name, data, mask)
    result = new(shape, data.dtype if dtype is None else dtype)
    if mask is None and taken is data:
        kept = [a for a in range(data.ndim) if a not in axes]
        last = tuple(range(len(kept), data.ndim))
        source = data if axes == last else data.permute((*kept, *axes))
        do.tensor_reduce(result, operation, source, last, negate, name=name)
        return result
    core = machine()
    states = core.check_written(name, taken)
    values = None
    where = np.ones(data.shape, bool)
    if getattr(taken, "_taken", None) is not None:
        where = np.broadcast_to(taken._taken, data.shape)
    if core.numbers:
        identity = np.float32(do.IDENTITY[operation.name])
        numbers = np.where(where, do.dtypes.wide(taken._values()), identity)
        found = do.reduced(operation, numbers, axes)
        values = (-found if negate else found).reshape(result.shape)
    fresh = core.write(name, result, values)
    tiles.loosen(result, where.any(axis=axes, keepdims=True).reshape(result.shape))
    if states is not None:
        bad = (is_undefined(states).reshape(data.shape) & where).any(axis=axes)
        core.mark_undefined(name, result, bad.reshape(result.shape), (taken,), (states,))
    n = data._elements
    core.note("Vector", name, result, (taken,), work=n, elements=n, fresh=fresh)
    return result


def _axes(name: str, data: Any, axis: Any) -> tuple[int, ...]:
    """The axes of a reduction, in any place but the first: beta 1's compiler moves them."""
    listed = axis if isinstance(axis, (tuple, list)) else [axis]
    axes = tuple(sorted(a + data.ndim if a < 0 else int(a) for a in listed))
    return reduce_axes(name, data, axis) if 0 in axes or builtins.max(axes) >= data.ndim else axes


def mean(
    x: Any,
    axis: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    keepdims: bool = False,
    **options: Any,
) -> Tile:
    """The mean over the last axes."""
    axes = reduce_axes("mean", x, axis)
    total = reduce("mean", TABLE["add"], x, axes, dtype=float32, mask=mask, keepdims=keepdims)
    number = math.prod(x.shape[a] for a in axes)
    return elementwise(
        "mean",
        "Vector",
        TABLE["multiply"],
        total,
        1.0 / number,
        dtype=x.dtype if dtype is None else dtype,
    )


def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
    """The variance over the last axes, which stay with size one."""
    middle = mean(x, axis, dtype=float32, keepdims=True)
    apart = elementwise("var", "Vector", TABLE["subtract"], x, middle, dtype=float32)
    squares = elementwise("var", "Scalar", TABLE["square"], apart, dtype=float32)
    return mean(squares, axis, dtype=x.dtype if dtype is None else dtype, keepdims=True)


def softmax(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
    """exp(x) over its sum along the last axes."""
    highest = reduce("softmax", TABLE["maximum"], x, axis, dtype=float32, mask=mask, keepdims=True)
    apart = elementwise(
        "softmax", "Vector", TABLE["subtract"], x, highest, dtype=float32, mask=mask
    )
    raised = elementwise("softmax", "Scalar", TABLE["exp"], apart, mask=mask)
    total = reduce("softmax", TABLE["add"], raised, axis, mask=mask, keepdims=True)
    return divide(raised, total, dtype=x.dtype if dtype is None else dtype, mask=mask)


def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: int,
    epsilon: float = 1e-6,
    *,
    dtype: Any = None,
    mask: Any = None,
    **options: Any,
) -> Tile:
    """x w over the root of the mean of x² along the last axes."""
    squares = elementwise("rms_norm", "Scalar", TABLE["square"], x, dtype=float32, mask=mask)
    total = reduce("rms_norm", TABLE["add"], squares, axis, mask=mask, keepdims=True)
    mean_square = elementwise("rms_norm", "Vector", TABLE["multiply"], total, 1.0 / n)
    moved = elementwise("rms_norm", "Vector", TABLE["add"], mean_square, epsilon)
    root = elementwise("rms_norm", "Scalar", TABLE["rsqrt"], moved)
    scaled = elementwise("rms_norm", "Vector", TABLE["multiply"], x, root, dtype=float32, mask=mask)
    return elementwise(
        "rms_norm",
        "Vector",
        TABLE["multiply"],
        scaled,
        w,
        dtype=x.dtype if dtype is None else dtype,
        mask=mask,
    )


def all(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
    """Whether all elements of the last axes are not zero."""
    truth = elementwise("all", "Vector", TABLE["not_equal"], x, 0.0, dtype=uint8, mask=mask)
    return reduce("all", TABLE["minimum"], truth, axis, dtype=uint8 if dtype is None else dtype)


def _chosen(c: np.ndarray, x: Any, y: Any) -> np.ndarray:
    return np.where(c != 0, x, y)


_CHOICE = Operation("where", _chosen, 3)


def where(
    condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **options: Any
) -> Tile:
    """x where condition is not zero, else y."""
    like = next(t for t in (x, y, condition) if isinstance(t, View))
    return elementwise(
        "where",
        "Vector",
        _CHOICE,
        condition,
        x,
        y,
        dtype=like.dtype if dtype is None else dtype,
        mask=mask,
    )


def static_cast(input_data: Any, dtype: Any) -> Tile:
    """A copy in another dtype."""
    return elementwise("static_cast", "Vector", TABLE["copy"], input_data, dtype=dtype)


def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
    """A new tile with partitions and elements exchanged."""
    from_psum = x.buffer == PSUM
    source = elementwise("copy", "Vector", TABLE["copy"], x) if from_psum else x
    found = new((source._elements, source.shape[0]), x.dtype if dtype is None else dtype, PSUM)
    do.nc_transpose(found, masked("transpose", source, mask), do.engine.tensor, name="transpose")
    return found


def _in_sbuf(tile: Any) -> Any:
    """A tile where the Tensor engine reads; the compiler copies what is in PSUM."""
    return elementwise("copy", "Vector", TABLE["copy"], tile) if tile.buffer == PSUM else tile


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **options: Any) -> Tile:
    """x y, or with transpose_x the transposed x times y, in PSUM."""
    left, y = _in_sbuf(x), _in_sbuf(y)
    if not transpose_x:
        left = elementwise("copy", "Vector", TABLE["copy"], transpose(left))
    found = new((left.shape[1], y.shape[1]), float32, PSUM)
    do.nc_matmul(found, left, y, name="matmul")
    return found


def broadcast_to(src: Any, *, shape: Sequence[int], **options: Any) -> Any:
    """A tile whose dimensions of size 1 repeat; over partitions by the Tensor engine."""
    wanted = tuple(shape)
    if src.shape == wanted:
        return src
    if src.shape[0] == wanted[0] and src.ndim == len(wanted):
        return tiles.Viewable.broadcast_to(src, wanted)
    if src.shape[0] != 1:
        refuse(f"broadcast_to of {src} to {list(wanted)}: only dimensions of size 1 repeat")
    core = machine()
    source = core.read("broadcast_to", src)
    found = new(wanted, src.dtype)
    fresh = core.write(
        "broadcast_to", found, np.broadcast_to(source, wanted) if core.numbers else None
    )
    core.note(
        "Tensor",
        "broadcast_to",
        found,
        (src,),
        work=builtins.max(64, found._elements) * (4 if src.dtype == np.float32 else 1),
        fresh=fresh,
        detail=wanted,
    )
    found._storage.streamed = True  # the product by ones leaves it in PSUM
    return found


def expand_dims(data: Any, axis: int) -> Any:
    """A view with one dimension more, of size 1."""
    at = axis + data.ndim + 1 if axis < 0 else axis
    return data._like(np.expand_dims(data._data, at))


def gather_flattened(
    data: Any, indices: Any, *, mask: Any = None, dtype: Any = None, **options: Any
) -> Tile:
    """data[indices], in each partition."""
    found = new(indices.shape, data.dtype if dtype is None else dtype)
    do.nc_n_gather(found, data, indices)
    return found


def _copied(src: Any, *, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
    """A new tile in SBUF with the numbers of another."""
    found = new(src.shape, src.dtype if dtype is None else dtype)
    taken = masked("copy", src, mask)
    if machine().limits and src.buffer not in ON_CHIP:
        _check("copy", "Vector", src)
    do.tensor_copy(found, taken, name="copy")
    return found


class _Copy(Operation):
    """nl.copy: a function of a tile, and the name of an operation."""

    def __init__(self) -> None:
        self.__dict__.update(TABLE["copy"].__dict__)

    __call__ = staticmethod(_copied)


copy = _Copy()


def loop_reduce(
    x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, **options: Any
) -> Any:
    """x reduced with those of the iterations before, over the loops of `loop_indices`.

    The first iteration begins with x alone. What the name held before that it is assigned to would
    count as well, and is not known here: a warning says so.
    """
    do.tiles("loop_reduce", x=x)
    if mask is not None:
        absent("neuronxcc.nki.language", "loop_reduce(mask=…)", globals(), ["loop_reduce(mask=…)"])
    operation = reduction("loop_reduce", op, numpy=True)
    listed = loop_indices if isinstance(loop_indices, (tuple, list)) else [loop_indices]
    over = {index.loop for index in listed if isinstance(index, Index)}
    core = machine()
    if len(over) < len(listed) or not over <= {loop for loop, _ in core.turns_of_loops}:
        refuse(f"loop_reduce over {loop_indices}; accepted: indices of nl.affine_range that run")
    outside = tuple([turn for turn in core.turns_of_loops if turn[0] not in over])
    inside = tuple(loop for loop, _ in core.turns_of_loops if loop in over)
    key = place(), outside, inside[0]
    known = core.reductions.get(key)
    if known is None:
        warnings.warn(
            f"loop_reduce begins with its first tile ({place()}): what its destination held before "
            "is not simulated",
            stacklevel=2,
        )
        known = core.reductions[key] = _copied(x, dtype=dtype)
        return known
    do.tensor_tensor(known, known, x, operation, name="loop_reduce")
    return known


def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None, **options: Any) -> None:
    """HBM at places that numbers choose, plus a tile or a number; only np.add."""
    do.atomic_rmw(masked("atomic_rmw", dst, mask), value, op)


def rand(shape: Sequence[int], dtype: Any = float32, **options: Any) -> Tile:
    """Random numbers from 0 to 1: not the hardware's."""
    found = new(shape, dtype)
    rng = machine().rng
    n = found._elements
    machine().compute("Vector", "rand", lambda: rng.random(found.shape, np.float32), found, work=n)
    return found


def random_seed(seed: Any, *, mask: Any = None, **options: Any) -> None:
    """Where nl.rand starts from."""
    machine().rng = np.random.default_rng(abs_of(seed))


def abs_of(seed: Any) -> int:
    """A seed as a whole number."""
    return int(np.abs(seed._values().reshape(-1)[0] if isinstance(seed, View) else seed))


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
    """Zeros in place of some elements, at random."""
    found = new(x.shape, x.dtype if dtype is None else dtype)
    do.dropout(found, masked("dropout", x, mask), rate)
    return found


def negative(x: Any, **options: Any) -> Tile:
    """-x."""
    return elementwise("negative", "Vector", TABLE["multiply"], x, -1.0, **options)


_OWN = ("divide", "copy", "negative", "bypass", "average")
globals().update({n: Function(op, _engine(op)) for n, op in TABLE.items() if n not in _OWN})
for _name, _of in (("max", "maximum"), ("min", "minimum"), ("sum", "add"), ("prod", "multiply")):
    globals()[_name] = Reduction(TABLE[_of])


# --- operators -----------------------------------------------------------------------------------


def _method(operation: Any, swap: bool) -> Any:
    def method(self: Any, other: Any) -> Tile:
        return operation(other, self) if swap else operation(self, other)

    return method


def _in_place(operation: Any, name: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        if name == "add" and tiles.added(self, other):
            return self
        if self.buffer in ON_CHIP and isinstance(other, View) and other.shape == self.shape:
            do.tensor_tensor(self, self, other, binary(name, operation), name=operation.name)
        else:
            tiles.assign(self, operation(self, other))
        return self

    return method


for _method_name, _operation in (
    ("add", globals()["add"]),
    ("sub", globals()["subtract"]),
    ("mul", globals()["multiply"]),
    ("and", globals()["bitwise_and"]),
    ("or", globals()["bitwise_or"]),
    ("xor", globals()["bitwise_xor"]),
    ("lshift", globals()["left_shift"]),
    ("rshift", globals()["right_shift"]),
    ("pow", globals()["power"]),
):
    setattr(tiles.Operators, f"__{_method_name}__", _method(_operation, swap=False))
    setattr(tiles.Operators, f"__r{_method_name}__", _method(_operation, swap=True))
    setattr(tiles.Operators, f"__i{_method_name}__", _in_place(_operation, _method_name))
tiles.Operators.__truediv__ = _method(divide, swap=False)  # type: ignore[attr-defined,operator]
tiles.Operators.__rtruediv__ = _method(divide, swap=True)  # type: ignore[attr-defined]
tiles.Tile.broadcast_to = lambda self, shape: broadcast_to(self, shape=shape)  # type: ignore[method-assign]
tiles.Operators.__neg__ = lambda self: negative(self)  # type: ignore[attr-defined,operator]
for _method_name, _compare in (
    ("lt", "less"),
    ("le", "less_equal"),
    ("gt", "greater"),
    ("ge", "greater_equal"),
):
    setattr(tiles.Operators, f"__{_method_name}__", _method(globals()[_compare], swap=False))

_KNOWN = ["all_reduce", "gemm_grid", "bfp16"]
__all__ = [
    "bfloat16",
    "bool_",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "int8",
    "int16",
    "int32",
    "program_id",
    "program_ndim",
    "tfloat32",
    "uint16",
    "uint32",
]


def __getattr__(name: str) -> Any:
    return absent("neuronxcc.nki.language", name, globals(), _KNOWN)
