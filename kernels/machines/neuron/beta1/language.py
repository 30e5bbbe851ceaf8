"""neuronxcc.nki.language: functions that make tiles, operators behind them, grids and masks.

Names and arguments are those of the AWS Neuron documentation of SDK 2.20 to 2.26.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import math
import operator
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes, grid
from kernels.machines.neuron.beta1 import tiles
from kernels.machines.neuron.beta1.tiles import Beta1Tile, masked, new
from kernels.machines.neuron.dtypes import float32
from kernels.machines.neuron.errors import absent, nothing_but, own_names, place, refuse
from kernels.machines.neuron.instructions import dma, elementwise, places
from kernels.machines.neuron.instructions import tensor_engine as products
from kernels.machines.neuron.instructions.along import reduce_axes, tensor_reduce
from kernels.machines.neuron.instructions.common import IDENTITY, TENSOR
from kernels.machines.neuron.instructions.common import tiles as check_tiles
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import (
    ON_CHIP,
    PSUM,
    READ,
    SBUF,
    SUMMED,
    UNDEFINED,
    UNWRITTEN,
    WRITTEN,
    View,
    is_undefined,
)
from kernels.machines.neuron.operations import (
    FUNCTION,
    REDUCTIONS,
    TABLE,
    MathOperation,
    binary,
    reduced,
    reduction,
)

fp32 = SimpleNamespace(min=float(np.finfo(np.float32).min), max=float(np.finfo(np.float32).max))
finfo = np.finfo
constants = ModuleType("neuronxcc.nki.language.constants")
vars(constants)["sizeinbytes"] = lambda dtype: dtypes.of(dtype).itemsize


def arange(*bounds: int) -> np.ndarray:
    """Indices; with [:, None] those of partitions, with [None, :] those within a partition."""
    return np.arange(*bounds)


class _Mesh(tuple):
    """Index grids by the name of their dimension."""

    p, x, y, z, w = map(property, map(operator.itemgetter, range(5)))


class _MeshMaker:
    def __getitem__(self, key) -> _Mesh:
        return _Mesh(np.ogrid[key if isinstance(key, tuple) else (key,)])


mgrid = _MeshMaker()


class par_dim(int):
    """Marks the dimension of the partitions; those before it are a list of blocks."""


class nc(int):
    """nl.nc(n): programs of the grid on so many cores."""


def spmd_dim(*sizes: int) -> int:
    """A dimension of the launch grid, some of it over cores."""
    return math.prod(sizes)


def num_programs(axes=None) -> Any:
    """How many programs the launch grid has, along axes."""
    return grid.num_programs(axes)


def ndarray(shape, dtype, *, buffer=None, name: str = "", **options) -> Beta1Tile:
    """A new tile, or a tensor in HBM. Nothing in it is written."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    marked = [axis for axis, size in enumerate(shape) if isinstance(size, par_dim)]
    where = str(buffer or SBUF)
    par = marked[0] if marked and where in ON_CHIP else 0
    sizes = tuple(map(int, shape)) if marked else shape
    return machine().allocate(sizes, dtype, where, name, Beta1Tile, par)


def full(
    shape: Sequence[int], fill_value, dtype, *, buffer=None, name: str = "", **options
) -> Beta1Tile:
    """A new tile of one number."""
    tile = ndarray(shape, dtype, buffer=buffer, name=name)
    # The sum that the Tensor engine will add to; its first product overwrites.
    sums = tile.buffer == PSUM and fill_value == 0
    if tile.buffer in ON_CHIP and not tile._par and not sums:
        elementwise.memset(tile, fill_value)
        return tile
    tile._put(np.full(tile.shape, fill_value).astype(tile.dtype))
    tile._mark(SUMMED if sums else WRITTEN if tile.buffer in ON_CHIP else READ)
    if tile._par and not sums:
        n = math.prod(tile.shape) // tile.shape[tile._par]
        machine().note("Vector", "memset", tile, (), work=n, elements=n, fresh=True)
    return tile


def zeros(shape: Sequence[int], dtype, **options) -> Beta1Tile:
    """A new tile of zeros."""
    return full(shape, 0.0, dtype, **options)


def ones(shape: Sequence[int], dtype, **options) -> Beta1Tile:
    """A new tile of ones."""
    return full(shape, 1.0, dtype, **options)


