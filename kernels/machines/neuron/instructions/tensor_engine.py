"""The Tensor engine: products, transposes, and products of numbers with a scale for each 32."""

from collections.abc import Sequence

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions.common import (
    UNKNOWN,
    matmul_perf_mode,
    needs,
    on,
    sized,
    tiles,
    typed,
)
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import (
    PSUM,
    SBUF,
    SUMMED,
    UNDEFINED,
    WRITTEN,
    View,
    is_undefined,
    spoiled,
)

SCALES = (0, 4, 8, 12)  # where in 32 partitions those of a tile may start, so that four fit


def nc_matmul(
    dst,
    stationary,
    moving,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Sequence[int] = (),
    tile_size: Sequence[int] = (),
    perf_mode=matmul_perf_mode.none,
    name=None,
    *,
    what: str = "nc_matmul",
) -> None:
    """dst [M, N] = stationary [K, M] transposed times moving [K, N]; dst is in PSUM.

    Args:
        accumulate: False overwrites dst, True adds to what a product left there; None, the
            default, overwrites at the first product into dst and adds at later ones.
    """
    tiles(what, dst=dst, stationary=stationary, moving=moving)
    core = machine()
    double = perf_mode not in (None, matmul_perf_mode.none, "none")
    if core.limits:
        _check_matmul(what, dst, stationary, moving, double, is_transpose)
        _check_pe_tile(what, stationary, tile_position, tile_size)
    states = [core.check_written(what, tile) for tile in (stationary, moving)]
    adds = _adds(what, dst, accumulate)
    values = None
    moves = is_transpose and core.chip.generation > 2  # no arithmetic: zeros leave nothing
    if core.numbers:
        left = dtypes.wide(stationary._values()).reshape(-1, stationary.shape[-1])
        right = spoiled(dtypes.wide(moving._values()), states[1]).reshape(left.shape[0], -1)
        if states[0] is not None:
            bad = is_undefined(states[0]).reshape(left.shape)
            left = np.where(bad, np.float32(0 if moves else np.nan), left)
        values = _product(left.T, right)
    m, n = stationary.shape[-1], moving._elements // (2 if double else 1)
    # float32 takes four times as long as what has 16 bits (architecture guide).
    four = np.float32 in (stationary.dtype, moving.dtype)
    if four and is_transpose and core.chip.generation > 2:
        four = False  # twice as fast as without the mode; still two passes
        n *= 2
    work = max(min(64, m), n) * (4 if four else 1)
    passed = moves and states[0] is not None and core.numbers
    spoiling = [None, states[1]] if passed else states
    _put_product(what, dst, (stationary, moving), values, spoiling, adds, work, n)
    if passed:
        loose = ((bad.T @ (right != 0)) > 0).reshape(dst.shape)
        core.mark_undefined(what, dst, loose, (stationary,), states[:1])


def spread(dst: View, src: View, passes: int = 1) -> None:
    """dst = src [1, N] in each partition: a product with a row of ones, and a copy out of PSUM."""
    what, core = "broadcast_to", machine()
    row = core.read(what, src)
    values = np.broadcast_to(row, dst.shape) if core.numbers else None
    fresh = core.write(what, dst, values)
    work = max(64, dst._elements) * passes
    core.note("Tensor", what, dst, (src,), work=work, fresh=fresh, detail=dst.shape)


