"""nki.isa: one function for each instruction; dst comes first.

Names, arguments and limits are those of the AWS Neuron documentation of nki.isa, 0.3 to 0.7. What
an instruction does, and what it costs, stands in kernels.neuron.instructions.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kernels.machines.neuron import instructions as do
from kernels.machines.neuron.errors import absent, refuse
from kernels.machines.neuron.instructions import (
    FP32_MIN,
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.operations import TABLE
from kernels.machines.neuron.tensors import Register

VirtualRegister = Register
unknown = engine.unknown
tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown


def get_nc_version() -> nc_version:
    """The generation of the core that is simulated."""
    return nc_version(machine().chip.generation)


def dma_copy(
    dst: Any,
    src: Any,
    priority: Any = None,
    oob_mode: Any = oob_mode.error,
    dge_mode: Any = dge_mode.unknown,
    engine: Any = unknown,
    name: str | None = None,
) -> None:
    """Copy between HBM and SBUF: as many elements, in any shape; dtypes may differ."""
    do.dma_copy(dst, src, oob_mode)


def dma_transpose(
    dst: Any,
    src: Any,
    axes: Any = None,
    priority: Any = None,
    dge_mode: Any = dge_mode.unknown,
    oob_mode: Any = oob_mode.error,
    name: str | None = None,
) -> None:
    """dst = src with its dimensions turned around."""
    do.dma_transpose(dst, src, axes)


def dma_compute(
    dst: Any,
    srcs: Any,
    reduce_op: Any,
    scales: Any = None,
    unique_indices: bool = True,
    oob_mode: Any = oob_mode.error,
    name: str | None = None,
) -> None:
    """dst = the sum of the sources, by the DMA engines."""
    do.dma_compute(dst, srcs, reduce_op, scales)


def memset(dst: Any, value: Any, engine: Any = unknown, name: str | None = None) -> None:
    """Fill a tile with a constant."""
    do.memset(dst, value, engine)


def tensor_copy(
    dst: Any, src: Any, engine: Any = unknown, name: str | None = None, dtype: Any = None
) -> None:
    """Copy a tile on the chip: the way between SBUF and PSUM.

    Args:
        dtype: until NKI 0.2.
    """
    do.tensor_copy(dst, src, engine)


def tensor_copy_dynamic_src(
    dst: Any, src: Any, engine: Any = unknown, name: str | None = None
) -> None:
    """dst = src, which lies where a number in SBUF says; until NKI 0.2."""
    do.tensor_copy_dynamic(dst, src, engine, "tensor_copy_dynamic_src")


def tensor_copy_dynamic_dst(
    dst: Any, src: Any, engine: Any = unknown, name: str | None = None
) -> None:
    """dst, which lies where a number in SBUF says, = src; until NKI 0.2."""
    do.tensor_copy_dynamic(dst, src, engine, "tensor_copy_dynamic_dst")


def tensor_copy_predicated(
    dst: Any, src: Any, predicate: Any, reverse_pred: bool = False, name: str | None = None
) -> None:
    """dst = src where predicate is not zero."""
    do.tensor_copy_predicated(dst, src, predicate, reverse_pred)


def tensor_tensor(
    dst: Any, data1: Any, data2: Any, op: Any, engine: Any = unknown, name: str | None = None
) -> None:
    """dst = data1 op data2."""
    do.tensor_tensor(dst, data1, data2, op, engine)


def tensor_scalar(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: Any = unknown,
    name: str | None = None,
) -> None:
    """dst = (data op0 operand0) op1 operand1; operands are numbers, or float32 [partitions, 1]."""
    second = [] if op1 is None or op1 is TABLE["bypass"] else [(op1, operand1, reverse1)]
    do.tensor_scalar(dst, data, [(op0, operand0, reverse0), *second], engine)


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
    do.scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1, reverse0, reverse1)


def tensor_scalar_reduce(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any = None,
    reverse0: bool = False,
    reduce_cmd: Any = reduce_cmd.reset_reduce,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> None:
    """dst = data op0 operand0, and a reduction of it."""
    do.tensor_scalar_reduce(
        dst,
        data,
        op0,
        operand0,
        reduce_op,
        reduce_res,
        reverse0,
        reduce_cmd,
        reduce_init,
        reduce_res_negate,
    )


def tensor_scalar_cumulative(
    dst: Any,
    src: Any,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: Any = reduce_cmd.reset_reduce,
    name: str | None = None,
) -> None:
    """dst[i] = (src[i] op0 imm0) op1 dst[i - 1]."""
    do.tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1, reduce_cmd)


def tensor_reduce(
    dst: Any,
    op: Any,
    data: Any,
    axis: Any,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> None:
    """dst = data reduced over its last axes."""
    do.tensor_reduce(dst, op, data, axis, negate)


def tensor_partition_reduce(dst: Any, op: Any, data: Any, name: str | None = None) -> None:
    """dst = data reduced over its partitions."""
    do.tensor_partition_reduce(dst, op, data)


def tensor_tensor_scan(
    dst: Any,
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> None:
    """dst[i] = (data0[i] op0 dst[i - 1]) op1 data1[i], along each partition."""
    do.tensor_tensor_scan(dst, data0, data1, initial, op0, op1, reverse0, reverse1)


def reciprocal(dst: Any, data: Any, name: str | None = None) -> None:
    """dst = 1 / data, on the Vector engine: eight cycles an element."""
    do.reciprocal(dst, data)


def exponential(
    dst: Any,
    src: Any,
    max_value: Any = 0.0,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    reduce_init: Any = 0.0,
    name: str | None = None,
) -> None:
    """dst = exp(src - max_value), on the Vector engine of NeuronCore-v4."""
    do.exponential(dst, src, max_value, reduce_res, reduce_cmd, reduce_init)


def activation(
    dst: Any,
    op: Any,
    data: Any,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    name: str | None = None,
) -> None:
    """dst = op(data scale + bias), on the Scalar engine, and a sum of it where asked for."""
    do.activation(dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd)


def activation_reduce(
    dst: Any,
    op: Any,
    data: Any,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> None:
    """dst = op(data scale + bias), and its sum in reduce_res."""
    reset = reduce_cmd.reset_reduce
    do.activation(
        dst, op, data, bias, scale, reduce_op, reduce_res, reset, name="activation_reduce"
    )


def activate2(
    dst: Any,
    op: Any,
    data: Any,
    imm0: Any,
    imm1: Any,
    op0: Any,
    op1: Any,
    relu_param: Any = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    name: str | None = None,
) -> None:
    """dst = op((data op0 imm0) op1 imm1), and a reduction of it, on NeuronCore-v4."""
    steps = [(op0, imm0, reverse0), (op1, imm1, reverse1)]
    do.activate2(dst, op, data, steps, relu_param, reduce_op, reduce_res, reduce_cmd)


def iota(
    dst: Any, pattern: Any, offset: int = 0, channel_multiplier: int = 0, name: str | None = None
) -> None:
    """dst = offset + partition × channel_multiplier + the pattern's steps."""
    do.tiles("iota", dst=dst)
    do.iota(dst, do.pattern_values("iota", dst.shape[0], pattern, offset, channel_multiplier))


