"""Which element goes where: patterns and choices, searching and gathering."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions.common import (
    GPSIMD_START,
    RESET_REDUCE,
    constant,
    needs,
    on_gpsimd,
    reduce_last,
    sized,
    tiles,
    typed,
)
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import SBUF, View, is_undefined
from kernels.machines.neuron.operations import TABLE, binary

FP32_MIN = float(np.finfo(np.float32).min)
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")


def _pattern(what: str, dst, pattern, offset: int, channel_multiplier: int) -> np.ndarray:
    """offset + partition × channel_multiplier + Σ steps, [partitions, elements]."""
    tiles(what, dst=dst)
    pairs = [list(map(int, pair)) for pair in pattern]
    if not 1 <= len(pairs) <= 4 or any(len(pair) != 2 for pair in pairs):
        refuse(f"{what}: pattern is {pattern}; accepted: one to four [step, number]")
    line = np.zeros(1, np.int64)
    for step, number in pairs:
        line = (line[:, None] + step * np.arange(number)).reshape(-1)
    return offset + channel_multiplier * np.arange(dst.shape[0])[:, None] + line[None, :]


def iota(dst, pattern, offset: int = 0, channel_multiplier: int = 0, name=None) -> None:
    """dst = offset + partition × channel_multiplier + the pattern's steps."""
    count(dst, _pattern("iota", dst, pattern, offset, channel_multiplier))


def count(dst, numbers: np.ndarray) -> None:
    """dst = whole numbers that nisa.iota makes by itself."""
    tiles("iota", dst=dst)
    core = machine()
    if core.limits and dst.buffer != SBUF:
        refuse(f"iota: dst {dst}; accepted: a tile in SBUF")
    if numbers.size != dst.size:
        refuse(f"iota: {numbers.size // dst.shape[0]} numbers a partition for dst {dst}")
    values = numbers.reshape(dst.shape)
    on_gpsimd("iota", lambda: values, dst, work=dst._elements)


def affine_select(
    dst,
    pattern,
    channel_multiplier: int,
    on_true_tile,
    on_false_value,
    cmp_op=TABLE["equal"],
    offset: int = 0,
    name=None,
) -> None:
    """dst = on_true_tile where the pattern compares with 0, else a number."""
    numbers = _pattern("affine_select", dst, pattern, offset, channel_multiplier)
    choose(dst, _comparison("affine_select", cmp_op)(numbers, 0), on_true_tile, on_false_value)


def choose(dst, condition: np.ndarray, on_true, on_false) -> None:
    """dst = on_true where the condition of nisa.affine_select holds, else a number."""
    what = "affine_select"
    tiles(what, dst=dst, on_true_tile=on_true)
    core = machine()
    if core.limits and (dst.buffer != SBUF or on_true.buffer != SBUF):
        refuse(f"{what}: {on_true} into {dst}; both are in SBUF")
    if condition.size != dst.size:
        refuse(
            f"{what}: the pattern has {condition.size // dst.shape[0]} elements a partition; dst "
            f"is {dst}"
        )
    other = constant(what, "on_false_value", on_false)
    taken = condition.reshape(dst.shape)
    apply = lambda x: np.where(taken, x, other)
    on_gpsimd(what, apply, dst, on_true, work=dst._elements, chosen=(on_true,))


def _comparison(what: str, op) -> Any:
    """A comparison, as a NumPy function to booleans."""
    operation = binary(what, op)
    if operation.name not in COMPARISONS:
        refuse(f"{what}: {operation!r}; accepted: {', '.join(COMPARISONS)}")
    return getattr(np, operation.name)