def zeros_like(a: View, dtype=None, *, buffer=None, **options) -> Beta1Tile:
    """A new tile of zeros, as large as another."""
    return zeros(a.shape, a.dtype if dtype is None else dtype, buffer=buffer or a.buffer)


def empty_like(a: View, dtype=None, *, buffer=None, **options) -> Beta1Tile:
    """A new tile, as large as another; nothing in it is written."""
    return ndarray(a.shape, a.dtype if dtype is None else dtype, buffer=buffer or a.buffer)


def shared_constant(constant, dtype=None, **options) -> Beta1Tile:
    """A tensor in HBM with the numbers of a NumPy array."""
    values = np.asarray(constant)
    values = values.astype(dtypes.of(dtype)) if dtype is not None else values
    return machine().argument(np.array(values, order="C"), "a constant", Beta1Tile)


def shared_identity_matrix(n: int, dtype=dtypes.uint8, **options) -> Beta1Tile:
    """An identity matrix in HBM."""
    return shared_constant(np.eye(n), dtype)


def _like(x, dtype) -> Beta1Tile:
    """A new tile in SBUF, as large as another."""
    return new(x.shape, x.dtype if dtype is None else dtype)


def load(src, *, mask=None, dtype=None, **options) -> Beta1Tile:
    """Copy from HBM into a new tile; what the mask leaves out is anything."""
    core = machine()
    if not isinstance(src, View) or (core.limits and src.buffer in ON_CHIP):
        refuse(f"load: src {src}; accepted: a tensor in HBM")
    taken = masked("load", src, mask)
    tile = _like(src, dtype)
    states = core.check_written("load", taken)
    moved = tile.size if states is None else int(np.count_nonzero(states != UNDEFINED))
    core.copy("load", tile, taken, moved)
    return tiles.loosen(tile, mask)


def load_transpose2d(src, *, mask=None, dtype=None, **options) -> Beta1Tile:
    """Copy from HBM into a new tile, rows as columns."""
    if mask is not None:
        refuse("load_transpose2d with mask=: not simulated")
    tile = new(src.shape[::-1], src.dtype)
    dma.dma_transpose(tile, src)
    return tile if dtype in (None, src.dtype) else static_cast(tile, dtype)


def store(dst, value, *, mask=None, **options) -> None:
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
        elementwise.tensor_copy(between, source)
        source = between
    wanted = tiles.inside(taken)
    if core.limits:
        seen = np.broadcast_to(source._states(), source.shape).reshape(dst.shape)
        loose = int(np.count_nonzero(wanted & (seen == UNDEFINED)))
        if loose:
            origin = core.origin(source) or " that a mask had left out"
            refuse(f"store takes {loose} undefined elements of {value}{origin}")
        missing = int(np.count_nonzero(wanted & (seen == UNWRITTEN)))
        if missing:
            refuse(f"store reads {missing} elements of {value} that were never written")
    core.copy("store", taken, source, int(np.count_nonzero(wanted)))


def _copied(operation, src, *, mask=None, dtype=None, **options) -> Beta1Tile:
    """A new tile in SBUF with the numbers of another."""
    tile, taken = _like(src, dtype), masked("copy", src, mask)
    if machine().limits:
        machine().check_operand("copy", "Vector", src)
    elementwise.tensor_copy(tile, taken, what="copy")
    return tiles.loosen(tile, mask)


class _Index(int):
    """A number that knows the number of its loop."""

    loop: int


def _indices(steps: Iterator[int]) -> Iterator[_Index]:
    for step in steps:
        index = _Index(step)
        index.loop = machine().turns_of_loops[-1][0]
        yield index


def affine_range(*bounds: int, **options) -> Iterator[_Index]:
    """A loop whose iterations are independent: the simulator runs it in any order."""
    return _indices(machine().iterations(*bounds))


def sequential_range(*bounds: int, **options) -> Iterator[_Index]:
    """A loop whose iterations depend on each other."""
    return _indices(machine().dependent(*bounds))


def static_range(*bounds: int) -> range:
    """A loop that is unrolled before anything is compiled."""
    return range(*bounds)


def device_print(prefix: str, x, *, mask=None, **options) -> None:
    """Print a tile, while simulating."""
    print(prefix, x._values() if isinstance(x, View) else x)