def affine_select(
    dst: Any,
    pattern: Any,
    channel_multiplier: int,
    on_true_tile: Any,
    on_false_value: Any,
    cmp_op: Any = TABLE["equal"],
    offset: int = 0,
    name: str | None = None,
) -> None:
    """dst = on_true_tile where the pattern compares with 0, else a number."""
    do.tiles("affine_select", dst=dst)
    compare = do.comparison("affine_select", cmp_op)
    values = do.pattern_values("affine_select", dst.shape[0], pattern, offset, channel_multiplier)
    do.affine_select(dst, compare(values, 0), on_true_tile, on_false_value)


def range_select(
    dst: Any,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = reduce_cmd.reset_reduce,
    reduce_res: Any = None,
    reduce_op: Any = TABLE["maximum"],
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
) -> None:
    """dst = on_true_tile where an element's place lies within two bounds."""
    do.range_select(
        dst,
        on_true_tile,
        comp_op0,
        comp_op1,
        bound0,
        bound1,
        reduce_res,
        reduce_cmd,
        range_start,
        on_false_value,
    )


def select_reduce(
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = reduce_cmd.idle,
    reduce_op: Any = TABLE["maximum"],
    reverse_pred: bool = False,
    name: str | None = None,
) -> None:
    """dst = on_true where predicate is not zero, else on_false; and the largest of each row."""
    do.select_reduce(dst, predicate, on_true, on_false, reduce_res, reduce_cmd, reverse_pred)


