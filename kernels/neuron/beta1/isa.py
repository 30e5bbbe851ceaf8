"""neuronxcc.nki.isa: instructions that make the tile of their result, and take mask=.

Names and arguments are those of the AWS Neuron documentation of SDK 2.20 to 2.26.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.neuron import instructions as do
from kernels.neuron.beta1 import language, tiles
from kernels.neuron.beta1.tiles import Tile, masked, new
from kernels.neuron.dtypes import float32
from kernels.neuron.errors import absent
from kernels.neuron.instructions import (
    FP32_MIN,
    dge_mode,
    engine,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from kernels.neuron.machine import PSUM, View, machine

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


def _result(
    name: str, data: Any, dtype: Any, mask: Any, shape: Any = None, buffer: str = "sbuf"
) -> tuple[Tile, Any]:
    """A tile for the result, and the operand as far as the mask takes it."""
    do.tiles(name, data=data)
    found = new(
        data.shape if shape is None else shape, data.dtype if dtype is None else dtype, buffer
    )
    return found, masked(name, data, mask)


def activation(
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    mask: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Tile:
    """op(data scale + bias), on the Scalar engine."""
    found, taken = _result("activation", data, dtype, mask)
    do.activation(found, op, taken, bias, scale, reduce_op, reduce_res, reduce_cmd, numpy=True)
    tiles.loosen(found, mask)
    return found


def activation_reduce(
    op: Any,
    data: Any,
    *,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Tile:
    """op(data scale + bias), and its sum in reduce_res."""
    found, taken = _result("activation_reduce", data, dtype, mask)
    reset = reduce_cmd.reset_reduce
    do.activation(
        found, op, taken, bias, scale, reduce_op, reduce_res, reset, True, "activation_reduce"
    )
    tiles.loosen(found, mask)
    return found


def affine_select(
    pred: Any,
    on_true_tile: Any,
    on_false_value: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Tile:
    """on_true_tile where the condition on indices holds, else a number."""
    found, taken = _result("affine_select", on_true_tile, dtype, mask)
    do.affine_select(found, np.broadcast_to(pred, found.shape), taken, on_false_value)
    tiles.loosen(found, mask)
    return found


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


def dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
    """Zeros in place of some elements, at random."""
    found, taken = _result("dropout", data, dtype, mask)
    do.dropout(found, taken, prob)
    return found


def max8(*, src: Any, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
    """The 8 largest numbers of each partition."""
    found, taken = _result("max8", src, dtype, mask, (src.shape[0], 8))
    do.max8(found, taken)
    return found


def nc_find_index8(
    *, data: Any, vals: Any, mask: Any = None, dtype: Any = None, **options: Any
) -> Tile:
    """Where each of 8 numbers stands in its partition."""
    found, taken = _result(
        "nc_find_index8", data, dtype or language.uint32, mask, (data.shape[0], 8)
    )
    do.nc_find_index8(found, taken, vals)
    return found


def nc_match_replace8(
    *,
    data: Any,
    vals: Any,
    imm: float,
    dst_idx: Any = None,
    mask: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Tile:
    """data with the first place of each of 8 numbers replaced."""
    found, taken = _result("nc_match_replace8", data, dtype, mask)
    do.nc_match_replace8(found, taken, vals, imm, dst_idx)
    return found


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


def range_select(
    *,
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
    mask: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Tile:
    """on_true_tile where an element's place lies within two bounds."""
    found, taken = _result("range_select", on_true_tile, dtype, mask)
    do.range_select(
        found,
        taken,
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
    return found


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None, **options: Any) -> Tile:
    """1 / data, on the Vector engine."""
    found, taken = _result("reciprocal", data, dtype, mask)
    do.reciprocal(found, taken)
    tiles.loosen(found, mask)
    return found


def scalar_tensor_tensor(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **options: Any,
) -> Tile:
    """(data op0 operand0) op1 operand1."""
    found, taken = _result("scalar_tensor_tensor", data, dtype, mask)
    do.scalar_tensor_tensor(
        found,
        taken,
        op0,
        operand0,
        op1,
        masked("scalar_tensor_tensor", operand1, mask),
        reverse0,
        reverse1,
        numpy=True,
    )
    tiles.loosen(found, mask)
    return found


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


def tensor_copy(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **options: Any
) -> Tile:
    """A copy on the chip."""
    found, taken = _result("tensor_copy", src, dtype, mask)
    do.tensor_copy(found, taken, None if engine == scalar_engine else engine)
    tiles.loosen(found, mask)
    return found


def tensor_copy_dynamic_src(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **options: Any
) -> Tile:
    """A copy of what lies where a number in SBUF says."""
    found, taken = _result("tensor_copy_dynamic_src", src, dtype, mask)
    do.tensor_copy_dynamic(found, taken, engine, "tensor_copy_dynamic_src")
    tiles.loosen(found, mask)
    return found


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


def tensor_partition_reduce(
    op: Any, data: Any, *, mask: Any = None, dtype: Any = None, **options: Any
) -> Tile:
    """data reduced over its partitions."""
    found, taken = _result("tensor_partition_reduce", data, dtype, mask, (1, *data.shape[1:]))
    do.tensor_partition_reduce(found, op, taken, numpy=True)
    return found


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


def tensor_scalar(
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = None,
    **options: Any,
) -> Tile:
    """(data op0 operand0) op1 operand1."""
    found, taken = _result("tensor_scalar", data, dtype, mask)
    second = [] if op1 is None else [(op1, operand1, reverse1)]
    do.tensor_scalar(found, taken, [(op0, operand0, reverse0), *second], engine, numpy=True)
    tiles.loosen(found, mask)
    return found


def tensor_scalar_reduce(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **options: Any,
) -> Tile:
    """data op0 operand0, and a reduction of it in reduce_res."""
    found, taken = _result("tensor_scalar_reduce", data, dtype, mask)
    do.tensor_scalar_reduce(
        found, taken, op0, operand0, reduce_op, reduce_res, reverse0, numpy=True
    )
    return found


def tensor_tensor(
    data1: Any,
    data2: Any,
    op: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = None,
    **options: Any,
) -> Tile:
    """data1 op data2."""
    do.tiles("tensor_tensor", data1=data1, data2=data2)
    found, taken = _result("tensor_tensor", data1, dtype, mask)
    do.tensor_tensor(found, taken, masked("tensor_tensor", data2, mask), op, engine, numpy=True)
    tiles.loosen(found, mask)
    return found


def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    **options: Any,
) -> Tile:
    """result[i] = (data0[i] op0 result[i - 1]) op1 data1[i]."""
    found, taken = _result("tensor_tensor_scan", data0, dtype, mask)
    do.tensor_tensor_scan(
        found,
        taken,
        masked("tensor_tensor_scan", data1, mask),
        initial,
        op0,
        op1,
        reverse0,
        reverse1,
        numpy=True,
    )
    tiles.loosen(found, mask)
    return found


def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
    """Count, mean and variance × count of even and odd elements."""
    found, taken = _result("bn_stats", data, dtype, mask, (data.shape[0], 6))
    do.bn_stats(found, taken)
    return found


def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None, **options: Any) -> Tile:
    """Mean and variance from the results of bn_stats."""
    found, taken = _result("bn_aggr", data, dtype, mask, (data.shape[0], 2))
    do.bn_aggr(found, taken)
    return found


_KNOWN = ["builtin_custom_op"]
__all__ = ["View"]


def __getattr__(name: str) -> Any:
    return absent("neuronxcc.nki.isa", name, globals(), _KNOWN)