def loop_reduce(x, op, loop_indices, *, dtype=None, mask=None, **options) -> Any:
    """x reduced with those of the iterations before, over the loops of `loop_indices`. The first
    iteration begins with x alone. What the name held before that it is assigned to would count as
    well, and is not known here: a warning says so."""
    check_tiles("loop_reduce", x=x)
    if mask is not None:
        absent("neuronxcc.nki.language", "loop_reduce(mask=…)", __all__)
    operation = reduction("loop_reduce", op)
    listed = loop_indices if isinstance(loop_indices, (tuple, list)) else [loop_indices]
    over = {index.loop for index in listed if isinstance(index, _Index)}
    core = machine()
    if len(over) < len(listed) or not over <= {loop for loop, _ in core.turns_of_loops}:
        refuse(f"loop_reduce over {loop_indices}; accepted: indices of nl.affine_range that run")
    running = core.turns_of_loops
    first = [loop in over for loop, _ in running].index(True)
    # A loop further in is a new one each time: what it says again is its line and its index. One
    # that Python unrolls says nothing, so calls of one iteration are counted.
    again = [
        (core.lines[loop], core.steps[loop]) for loop, _ in running[first:] if loop not in over
    ]
    core.calls[call := (place(), *running)] += 1
    key = place(), *running[:first], running[first][0], *again, core.calls[call]
    known = core.reductions.get(key)
    if known is None:
        warnings.warn(
            f"loop_reduce begins with its first tile ({place()}): what its destination held before "
            "is not simulated",
            stacklevel=2,
        )
        core.reductions[key] = total = _copied(None, x, dtype=dtype)
        core.totals.add(total._storage.number)
        return total
    elementwise.tensor_tensor(known, known, x, operation, what="loop_reduce")
    return known


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


def _is_number(value) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


_ON_SCALAR = ("abs", "exp", "rsqrt", "sqrt", "square")
_PASSES = {"reciprocal": 8, "divide": 9}


def _applied(
    operation: MathOperation, *operands, what: str = "", dtype=None, mask=None, **options
) -> Beta1Tile:
    """A new tile: an operation of tiles and numbers, computed in float32."""
    core, name = machine(), what or operation.name
    if len(operands) != operation.inputs:
        refuse(f"nl.{name} takes {operation.inputs} operands, here {len(operands)}")
    for operand in operands:
        if not isinstance(operand, View) and not _is_number(operand):
            refuse(f"{name}: an operand is a {type(operand).__name__}; accepted: tiles and numbers")
    sources = [masked(name, o, mask) for o in operands if isinstance(o, View)]
    if not sources:
        refuse(f"{name} of {' and '.join(map(str, operands))}: at least one operand is a tile")
    if core.limits:
        for operand in sources:
            core.check_operand(name, "Vector", operand)
    result = new(_spread(name, sources), sources[0].dtype if dtype is None else dtype)

    def apply(*values: np.ndarray) -> np.ndarray:
        left = iter(values)
        return operation.function(
            *[next(left) if isinstance(o, View) else np.float32(o) for o in operands]
        )

    # A number for each partition is no stream, as of nisa.tensor_scalar.
    inputs = len([source for source in sources if source._elements > 1]) or 1
    passes = _PASSES.get(operation.name, 1)
    if operation.name == "divide" and inputs == 2:
        passes = 5
    if len(sources) == inputs == 2 and sources[0]._storage.streamed != sources[1]._storage.streamed:
        inputs = 1  # one comes from PSUM and one from SBUF: both ports are read at once
    on_scalar = operation.kind == FUNCTION or operation.name in _ON_SCALAR
    core.compute(
        "Scalar" if on_scalar else "Vector",
        name,
        apply,
        result,
        *sources,
        work=result._elements * inputs * passes,
        shapes=False,
        across=False,
        detail=(operation.name, *[o for o in operands if not isinstance(o, View)]),
    )
    return tiles.loosen(result, mask)


def divide(x, y, *, dtype=None, mask=None, **options) -> Beta1Tile:
    """x / y. Costed as a reciprocal, 8 N, and a product, 2 N or N: the documents give no figure."""
    if _is_number(y):
        return _applied(TABLE["multiply"], x, 1.0 / y, dtype=dtype, mask=mask)
    return _applied(TABLE["divide"], x, y, dtype=dtype, mask=mask)


_CHOICE = MathOperation("where", lambda *operands: np.where(operands[0] != 0, *operands[1:]), 3)


def where(condition, x, y, *, dtype=None, mask=None, **options) -> Beta1Tile:
    """x where condition is not zero, else y."""
    like = next(t for t in (x, y, condition) if isinstance(t, View))
    kind = like.dtype if dtype is None else dtype
    return _applied(_CHOICE, condition, x, y, dtype=kind, mask=mask)