def dropout(dst: Any, data: Any, prob: Any, name: str | None = None) -> None:
    """Zeros in place of some elements, at random."""
    do.dropout(dst, data, prob)


def rng(dst: Any, engine: Any = vector_engine, name: str | None = None) -> None:
    """Random bits in whole numbers."""
    do.rng(dst, engine)


def rand2(dst: Any, min: Any, max: Any, name: str | None = None) -> None:
    """Random numbers from min to max, on NeuronCore-v4."""
    do.rand2(dst, min, max)


def set_rng_seed(src_seeds: Any, name: str | None = None) -> None:
    """Where the Vector engine's random numbers start from."""
    do.set_rng_seed(src_seeds)


def rand_set_state(src_seeds: Any, engine: Any = gpsimd_engine, name: str | None = None) -> None:
    """The state of an engine's random numbers, of each partition."""
    do.rand_state("rand_set_state", src_seeds, engine, put=True)


def rand_get_state(dst: Any, engine: Any = gpsimd_engine, name: str | None = None) -> None:
    """That state, where no number was drawn since it was set."""
    do.rand_state("rand_get_state", dst, engine, put=False)


def nc_matmul(
    dst: Any,
    stationary: Any,
    moving: Any,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Any = (),
    tile_size: Any = (),
    perf_mode: Any = matmul_perf_mode.none,
    name: str | None = None,
) -> None:
    """dst [M, N] = stationary [K, M] transposed times moving [K, N]; dst is in PSUM.

    Args:
        accumulate: False overwrites dst, True adds to what a product left there; None, the
            default, overwrites at the first product into dst and adds at later ones.
    """
    do.nc_matmul(
        dst, stationary, moving, accumulate, is_transpose, tile_position, tile_size, perf_mode
    )