def range_select(
    dst,
    on_true_tile,
    comp_op0,
    comp_op1,
    bound0,
    bound1,
    reduce_cmd=RESET_REDUCE,
    reduce_res=None,
    reduce_op=TABLE["maximum"],
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name=None,
) -> None:
    """dst = on_true_tile where an element's place lies within two bounds of its partition."""
    what = "range_select"
    needs(what, 3)
    tiles(what, dst=dst, on_true_tile=on_true_tile, bound0=bound0, bound1=bound1)
    first, second = _comparison(what, comp_op0), _comparison(what, comp_op1)
    core = machine()
    if core.limits and np.float32(on_false_value) != np.float32(FP32_MIN):
        refuse(f"{what}: on_false_value is {on_false_value}; accepted: {FP32_MIN}")
    for bound in (bound0, bound1):
        typed(what, bound, dtypes.float32)
    n = on_true_tile._elements
    places = np.float32(range_start) + np.arange(n, dtype=np.float32)[None]

    def apply(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        rows = values.shape[0]
        taken = first(places, low.reshape(rows, 1)) & second(places, high.reshape(rows, 1))
        other = np.float32(on_false_value)
        return np.where(taken, values.reshape(rows, -1), other).reshape(dst.shape)

    bounds = (bound0, bound1)
    chosen = (on_true_tile,)
    numbers = core.compute(
        "Vector", what, apply, dst, on_true_tile, columns=bounds, work=n, chosen=chosen
    )
    reduce_last("Vector", dst, numbers, TABLE["maximum"], reduce_res, reduce_cmd)


def max8(dst, src, name=None) -> None:
    """The 8 largest numbers of each partition, from the largest on."""
    tiles("max8", dst=dst, src=src)
    core, n = machine(), src._elements
    if core.limits and not 8 <= n <= 16384:
        refuse(f"max8: {src}; accepted: 8 to 16384 elements a partition")
    sized("max8", "dst", dst, src.shape[0], 8)

    def apply(values: np.ndarray) -> np.ndarray:
        return -np.sort(-values.reshape(values.shape[0], -1), axis=1)[:, :8].reshape(dst.shape)

    core.compute("Vector", "max8", apply, dst, src, work=n, shapes=False)


def _matches(
    data: np.ndarray, vals: np.ndarray, order: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """For each of 8 values the first place that no equal one has taken, −1 where there is none; and
    which places are taken."""
    rows, flat = data.shape[0], data.reshape(data.shape[0], -1)
    wanted = vals.reshape(rows, 8)
    places = np.full((rows, 8), -1, np.int64)
    used = np.zeros(flat.shape, bool)
    for i in order:
        free = (flat == wanted[:, i : i + 1]) & ~used
        hit = free.any(axis=1)
        at = free.argmax(axis=1)
        places[hit, i] = at[hit]
        used[np.flatnonzero(hit), at[hit]] = True
    return places, used


def nc_find_index8(dst, data, vals, name=None) -> None:
    """Where each of 8 numbers stands in its partition."""
    what = "nc_find_index8"
    tiles(what, dst=dst, data=data, vals=vals)
    core, n = machine(), data._elements
    if core.limits and (not 8 <= n <= 16384 or vals._elements != 8 or dst._elements != 8):
        refuse(f"{what}: {data}, {vals}, dst {dst}; accepted: 8 to 16384 elements, and 8 and 8")
    typed(what, dst, dtypes.uint16, dtypes.uint32)

    def apply(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        places, _ = _matches(values, wanted, range(8))
        return np.where(places < 0, np.iinfo(dst.dtype).max, places).reshape(dst.shape)

    core.compute("Vector", what, apply, dst, data, vals, work=n, shapes=False)


def nc_match_replace8(dst, data, vals, imm: float, dst_idx=None, name=None) -> None:
    """data with the first place of each of 8 numbers replaced."""
    what = "nc_match_replace8"
    tiles(what, dst=dst, data=data, vals=vals)
    core = machine()
    places: np.ndarray | None = None

    def apply(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        nonlocal places
        places, used = _matches(values, wanted, range(7, -1, -1))
        flat = values.reshape(values.shape[0], -1)
        return np.where(used, np.float32(imm), flat).reshape(dst.shape)

    core.compute("Vector", what, apply, dst, data, vals, work=data._elements, shapes=False)
    if dst_idx is not None:
        missing = np.iinfo(dst_idx.dtype).max
        core.write(what, dst_idx, None if places is None else np.where(places < 0, missing, places))


def nonzero_with_count(dst, src, index_offset: int = 0, padding_val: int = -1, name=None) -> None:
    """Where each 16th partition is not zero, padded, and how often at the end."""
    what = "nonzero_with_count"
    needs(what, 3)
    tiles(what, dst=dst, src=src)
    core, n = machine(), src._elements
    if core.limits and (dst._elements != n + 1 or dst.dtype != np.int32):
        refuse(f"{what}: {src} into {dst}; accepted: int32, one element more")
    states = core.check_written(what, src)
    for row in range(0, src.shape[0], 16):
        values = None
        if core.numbers:
            places = np.flatnonzero(src._values()[row].reshape(-1)) + index_offset
            values = np.full(n + 1, padding_val, np.int32)
            values[: places.size], values[-1] = places, places.size
        part = dst[row : row + 1]
        core.write(what, part, values)
        if states is not None:
            spoilt = np.full(part.shape, is_undefined(states[row]).any())
            core.mark_undefined(what, part, spoilt, (src,), (states,))
    core.note("GpSimd", what, dst, (src,), work=n, elements=n, extra=GPSIMD_START)


def sequence_bounds(dst, segment_ids, name=None) -> None:
    """For each element where its segment starts and ends; 0 is padding."""
    what = "sequence_bounds"
    tiles(what, dst=dst, segment_ids=segment_ids)
    n = segment_ids._elements

    def apply(values: np.ndarray) -> np.ndarray:
        ids = values.reshape(-1)
        first, last = np.full(n, n, np.float32), np.full(n, -1, np.float32)
        for one in np.unique(ids[ids != 0]):
            places = np.flatnonzero(ids == one)
            first[places], last[places] = places[0], places[-1] + 1
        return np.stack([first, last]).reshape(dst.shape)

    on_gpsimd(what, apply, dst, segment_ids, work=n, shapes=False)


def nc_stream_shuffle(dst, src, shuffle_mask: Sequence[int], name=None) -> None:
    """Partitions of each 32 exchanged as the mask says; 255 leaves one as it is."""
    what = "nc_stream_shuffle"
    tiles(what, dst=dst, src=src)
    lanes = [int(m) for m in shuffle_mask]
    if len(lanes) != 32 or any(not (0 <= m < 32 or m == 255) for m in lanes):
        refuse(f"{what}: shuffle_mask is {lanes}; accepted: 32 numbers of 0 to 31, or 255")
    core = machine()
    if core.limits:
        if dst.dtype != src.dtype or dst._elements != src._elements:
            refuse(f"{what}: {src} and dst {dst} differ in dtype or in elements")
        active = -(-max(dst.shape[0], src.shape[0]) // 32) * 32
        for operand in (dst, src):
            core.check_operand(what, "Vector", operand)
            if active > 64 and operand._start:
                refuse(
                    f"{what}: {operand} starts at partition {operand._start}; {active} start at 0"
                )
    states = core.check_written(what, src)
    rows = dst.shape[0]
    # partition of dst → that of src
    moves = {r: r - r % 32 + lanes[r % 32] for r in range(rows) if lanes[r % 32] != 255}
    for row, at in moves.items():
        if at >= src.shape[0]:
            refuse(
                f"{what}: partition {row} takes partition {at} of {src}, which has {src.shape[0]}"
            )
    to, source = list(moves), list(moves.values())
    values = None
    if core.numbers:
        values = np.array(dst._values()).reshape(rows, -1)
        values[to] = src._values().reshape(src.shape[0], -1)[source]
        values = values.reshape(dst.shape)
    loose = np.zeros((rows, dst._elements), bool)
    if len(moves) < rows and (before := core.check_written(what, dst)) is not None:
        loose[:] = is_undefined(before).reshape(loose.shape)
        loose[to] = False
    if states is not None:
        loose[to] = is_undefined(states).reshape(src.shape[0], -1)[source]
    fresh = core.write(what, dst, values)
    core.mark_undefined(what, dst, loose.reshape(dst.shape), (src,), (states,))
    n = src._elements
    core.note("Vector", what, dst, (src,), work=n, elements=n, fresh=fresh)


def nc_n_gather(dst, data, indices, name=None) -> None:
    """dst = data[indices], in each partition for itself."""
    what = "nc_n_gather"
    tiles(what, dst=dst, data=data, indices=indices)
    core = machine()
    if core.limits:
        for operand in (dst, data, indices):
            if operand.buffer != SBUF:
                refuse(f"{what}: {operand}; the GpSimd engine reaches SBUF only")
    typed(what, indices, dtypes.uint32)
    typed(what, dst, data.dtype)
    sized(what, "indices", indices, dst.shape[0], dst._elements)

    def apply(values: np.ndarray, places: np.ndarray) -> np.ndarray:
        rows = values.shape[0]
        places = places.reshape(rows, -1).astype(np.int64)
        _inside(what, data, places)
        return np.take_along_axis(values.reshape(rows, -1), places, 1).reshape(dst.shape)

    options = {"raw": True, "shapes": False, "chosen": (data,)}
    on_gpsimd(what, apply, dst, data, indices, work=dst._elements, **options)


def local_gather(
    dst, src_buffer, index, num_elem_per_idx: int = 1, num_valid_indices=None, name=None
) -> None:
    """Each GpSimd core gathers from its 16 partitions by the indices that they hold."""
    what = "local_gather"
    tiles(what, dst=dst, src_buffer=src_buffer, index=index)
    rows = src_buffer.shape[0]
    if machine().limits:
        if rows % 16 or index.shape[0] != rows:
            refuse(f"{what}: {src_buffer} and {index}; as many partitions, a multiple of 16")
        if num_elem_per_idx not in (1, 2, 4, 8, 16, 32):
            refuse(f"{what}: num_elem_per_idx is {num_elem_per_idx}; accepted: 1, 2, 4, 8, 16, 32")
    typed(what, index, dtypes.uint16)
    valid = index.size // (rows // 16) if num_valid_indices is None else int(num_valid_indices)

    def apply(values: np.ndarray, places: np.ndarray) -> np.ndarray:
        flat, places = values.reshape(rows, -1), places.reshape(rows, -1)
        result = np.array(dst._values()).reshape(rows, -1)
        for first in range(0, rows, 16):
            order = places[first : first + 16].T.reshape(-1)[:valid].astype(np.int64)
            wanted = (order[:, None] + np.arange(num_elem_per_idx)).reshape(-1)
            _inside(what, src_buffer, wanted)
            result[first : first + 16, : wanted.size] = flat[first : first + 16, wanted]
        return result.reshape(dst.shape)

    options = {"raw": True, "shapes": False, "chosen": (src_buffer,)}
    on_gpsimd(what, apply, dst, src_buffer, index, work=valid * num_elem_per_idx, **options)


def _inside(what: str, data: View, places: np.ndarray) -> None:
    if (places >= data._elements).any():
        refuse(
            f"{what}: index {int(places.max())} of {data} is out of bounds: a partition has "
            f"{data._elements}"
        )