def static_cast(input_data, dtype) -> Any:
    """A copy in another dtype; of an array too, on the host."""
    if isinstance(input_data, np.ndarray):
        return dtypes.narrow(input_data, dtypes.of(dtype))
    return _applied(TABLE["copy"], input_data, what="static_cast", dtype=dtype)


def dropout(x, rate, *, dtype=None, mask=None, **options) -> Beta1Tile:
    """Zeros in place of some elements, at random."""
    tile = _like(x, dtype)
    elementwise.dropout(tile, masked("dropout", x, mask), rate)
    return tiles.loosen(tile, mask)


def rand(shape: Sequence[int], dtype=float32, **options) -> Beta1Tile:
    """Random numbers from 0 to 1: not the hardware's."""
    tile, core = new(shape, dtype), machine()
    draw = lambda: core.rng.random(tile.shape, np.float32)
    core.compute("Vector", "rand", draw, tile, work=tile._elements)
    return tile


def random_seed(seed, *, mask=None, **options) -> None:
    """Where nl.rand starts from."""
    number = seed._values().reshape(-1)[0] if isinstance(seed, View) else seed
    machine().rng = np.random.default_rng(int(np.abs(number)))


def _reduced(
    op,
    x,
    axis=None,
    *,
    what: str = "",
    dtype=None,
    mask=None,
    negate: bool = False,
    keepdims: bool = False,
    **options,
) -> Beta1Tile:
    """A new tile: x reduced over its last axes. What a mask leaves out does not count."""
    name = what or op.name
    operation = reduction(name, op)
    # In any place but the first: beta 1's compiler moves them.
    listed = axis if isinstance(axis, (tuple, list)) else [axis]
    axes = tuple(sorted(a + x.ndim if a < 0 else int(a) for a in listed))
    if 0 in axes or builtins.max(axes) >= x.ndim:
        axes = reduce_axes(name, x, axis)
    shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
    if not keepdims:
        shape = [n for a, n in enumerate(x.shape) if a not in axes]
        shape = shape if len(shape) > 1 else [*shape, 1]
    taken = masked(name, x, mask)
    result = new(shape, x.dtype if dtype is None else dtype)
    if mask is None and taken is x:
        kept = [a for a in range(x.ndim) if a not in axes]
        last = tuple(range(len(kept), x.ndim))
        source = x if axes == last else x.permute((*kept, *axes))
        tensor_reduce(result, operation, source, last, negate, what=name)
        return result
    core = machine()
    states = core.check_written(name, taken)
    values = None
    inside = tiles.inside(taken)
    if core.numbers:
        identity = np.float32(IDENTITY[operation.name])
        values = reduced(
            operation, np.where(inside, dtypes.wide(taken._values()), identity), axes
        ).reshape(result.shape)
        values = -values if negate else values
    fresh = core.write(name, result, values)
    tiles.loosen(result, inside.any(axis=axes, keepdims=True).reshape(result.shape))
    if states is not None:
        bad = (is_undefined(states).reshape(x.shape) & inside).any(axis=axes)
        core.mark_undefined(name, result, bad.reshape(result.shape), (taken,), (states,))
    n = x._elements
    core.note("Vector", name, result, (taken,), work=n, elements=n, fresh=fresh)
    return result


def mean(x, axis, *, dtype=None, mask=None, keepdims: bool = False, **options) -> Beta1Tile:
    """The mean over the last axes."""
    axes = reduce_axes("mean", x, axis)
    total = _reduced(
        TABLE["add"], x, axes, what="mean", dtype=float32, mask=mask, keepdims=keepdims
    )
    number = math.prod(x.shape[a] for a in axes)
    wanted = x.dtype if dtype is None else dtype
    return _applied(TABLE["multiply"], total, 1.0 / number, what="mean", dtype=wanted)


def rms_norm(
    x, w, axis, n: int, epsilon: float = 1e-6, *, dtype=None, mask=None, **options
) -> Beta1Tile:
    """x w over the root of the mean of x² along the last axes."""
    step = functools.partial(_applied, what="rms_norm")
    squares = step(TABLE["square"], x, dtype=float32, mask=mask)
    total = _reduced(TABLE["add"], squares, axis, what="rms_norm", mask=mask, keepdims=True)
    moved = step(TABLE["add"], step(TABLE["multiply"], total, 1.0 / n), epsilon)
    scaled = step(TABLE["multiply"], x, step(TABLE["rsqrt"], moved), dtype=float32, mask=mask)
    return step(TABLE["multiply"], scaled, w, dtype=x.dtype if dtype is None else dtype, mask=mask)


