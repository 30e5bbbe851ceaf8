"""neuronxcc.nki.isa: instructions that make the tile of their result, and take mask=.

Names and arguments are those of the AWS Neuron documentation of SDK 2.20 to 2.26; the instructions
are those of kernels.machines.neuron.instructions.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.beta1 import tiles
from kernels.machines.neuron.beta1.language import _in_sbuf, _reduced
from kernels.machines.neuron.beta1.tiles import Beta1Tile, masked, new
from kernels.machines.neuron.errors import absent, nothing_but, own_names, refuse
from kernels.machines.neuron.instructions import along, dma, elementwise, places
from kernels.machines.neuron.instructions import tensor_engine as products
from kernels.machines.neuron.instructions.common import (
    ENUMERATIONS,
    GPSIMD,
    IDLE,
    SCALAR,
    TENSOR,
    UNKNOWN,
    VECTOR,
    get_nc_version,
    matmul_perf_mode,
    oob_mode,
)
from kernels.machines.neuron.instructions.common import constants as _constants
from kernels.machines.neuron.instructions.common import tiles as _tiles
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import PSUM, SBUF

tensor_engine, vector_engine, scalar_engine, gpsimd_engine = TENSOR, VECTOR, SCALAR, GPSIMD
SKIP = oob_mode.skip
constants = _constants("neuronxcc.nki.isa.constants")
globals().update(ENUMERATIONS)

_CUT = {"data1", "data2", "operand1", "moving"}  # second operands that a mask cuts as well


def _makes(
    instruction: Callable[..., None],
    operand: str = "data",
    shape: Callable[..., Any] | None = None,
    columns: int | None = None,
    cuts: bool = True,
    dtype=None,
    buffer: str = SBUF,
    **defaults,
) -> Callable[..., Beta1Tile]:
    """An instruction as a function that makes the tile of its result; what else the vendor's takes
    is ignored.

    Args:
        instruction: which gets the tile as dst.
        operand: the argument that the tile is like, and that a mask cuts.
        shape: of the tile, from all arguments; by default that of the operand.
        columns: so many numbers for each partition of the operand instead.
        cuts: whether a mask leaves out any of the operands, so that what comes of that is anything.
        dtype, buffer: of the tile, by default the operand's and SBUF.
        defaults: of arguments, where beta 1 has others.
    """
    name = instruction.__name__.removeprefix("_")
    _, *own = (known for known in inspect.signature(instruction).parameters if known != "what")
    usual = dtype

    def function(*arguments, mask=None, dtype=None, **options) -> Beta1Tile:
        named = defaults | dict(zip(own, arguments))
        named |= {key: value for key, value in options.items() if key in own}
        data: Any = named.get(operand)
        _tiles(name, **{operand: data})
        try:
            every = inspect.getcallargs(instruction, None, **named)
        except TypeError as error:
            refuse(f"{name}: {error}")
        wanted = next(kind for kind in (dtype, usual, data.dtype) if kind is not None)
        size = data.shape if columns is None else (data.shape[0], columns)
        tile = new(size if shape is None else shape(**every), wanted, buffer)
        for cut in {operand} | _CUT & named.keys():
            named[cut] = masked(name, named[cut], mask if cuts else None)
        instruction(tile, **named)
        return tiles.loosen(tile, mask)

    function.__name__, function.__doc__ = name, instruction.__doc__
    return function


def _writes(instruction: Callable[..., None], *order: str) -> Callable[..., None]:
    """An instruction that writes the dst that it is handed, its arguments in beta 1's order."""
    own = set(inspect.signature(instruction).parameters)

    def function(*arguments, **options) -> None:
        named = dict(zip(order, arguments))
        instruction(**named, **{key: value for key, value in options.items() if key in own})

    function.__name__, function.__doc__ = instruction.__name__, instruction.__doc__
    return function


def _gathered(
    src_buffer, index, num_elem_per_idx: int, num_valid_indices, **others
) -> tuple[int, ...]:
    valid = index.size // (index.shape[0] // 16) if num_valid_indices is None else num_valid_indices
    return src_buffer.shape[0], valid * num_elem_per_idx


def _multiplied(stationary, moving, perf_mode, **others) -> tuple[int, int]:
    double = perf_mode not in (None, "none", matmul_perf_mode.none)
    return stationary.shape[-1], moving._elements // (2 if double else 1)


def _tensor_copy(dst, src, engine=None) -> None:
    """A copy on the chip; the compiler chooses, where the kernel says Scalar."""
    elementwise.tensor_copy(dst, src, UNKNOWN if engine == SCALAR else engine)