def _put_product(
    what: str,
    dst: View,
    sources: Sequence[View],
    values: np.ndarray | None,
    states: Sequence[np.ndarray | None],
    adds: bool,
    work: float,
    n: int,
) -> None:
    """Write a product, or add it to dst. A row of stationary, [K, M], that is undefined spoils one
    of dst, and of moving a column."""
    core = machine()
    before = core.check_written(what, dst) if adds else None
    if values is not None:
        values = values.reshape(dst.shape)
        values = values + dtypes.wide(dst._values()) if adds else values
    fresh = core.write(what, dst, values, state=SUMMED)
    op = "sum" if adds else ""
    core.note("Tensor", what, dst, sources, work=work, elements=n, fresh=fresh, op=op)
    loose = np.zeros((dst.shape[0], dst._elements), bool)
    for state, axis in zip(states, (0, 1)):
        if state is not None:
            columns = np.any(is_undefined(state).reshape(-1, loose.shape[axis]), axis=0)
            loose |= np.expand_dims(columns, 1 - axis)
    if before is not None:
        loose |= is_undefined(before).reshape(loose.shape)
    spoilers = (*sources[:2], dst)
    core.mark_undefined(what, dst, loose.reshape(dst.shape), spoilers, (*states, before))


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x y, in pieces that BLAS does not spread over threads: on a busy machine they wait for each
    other a hundred times longer than they compute. The order in which the array adds up is not
    published; here it is four sums, then their sum."""
    (m, k), n = x.shape, y.shape[1]
    quarter = -(-k // 4)
    width = max(1, 2**18 // (m * quarter))
    whole = n - n % width
    total = np.zeros((m, n), np.float32)
    for first in range(0, k, quarter):
        a, b = x[:, first : first + quarter], y[first : first + quarter]
        if whole:
            pieces = b[:, :whole].reshape(len(b), whole // width, width).transpose(1, 0, 2)
            total[:, :whole] += np.matmul(a, pieces).transpose(1, 0, 2).reshape(m, whole)
        if whole < n:
            total[:, whole:] += a @ b[:, whole:]
    return total


def _adds(what: str, dst: View, accumulate) -> bool:
    """Whether a product is added to dst. What no product wrote cannot be added to, not even zeros:
    NeuronCore-v2 and -v3 do not define it (nki.isa.nc_matmul)."""
    if accumulate is not None and not isinstance(accumulate, (bool, np.bool_)):
        refuse(f"{what}: accumulate is {accumulate!r}; accepted: None, True and False")
    if accumulate is not None and not accumulate:
        return False
    states = dst._states()
    if isinstance(states, int):
        summed = dst.size * (states == SUMMED)
    else:
        summed = int(np.count_nonzero((states == SUMMED) | (states == UNDEFINED)))
    if summed in (0, dst.size) if accumulate is None else summed == dst.size:
        return summed > 0
    core = machine()
    written = bool(np.isin(states, (WRITTEN, SUMMED)).all())
    if core.limits and not (core.chip.generation >= 4 and written):
        refuse(
            f"{what}: no product has written {dst.size - summed} of the {dst.size} elements of "
            f"dst {dst}, so there is nothing to add to; start with accumulate=False"
        )
    return True


def _check_places(what: str, dst: View, stationary: View, moving: View) -> None:
    for tile in (stationary, moving):
        machine().check_operand(what, "Tensor", tile)
        if tile.buffer == PSUM:  # nki.isa.nc_matmul: inputs from SBUF
            refuse(f"{what}: {tile}; the Tensor engine reads SBUF only: tensor_copy it there first")
    if dst.buffer != PSUM:
        refuse(f"{what}: dst {dst}; the Tensor engine writes PSUM only")


def _check_matmul(
    what: str, dst: View, stationary: View, moving: View, double: bool, is_transpose: bool
) -> None:
    core = machine()
    _check_places(what, dst, stationary, moving)
    core.check_operand(what, "Tensor", dst)
    generation = core.chip.generation
    if not is_transpose:
        accepted = [dtypes.float32, dtypes.tfloat32, *dtypes.HALVES, *dtypes.EIGHTS]
        if generation < 4:
            accepted.remove(dtypes.float8_e4m3fn)
        here = f"{what} on {core.chip.name}"
        typed(here, stationary, *accepted)
        typed(here, moving, *accepted)
        typed(here, dst, dtypes.float32, *([dtypes.bfloat16] if generation >= 4 else []))
    wide = [tile.dtype in (dtypes.float32, dtypes.tfloat32) for tile in (stationary, moving)]
    if wide[0] != wide[1] and not is_transpose:
        refuse(
            f"{what}: {stationary} is {dtypes.name(stationary.dtype)} and {moving} "
            f"{dtypes.name(moving.dtype)}; float32 and tfloat32 go with each other only"
        )
    if double:
        needs(f"{what} with perf_mode", 3)
        pairs = [t.dtype in dtypes.EIGHTS and t.shape[1:-1] == (2,) for t in (stationary, moving)]
        if not all(pairs):
            refuse(
                f"{what}: {stationary} and {moving} with perf_mode; accepted: float8 [K, 2, M] and "
                "[K, 2, N]"
            )
    k, m = stationary.shape[0], stationary._elements // (2 if double else 1)
    n = moving._elements // (2 if double else 1)
    if moving.shape[0] != k or (dst.shape[0], dst._elements) != (m, n):
        refuse(f"{what}: {stationary} and {moving} do not make dst {dst}")
    most = core.chip.moving_fmax * (2 if dst.dtype.itemsize == 2 else 1)
    if m > 128 or n > most:  # 512 float32 fill a PSUM bank
        refuse(f"{what}: {stationary} and {moving}; at most 128 stationary and {most} moving")


def _check_pe_tile(
    what: str, stationary: View, position: Sequence[int], size: Sequence[int]
) -> None:
    if not position and not size:
        return
    if not position or not size:
        refuse(f"{what}: tile_position is {position} and tile_size {size}; set both, or none")
    generation = machine().chip.generation
    accepted = (64, 128) if generation == 2 else (32, 64, 128)
    for label, start, length, need in zip(
        ("rows", "columns"), position, size, (stationary.shape[0], stationary.shape[-1])
    ):
        if length not in accepted or start % length or start + length > 128:
            refuse(
                f"{what}: {label} {start} + {length} of tile_position and tile_size; accepted: "
                f"sizes {', '.join(map(str, accepted))} at multiples of themselves, within 128"
            )
        if need > length:
            refuse(f"{what}: {stationary} is larger than tile_size {tuple(size)}")


def nc_transpose(dst, data, engine=UNKNOWN, name=None, *, what: str = "nc_transpose") -> None:
    """dst = data with partitions and elements exchanged, on the Tensor or the Vector engine."""
    tiles(what, dst=dst, data=data)
    p, f = data.shape[0], data._elements
    core = machine()
    small = p <= 32 and f <= 32
    default = "Tensor" if dst.buffer == PSUM or not small else "Vector"
    where = on(what, engine, default, "Tensor", "Vector")
    if core.limits:
        for operand in (dst, data):
            core.check_operand(what, where, operand)
        sized(what, "dst", dst, f, p)
        most = 32 if where == "Vector" else 128
        if max(p, f) > most:
            refuse(f"{what}: {data}; the {where} engine transposes at most [{most}, {most}]")
        if where == "Tensor" and (data.buffer != SBUF or dst.buffer != PSUM):
            refuse(f"{what}: {data} into {dst}; the Tensor engine reads SBUF and writes PSUM")
        plain = core.chip.generation == 2 and where == "Tensor"  # an ordinary product: float32
        if dst.dtype != data.dtype and not (plain and dst.dtype == np.float32):
            refuse(f"{what}: dst {dst} is {dtypes.name(dst.dtype)}, data {dtypes.name(data.dtype)}")
    states = core.check_written(what, data)
    values = data._values().reshape(p, f).T if core.numbers else None
    by_product = where == "Tensor" and core.chip.generation == 2 and core.limits
    floats = values is not None and values.dtype.kind not in "iub"
    known = True if states is None else ~is_undefined(states).reshape(p, f).T
    if by_product and floats and not np.isfinite(dtypes.wide(values))[known].all():  # type: ignore[arg-type]
        refuse(
            f"{what}: {data} holds NaN or infinity, which a product by the identity spreads "
            "over the tile on NeuronCore-v2"
        )
    if values is not None and dst.dtype != data.dtype:
        values = dtypes.wide(values)
    fresh = core.write(what, dst, values)
    if states is not None:
        loose = is_undefined(states).reshape(p, f).T
        if by_product:  # by the identity, whose zeros do not help against infinity
            loose = loose | loose.any(axis=1, keepdims=True)
        core.mark_undefined(what, dst, loose.reshape(dst.shape), (data,), (states,))
    work = max(64, f) if where == "Vector" else max(p, min(64, f))
    if where == "Tensor" and data.dtype == np.float32:
        work *= 4 if core.chip.generation == 2 else 2
    core.note(where, what, dst, (data,), work=work, elements=f, fresh=fresh)


def _quads(what: str, view: View) -> np.ndarray:
    """[P, F] of packed elements → [P, F, 4] numbers."""
    element = dtypes.QUADS.get(view.dtype)
    if element is None:
        refuse(
            f"{what}: {view} is {dtypes.name(view.dtype)}; accepted: "
            + ", ".join(map(dtypes.name, dtypes.QUADS))
        )
    return dtypes.unpacked(np.ascontiguousarray(view._values())).reshape(view.shape[0], -1, 4)


def _scale_rows(scale: View, partitions: int) -> list[int]:
    """Where the scales of each group of 8 partitions are: in the first four of each 32."""
    rows = [32 * (group // 4) + group % 4 for group in range(partitions // 8)]
    return rows if rows[-1] < scale.shape[0] else list(range(partitions // 8))


def _scales(scale: View, partitions: int) -> np.ndarray:
    """The scales of each group of 8 partitions, [partitions / 8, F]."""
    codes = scale._values().view(np.uint8).reshape(scale.shape[0], -1)
    exponents = codes[_scale_rows(scale, partitions)].astype(np.int32) - 127
    return np.ldexp(np.float32(1), exponents)


def _scaled_states(what: str, tile: View, scale: View) -> np.ndarray | None:
    """The states of scaled numbers, [partitions, F]; None where all are defined."""
    core = machine()
    partitions = tile.shape[0]
    states = core.check_written(what, tile)
    scales = core.check_written(what, scale)
    part = [None if scales is None else scales[row] for row in _scale_rows(scale, partitions)]
    if states is None and all(state is None for state in part):
        return None
    marks = np.full((partitions, tile._elements), WRITTEN, np.uint8)
    if states is not None:
        marks[is_undefined(states).reshape(marks.shape)] = UNDEFINED
    for group, state in enumerate(part):
        if state is not None:
            wrong = is_undefined(state).reshape(-1)[: tile._elements]
            marks[8 * group : 8 * group + 8, wrong] = UNDEFINED
    return marks


def nc_matmul_mx(
    dst,
    stationary,
    moving,
    stationary_scale,
    moving_scale,
    tile_position=None,
    tile_size=None,
    accumulate: bool | None = None,
    name=None,
) -> None:
    """A product of numbers with a scale for each 32 (8 partitions of 4), on NeuronCore-v4."""
    what = "nc_matmul_mx"
    needs(what, 4)
    core = machine()
    k = stationary.shape[0]
    if core.limits:
        if k % 32 or moving.shape[0] != k:
            refuse(
                f"{what}: {stationary} and {moving}; accepted: as many partitions, a multiple of 32"
            )
        _check_places(what, dst, stationary, moving)
        for scale in (stationary_scale, moving_scale):
            if scale.buffer != SBUF or scale._start % 32 not in SCALES or not scale._neighbours():
                refuse(
                    f"{what}: {scale}; scales are in SBUF, from 0, 4, 8 or 12 of 32 partitions on"
                )
        sized(what, "dst", dst, stationary._elements, moving._elements)
    adds = _adds(what, dst, accumulate)
    pairs = ((stationary, stationary_scale), (moving, moving_scale))
    states = [_scaled_states(what, tile, scale) for tile, scale in pairs]
    values = None
    if core.numbers:
        sides = []
        for (tile, scale), state in zip(pairs, states):
            quads = _quads(what, tile)
            factors = np.repeat(_scales(scale, k), 8, axis=0)[:, : quads.shape[1]]
            sides.append(quads * spoiled(factors, state)[:, :, None])
        values = np.einsum("kmq,knq->mn", *sides, optimize=True)
    n = moving._elements
    operands = (stationary, moving, stationary_scale, moving_scale)
    _put_product(what, dst, operands, values, states, adds, max(64, n), n)


def quantize_mx(dst, src, dst_scale, name=None) -> None:
    """float16 or bfloat16 → float8 with a scale for each 32 numbers, on NeuronCore-v4."""
    what = "quantize_mx"
    needs(what, 4)
    core = machine()
    element = dtypes.QUADS.get(dst.dtype)
    if core.limits and (element not in dtypes.EIGHTS or src.dtype not in dtypes.HALVES):
        refuse(
            f"{what}: {src} into {dst}; accepted: float16 or bfloat16 into float8_e4m3fn_x4 or "
            "float8_e5m2_x4"
        )
    p, f = src.shape[0], src._elements
    if core.limits and (p % 32 or f % 4 or dst._elements * 4 != f or dst.shape[0] != p):
        refuse(f"{what}: {src} into {dst}; accepted: partitions by 32, and 4 elements into each")
    states = core.check_written(what, src)
    values = codes = None
    if core.numbers:
        assert element is not None
        groups = dtypes.wide(src._values()).reshape(p // 8, 8, f // 4, 4)
        largest = np.abs(groups).max(axis=(1, 3))
        top = 8 if element == dtypes.float8_e4m3fn else 15
        with np.errstate(divide="ignore", invalid="ignore"):
            power = np.where(largest > 0, np.floor(np.log2(largest)) - (top - 1), -127)
        power = np.clip(np.nan_to_num(power), -127, 127).astype(np.int32)
        scaled = groups / np.ldexp(np.float32(1), power)[:, None, :, None]
        packed = np.ascontiguousarray(scaled.reshape(p, f).astype(element))
        values = packed.view(np.uint32).view(dst.dtype).reshape(dst.shape)
        codes = (power + 127).astype(np.uint8)
    fresh = core.write(what, dst, values)
    loose = np.zeros((p // 8, f // 4), bool)
    if states is not None:
        loose |= np.any(is_undefined(states).reshape(p // 8, 8, f // 4, 4), axis=(1, 3))
        spread = np.repeat(loose, 8, axis=0).reshape(dst.shape)
        core.mark_undefined(what, dst, spread, (src,), (states,))
    for at, row in enumerate(_scale_rows(dst_scale, p)):
        part = dst_scale[row : row + 1]
        bits = None if codes is None else codes[at].view(dst_scale.dtype).reshape(part.shape)
        core.write(what, part, bits)
        core.mark_undefined(what, part, loose[at].reshape(part.shape), (src,), (states,))
    core.note("Vector", what, dst, (src,), work=f / 4, elements=f, fresh=fresh, also=(dst_scale,))