def _in_sbuf(tile) -> Any:
    """A tile where the Tensor engine reads; the compiler copies what is in PSUM."""
    return _applied(TABLE["copy"], tile) if tile.buffer == PSUM else tile


def transpose(x, *, dtype=None, mask=None, **options) -> Beta1Tile:
    """A new tile with partitions and elements exchanged."""
    source = _in_sbuf(x)
    tile = new((source._elements, source.shape[0]), x.dtype if dtype is None else dtype, PSUM)
    taken = masked("transpose", source, mask)
    products.nc_transpose(tile, taken, TENSOR, what="transpose")
    return tile


def matmul(x, y, *, transpose_x: bool = False, mask=None, **options) -> Beta1Tile:
    """x y, or with transpose_x the transposed x times y, in PSUM."""
    left, right = _in_sbuf(x), _in_sbuf(y)
    if not transpose_x:
        left = _in_sbuf(transpose(left))
    tile = new((left.shape[1], right.shape[1]), float32, PSUM)
    products.nc_matmul(tile, left, right, what="matmul")
    return tiles.loosen(tile, mask)


def broadcast_to(src, *, shape: Sequence[int], **options) -> Any:
    """A tile whose dimensions of size 1 repeat; over partitions by the Tensor engine."""
    wanted = tuple(shape)
    if src.shape == wanted:
        return src
    if src.shape[0] == wanted[0] and src.ndim == len(wanted):
        return tiles.Viewable.broadcast_to(src, wanted)
    if src.shape[0] != 1:
        refuse(f"broadcast_to of {src} to {list(wanted)}: only dimensions of size 1 repeat")
    tile = new(wanted, src.dtype)
    products.spread(tile, src, passes=4 if src.dtype == np.float32 else 1)
    tile._storage.streamed = True  # the product by ones leaves it in PSUM
    return tile


def gather_flattened(data, indices, *, mask=None, dtype=None, **options) -> Beta1Tile:
    """data[indices], in each partition."""
    tile = new(indices.shape, data.dtype if dtype is None else dtype)
    places.nc_n_gather(tile, data, indices)
    return tile


_OPERATIONS: dict[str, Any] = {
    name: dataclasses.replace(operation, make=_copied if name == "copy" else _applied)
    for name, operation in TABLE.items()
    if name != "divide"
} | {
    name: dataclasses.replace(TABLE[REDUCTIONS[name]], make=_reduced, shown=name)
    for name in ("max", "min", "sum")
}
_DTYPES = {
    name: dtype
    for name, dtype in dtypes.ALL.items()
    if not name.endswith(("fn", "_x4"))  # of later cores
}
globals().update(grid.OF_BOTH | _OPERATIONS | _DTYPES)


def _method(operation, swap: bool = False) -> Any:
    def method(self, *other) -> Beta1Tile:
        return operation(*other, self) if swap else operation(self, *other)

    return method


def _in_place(operation) -> Any:
    def method(self, other) -> Any:
        if operation.name == "add" and tiles.added(self, other):
            return self
        if self.buffer in ON_CHIP and isinstance(other, View) and other.shape == self.shape:
            known = binary(operation.name, operation)
            elementwise.tensor_tensor(self, self, other, known, what=known.name)
        else:
            tiles.assign(self, operation(self, other))
        return self

    return method


_SIGNS = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}
_SIGNS |= {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
for _sign, _name in {**_SIGNS, "neg": "negative"}.items():
    _operation = globals()[_name]
    setattr(Beta1Tile, f"__{_sign}__", _method(_operation))
    if _sign in ("add", "sub", "mul", "truediv"):
        setattr(Beta1Tile, f"__r{_sign}__", _method(_operation, swap=True))
    if _sign in ("add", "sub", "mul"):
        setattr(Beta1Tile, f"__i{_sign}__", _in_place(_operation))
Beta1Tile.broadcast_to = lambda self, shape: broadcast_to(self, shape=shape)  # type: ignore[method-assign]

__all__ = ["finfo", "fp32"]
__all__ += [*grid.OF_BOTH, *own_names(globals()), *_OPERATIONS, *_DTYPES]
__getattr__ = nothing_but("neuronxcc.nki.language", __all__)
