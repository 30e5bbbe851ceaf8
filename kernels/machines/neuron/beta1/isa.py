"""neuronxcc.nki.isa: instructions that make the tile of their result, and take mask=.

Names and arguments are those of the AWS Neuron documentation of SDK 2.20 to 2.26.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines.neuron import instructions as do
from kernels.machines.neuron.beta1 import language, tiles
from kernels.machines.neuron.beta1.tiles import Tile, masked, new
from kernels.machines.neuron.dtypes import float32
from kernels.machines.neuron.errors import absent, refuse
from kernels.machines.neuron.instructions import (
    FP32_MIN,
    dge_mode,
    engine,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from kernels.machines.neuron.machine import PSUM, View, machine

tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown
constants = __import__("types").SimpleNamespace(
    engine=engine,
    reduce_cmd=reduce_cmd,
    dge_mode=dge_mode,
    oob_mode=oob_mode,
    nc_version=nc_version,
)


def get_nc_version() -> nc_version:
    """The generation of the core that is simulated."""
    return nc_version(machine().chip.generation)


def _makes(
    operand: str = "data", shape: Callable[[Any], Any] | None = None, loosens: bool = True
) -> Callable[[Callable[..., None]], Callable[..., Tile]]:
    """An instruction that makes the tile of its result.

    Args:
        operand: the argument that the tile is like, and that a mask cuts.
        shape: of the tile, from that operand; by default the same.
        loosens: whether what the mask leaves out of the result is anything.

    Returns:
        A decorator of `body(found, …)`, which gets the tile and does the instruction. What else the
        vendor's function takes is ignored.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., Tile]:
        name, (_, *own) = body.__name__, inspect.signature(body).parameters

        def instruction(*given: Any, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
            named = dict(zip(own, given))
            named |= {key: value for key, value in options.items() if key in own}
            data: Any = named.get(operand)
            do.tiles(name, **{operand: data})
            found = new(
                data.shape if shape is None else shape(data), data.dtype if dtype is None else dtype
            )
            named[operand] = masked(name, data, mask)
            for each in _CUT & named.keys() - {operand}:
                named[each] = masked(name, named[each], mask)
            try:
                inspect.getcallargs(body, found, **named)
            except TypeError as error:
                refuse(f"{name}: {error}")
            body(found, **named)
            if loosens:
                tiles.loosen(found, mask)
            return found

        instruction.__name__, instruction.__doc__ = name, body.__doc__
        instruction.__module__ = body.__module__
        return instruction

    return decorate


_CUT = {"data1", "data2", "operand1"}  # second operands that a mask cuts as well


def _eight(data: Any) -> tuple[int, int]:
    return data.shape[0], 8


@_makes()
def activation(
    found: Tile,
    op: Any,
    data: Any,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
) -> None:
    """op(data scale + bias), on the Scalar engine."""
    do.activation(found, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd, numpy=True)


@_makes()
def activation_reduce(
    found: Tile,
    op: Any,
    data: Any,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
) -> None:
    """op(data scale + bias), and its sum in reduce_res."""
    reset = reduce_cmd.reset_reduce
    do.activation(
        found, op, data, bias, scale, reduce_op, reduce_res, reset, True, "activation_reduce"
    )


@_makes("on_true_tile")
def affine_select(found: Tile, pred: Any, on_true_tile: Any, on_false_value: Any) -> None:
    """on_true_tile where the condition on indices holds, else a number."""
    do.affine_select(found, np.broadcast_to(pred, found.shape), on_true_tile, on_false_value)


def iota(expr: Any, dtype: Any, *, mask: Any = None, **options: Any) -> Tile:
    """The numbers of an expression of nl.arange."""
    values = np.asarray(expr)
    values = values.reshape(1, -1) if values.ndim < 2 else values
    found = new(values.shape, dtype)
    do.iota(found, values)
    tiles.loosen(found, mask)
    return found


def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None, **options: Any
) -> Tile:
    """A tile of one number."""
    found = new(shape, dtype)
    do.memset(found, value, engine)
    return found