def _affine_select(dst, pred, on_true_tile, on_false_value) -> None:
    """on_true_tile where the condition on indices holds, else a number."""
    places.choose(dst, np.broadcast_to(pred, dst.shape), _in_sbuf(on_true_tile), on_false_value)


_MADE: tuple[Any, ...] = (
    _makes(elementwise.activation),
    _makes(elementwise.activation_reduce),
    _makes(elementwise.dropout),
    _makes(elementwise.reciprocal),
    _makes(elementwise.scalar_tensor_tensor),
    _makes(elementwise.tensor_scalar),
    _makes(elementwise.tensor_scalar_reduce),
    _makes(elementwise.tensor_tensor, "data1"),
    _makes(_tensor_copy, "src"),
    _writes(elementwise.select_reduce),
    _writes(elementwise.tensor_copy_predicated),
    _makes(along.bn_aggr, columns=2),
    _makes(along.bn_stats, columns=6),
    _makes(along.tensor_partition_reduce, shape=lambda data, **_: (1, *data.shape[1:])),
    _makes(along.tensor_tensor_scan, "data0"),
    _writes(along.tensor_scalar_cumulative),
    _makes(_affine_select, "on_true_tile"),
    _makes(dma.dma_transpose, "src", lambda src, **_: [src.shape[a] for a in dma.ORDERS[src.ndim]]),
    _makes(places.local_gather, "src_buffer", _gathered),
    _makes(places.max8, "src", columns=8),
    _makes(places.nc_find_index8, columns=8, dtype=dtypes.uint32),
    _makes(places.nc_match_replace8),
    _makes(places.range_select, "on_true_tile", reduce_cmd=IDLE),
    _makes(
        places.sequence_bounds, "segment_ids", lambda segment_ids, **_: (1, 2, segment_ids.size)
    ),
    _writes(places.nc_stream_shuffle, "src", "dst", "shuffle_mask"),
    _makes(
        products.nc_matmul, "stationary", _multiplied, cuts=False, dtype=dtypes.float32, buffer=PSUM
    ),
)
globals().update({function.__name__: function for function in _MADE})


def tensor_reduce(op, data, axis, **options) -> Beta1Tile:
    """data reduced over its last axes."""
    return _reduced(op, data, axis, what="tensor_reduce", **options)


def iota(expr, dtype, *, mask=None, **options) -> Beta1Tile:
    """The numbers of an expression of nl.arange."""
    values = np.asarray(expr)
    values = values.reshape(1, -1) if values.ndim < 2 else values
    tile = new(values.shape, dtype)
    places.count(tile, values)
    return tiles.loosen(tile, mask)


def memset(shape, value, dtype, *, engine=None, **options) -> Beta1Tile:
    """A tile of one number."""
    tile = new(shape, dtype)
    elementwise.memset(tile, value, engine)
    return tile


def dma_copy(
    *, dst, src, mask=None, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=None
) -> None:
    """Copy between HBM and SBUF."""
    what = "dma_copy"
    if dst_rmw_op is not None:
        absent("neuronxcc.nki.isa", "dma_copy(dst_rmw_op=…)", __all__)
    skip = oob_mode == SKIP
    to, source = masked(what, dst, mask, skip), masked(what, src, mask, skip)
    left_out = getattr(source, "_taken", None)
    if skip and left_out is not None:  # where nothing is fetched, dst stays
        to = masked(what, to, left_out.reshape(to.shape))
    machine().copy(what, to, source)


def nc_transpose(data, *, mask=None, dtype=None, engine=None, **options) -> Beta1Tile:
    """Partitions and elements exchanged: in PSUM by the Tensor engine, in SBUF by the Vector's."""
    _tiles("nc_transpose", data=data)
    small = data.shape[0] <= 32 and data._elements <= 32
    free = engine in (None, UNKNOWN) and (small or data.buffer == PSUM)
    where = VECTOR if free or engine == VECTOR else TENSOR
    shape = (data._elements, data.shape[0])
    buffer = SBUF if where == VECTOR else PSUM
    tile = new(shape, data.dtype if dtype is None else dtype, buffer)
    products.nc_transpose(tile, masked("nc_transpose", data, mask), where)
    return tile


__all__ = ["get_nc_version", "gpsimd_engine", "scalar_engine", "tensor_engine", "vector_engine"]
__all__ += [*own_names(globals()), *ENUMERATIONS]
__getattr__ = nothing_but("neuronxcc.nki.isa", __all__)