def nc_matmul_mx(
    dst: Any,
    stationary: Any,
    moving: Any,
    stationary_scale: Any,
    moving_scale: Any,
    tile_position: Any = None,
    tile_size: Any = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> None:
    """A product of four-packed float8 with scales, on NeuronCore-v4."""
    do.nc_matmul_mx(dst, stationary, moving, stationary_scale, moving_scale, accumulate)


def quantize_mx(dst: Any, src: Any, dst_scale: Any, name: str | None = None) -> None:
    """float16 or bfloat16 into four-packed float8 and its scales, on NeuronCore-v4."""
    do.quantize_mx(dst, src, dst_scale)


def nc_transpose(dst: Any, data: Any, engine: Any = unknown, name: str | None = None) -> None:
    """dst = data with partitions and elements exchanged."""
    do.nc_transpose(dst, data, engine)


def max8(dst: Any, src: Any, name: str | None = None) -> None:
    """The 8 largest numbers of each partition."""
    do.max8(dst, src)


def nc_find_index8(dst: Any, data: Any, vals: Any, name: str | None = None) -> None:
    """Where each of 8 numbers stands in its partition."""
    do.nc_find_index8(dst, data, vals)


def nc_match_replace8(
    dst: Any, data: Any, vals: Any, imm: float, dst_idx: Any = None, name: str | None = None
) -> None:
    """data with the first place of each of 8 numbers replaced."""
    do.nc_match_replace8(dst, data, vals, imm, dst_idx)


def nc_stream_shuffle(dst: Any, src: Any, shuffle_mask: Any, name: str | None = None) -> None:
    """Partitions of each 32 exchanged."""
    do.nc_stream_shuffle(dst, src, shuffle_mask)


def nc_n_gather(dst: Any, data: Any, indices: Any, name: str | None = None) -> None:
    """dst = data[indices], in each partition."""
    do.nc_n_gather(dst, data, indices)


def local_gather(
    dst: Any,
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> None:
    """Gather by the indices that 16 partitions hold together."""
    do.local_gather(dst, src_buffer, index, num_elem_per_idx, num_valid_indices)


def topk(val_dst: Any, idx_dst: Any, src: Any, n: int, name: str | None = None) -> None:
    """The largest of n numbers in each 16 partitions, and their places."""
    do.topk(val_dst, idx_dst, src, n)


def bn_stats(dst: Any, data: Any, name: str | None = None) -> None:
    """Count, mean and variance × count of even and odd elements."""
    do.bn_stats(dst, data)


def bn_aggr(dst: Any, data: Any, name: str | None = None) -> None:
    """Mean and variance from the results of bn_stats."""
    do.bn_aggr(dst, data)


def sequence_bounds(dst: Any, segment_ids: Any, name: str | None = None) -> None:
    """Where the segment of each element starts and ends."""
    do.sequence_bounds(dst, segment_ids)


def nonzero_with_count(
    dst: Any, src: Any, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> None:
    """Where each 16th partition is not zero, and how often."""
    do.nonzero_with_count(dst, src, index_offset, padding_val)


def register_alloc(x: Any = None) -> Register:
    """A register, and perhaps a number in it."""
    register = Register()
    if x is not None:
        register_move(register, x) if isinstance(x, (int, Register)) else register_load(register, x)
    return register


def register_move(dst: Any, src: Any) -> None:
    """A number, or another register's, into a register."""
    dst.value = src.number() if isinstance(src, Register) else int(src)


def register_load(dst: Any, src: Any) -> None:
    """A number of memory into a register."""
    do.register_load(dst, src)


def register_store(dst: Any, src: Any) -> None:
    """A register into memory."""
    do.register_store(dst, src)


def core_barrier(
    data: Any, cores: Any, engine: Any = gpsimd_engine, name: str | None = None
) -> None:
    """Both cores of kernel[2] have come this far."""
    machine().meet("core_barrier")


def sendrecv(
    src: Any,
    dst: Any,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int = 0,
    dma_engine: Any = dma_engine.dma,
    name: str | None = None,
) -> None:
    """This core's src becomes the other's dst, and the other way around."""
    do.tiles("sendrecv", src=src, dst=dst)
    core = machine()
    if core.limits and (src.shape != dst.shape or src.dtype != dst.dtype):
        refuse(f"sendrecv: src {src} and dst {dst} differ in shape or dtype")
    states = core.check_written("sendrecv", src)
    states = None if states is None else states.copy()
    sent = core.mail.setdefault((pipe_id, core.program, int(send_to_rank)), deque())
    sent.append((src._values().copy(), states))
    core.meet("sendrecv")
    letters = core.mail.get((pipe_id, int(recv_from_rank), core.program))
    if not letters:
        refuse(f"sendrecv: core {int(recv_from_rank)} sent nothing to core {core.program}")
    assert letters is not None
    values, states = letters.popleft()
    fresh = core.write("sendrecv", dst, values)
    if states is not None:
        core.loosen("sendrecv", dst, (src,), (states,))
    size = dst.size * dst.dtype.itemsize
    core.note("DMA", "sendrecv", dst, (src,), bytes_moved=size, run=dst._run, fresh=fresh)


def get_nc_sub_version() -> int:
    """The revision of the core: the first."""
    return 0


_KNOWN = ["NkiInstruction", "NkiValidationError", "sendrecv_compute"]


def __getattr__(name: str) -> Any:
    return absent("nki.isa", name, globals(), _KNOWN)