def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = oob_mode.error,
    dge_mode: Any = None,
) -> None:
    """Copy between HBM and SBUF."""
    if dst_rmw_op is not None:
        absent("neuronxcc.nki.isa", "dma_copy(dst_rmw_op=…)", globals(), ["dma_copy(dst_rmw_op=…)"])
    skip = oob_mode == do.oob_mode.skip
    to, source = masked("dma_copy", dst, mask, skip), masked("dma_copy", src, mask, skip)
    core = machine()
    left_out = getattr(source, "_taken", None)
    if skip and left_out is not None:  # where nothing is fetched, dst stays
        to = masked("dma_copy", to, left_out.reshape(to.shape))
    core.copy("dma_copy", to, source)


def dma_transpose(
    src: Any, *, axes: Any = None, mask: Any = None, dtype: Any = None, **options: Any
) -> Tile:
    """A tile with a tensor's dimensions turned around."""
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[src.ndim]
    found = new([src.shape[a] for a in order], src.dtype if dtype is None else dtype)
    do.dma_transpose(found, masked("dma_transpose", src, mask), axes)
    return found


@_makes(loosens=False)
def dropout(found: Tile, data: Any, prob: Any) -> None:
    """Zeros in place of some elements, at random."""
    do.dropout(found, data, prob)


@_makes("src", _eight, loosens=False)
def max8(found: Tile, src: Any) -> None:
    """The 8 largest numbers of each partition."""
    do.max8(found, src)


def nc_find_index8(
    *, data: Any, vals: Any, mask: Any = None, dtype: Any = None, **options: Any
) -> Tile:
    """Where each of 8 numbers stands in its partition."""
    return _find_index8(data, vals, mask=mask, dtype=dtype or language.uint32)


@_makes(shape=_eight, loosens=False)
def _find_index8(found: Tile, data: Any, vals: Any) -> None:
    do.nc_find_index8(found, data, vals)


@_makes(loosens=False)
def nc_match_replace8(found: Tile, data: Any, vals: Any, imm: float, dst_idx: Any = None) -> None:
    """data with the first place of each of 8 numbers replaced."""
    do.nc_match_replace8(found, data, vals, imm, dst_idx)


def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: Any = None,
    perf_mode: Any = None,
    **options: Any,
) -> Tile:
    """stationary [K, M] transposed times moving [K, N], in PSUM."""
    do.tiles("nc_matmul", stationary=stationary, moving=moving)
    double = perf_mode not in (None, "none")
    found = new((stationary.shape[-1], moving._elements // (2 if double else 1)), float32, PSUM)
    do.nc_matmul(
        found,
        masked("nc_matmul", stationary, None),
        masked("nc_matmul", moving, None),
        None,
        is_transpose,
        tile_position,
        tile_size,
        perf_mode if double else do.matmul_perf_mode.none,
    )
    tiles.loosen(found, mask)
    return found


def nc_transpose(
    data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **options: Any
) -> Tile:
    """Partitions and elements exchanged: in PSUM by the Tensor engine, in SBUF by the Vector's."""
    do.tiles("nc_transpose", data=data)
    small = data.shape[0] <= 32 and data._elements <= 32
    vector = engine == vector_engine or (
        engine in (None, unknown_engine) and (small or data.buffer == PSUM)
    )
    found = new(
        (data._elements, data.shape[0]),
        data.dtype if dtype is None else dtype,
        "sbuf" if vector else PSUM,
    )
    taken = masked("nc_transpose", data, mask)
    do.nc_transpose(found, taken, vector_engine if vector else tensor_engine)
    return found


def nc_stream_shuffle(
    src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None, mask: Any = None, **options: Any
) -> None:
    """Partitions of each 32 exchanged."""
    do.nc_stream_shuffle(dst, src, shuffle_mask)


def local_gather(
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: Any = None,
    *,
    mask: Any = None,
) -> Tile:
    """Gather by the indices that 16 partitions hold together."""
    cores = index.shape[0] // 16
    valid = index.size // cores if num_valid_indices is None else num_valid_indices
    found = new((src_buffer.shape[0], valid * num_elem_per_idx), src_buffer.dtype)
    do.local_gather(found, src_buffer, index, num_elem_per_idx, num_valid_indices)
    return found


@_makes("on_true_tile", loosens=False)
def range_select(
    found: Tile,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = reduce_cmd.idle,
    reduce_res: Any = None,
    reduce_op: Any = np.amax,
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
) -> None:
    """on_true_tile where an element's place lies within two bounds."""
    do.range_select(
        found,
        on_true_tile,
        comp_op0,
        comp_op1,
        bound0,
        bound1,
        reduce_res,
        reduce_cmd,
        range_start,
        on_false_value,
        numpy=True,
    )


@_makes()
def reciprocal(found: Tile, data: Any) -> None:
    """1 / data, on the Vector engine."""
    do.reciprocal(found, data)


@_makes()
def scalar_tensor_tensor(
    found: Tile,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
) -> None:
    """(data op0 operand0) op1 operand1."""
    do.scalar_tensor_tensor(
        found, data, op0, operand0, op1, operand1, reverse0, reverse1, numpy=True
    )


def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    reduce_op: Any = np.amax,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
    **options: Any,
) -> None:
    """dst = on_true where predicate is not zero, else on_false; and the largest of each row."""
    do.select_reduce(dst, predicate, on_true, on_false, reduce_res, reduce_cmd, reverse_pred)


def sequence_bounds(*, segment_ids: Any, dtype: Any = None) -> Tile:
    """Where the segment of each element starts and ends."""
    found = new((1, 2, segment_ids._elements), segment_ids.dtype if dtype is None else dtype)
    do.sequence_bounds(found, segment_ids)
    return found


@_makes("src")
def tensor_copy(found: Tile, src: Any, engine: Any = None) -> None:
    """A copy on the chip."""
    do.tensor_copy(found, src, None if engine == scalar_engine else engine)


@_makes("src")
def tensor_copy_dynamic_src(found: Tile, src: Any, engine: Any = None) -> None:
    """A copy of what lies where a number in SBUF says."""
    do.tensor_copy_dynamic(found, src, engine, "tensor_copy_dynamic_src")


def tensor_copy_dynamic_dst(
    *, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Any = None, **options: Any
) -> None:
    """A copy to where a number in SBUF says."""
    name = "tensor_copy_dynamic_dst"
    do.tensor_copy_dynamic(masked(name, dst, mask), masked(name, src, mask), engine, name)


def tensor_copy_predicated(
    *,
    src: Any,
    dst: Any,
    predicate: Any,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
    **options: Any,
) -> None:
    """dst = src where predicate is not zero."""
    do.tensor_copy_predicated(dst, src, predicate, reverse_pred)


@_makes(shape=lambda data: (1, *data.shape[1:]), loosens=False)
def tensor_partition_reduce(found: Tile, op: Any, data: Any) -> None:
    """data reduced over its partitions."""
    do.tensor_partition_reduce(found, op, data, numpy=True)


def tensor_reduce(
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    **options: Any,
) -> Tile:
    """data reduced over its last axes."""
    return language.reduce(
        "tensor_reduce", op, data, axis, dtype=dtype, mask=mask, negate=negate, keepdims=keepdims
    )


@_makes()
def tensor_scalar(
    found: Tile,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: Any = None,
) -> None:
    """(data op0 operand0) op1 operand1."""
    second = [] if op1 is None else [(op1, operand1, reverse1)]
    do.tensor_scalar(found, data, [(op0, operand0, reverse0), *second], engine, numpy=True)


@_makes(loosens=False)
def tensor_scalar_reduce(
    found: Tile,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
) -> None:
    """data op0 operand0, and a reduction of it in reduce_res."""
    do.tensor_scalar_reduce(found, data, op0, operand0, reduce_op, reduce_res, reverse0, numpy=True)


@_makes("data1")
def tensor_tensor(found: Tile, data1: Any, data2: Any, op: Any, engine: Any = None) -> None:
    """data1 op data2."""
    do.tensor_tensor(found, data1, data2, op, engine, numpy=True)


@_makes("data0", loosens=False)
def tensor_tensor_scan(
    found: Tile,
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
) -> None:
    """result[i] = (data0[i] op0 result[i - 1]) op1 data1[i]."""
    do.tensor_tensor_scan(found, data0, data1, initial, op0, op1, reverse0, reverse1, numpy=True)


@_makes(shape=lambda data: (data.shape[0], 6), loosens=False)
def bn_stats(found: Tile, data: Any) -> None:
    """Count, mean and variance × count of even and odd elements."""
    do.bn_stats(found, data)


@_makes(shape=lambda data: (data.shape[0], 2), loosens=False)
def bn_aggr(found: Tile, data: Any) -> None:
    """Mean and variance from the results of bn_stats."""
    do.bn_aggr(found, data)


_KNOWN = ["builtin_custom_op"]
__all__ = ["View"]


def __getattr__(name: str) -> Any:
    return absent("neuronxcc.nki.isa", name, globals(), _KNOWN)
