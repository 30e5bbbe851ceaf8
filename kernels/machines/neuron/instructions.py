"""What the instructions do, for both generations of the API: dst comes first, always.

Engines compute in float32 and cast to dst's dtype. Costs are those that the vendor's documents of
nki.isa give for each instruction, in cycles of its engine for N elements a partition; where they
give none, N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.machine import (
    HBM,
    ON_CHIP,
    PSUM,
    READ,
    SBUF,
    SUMMED,
    UNDEFINED,
    WRITTEN,
    Machine,
    NeedsNumbers,
    Picked,
    View,
    is_undefined,
    machine,
    spoiled,
)
from kernels.machines.neuron.operations import (
    BITS,
    Operation,
    binary,
    prelu,
    reduced,
    reduction,
    resolve,
)
from kernels.machines.neuron.operations import activation as activation_of
from kernels.machines.neuron.tensors import Beyond, Register, offsets

GPSIMD_START = 150  # cycles of a GpSimd program's start (nki.isa.iota, affine_select)
READ_OUT = 64  # cycles more to write an accumulator out (nki.isa.activation_reduce)
FP32_MIN = float(np.finfo(np.float32).min)


class engine(Enum):
    """An engine of the NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Enum):
    """What an instruction does with its engine's accumulators."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who makes a DMA's descriptors."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What an index out of bounds does."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """The Tensor engine's performance modes."""

    none = "none"
    double_row = "double_row"


class nc_version(IntEnum):
    """A generation of NeuronCores."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(Enum):
    """Who moves between two cores."""

    dma = 1
    gpsimd_dma = 2


_NAMES = {
    engine.vector: "Vector",
    engine.scalar: "Scalar",
    engine.gpsimd: "GpSimd",
    engine.tensor: "Tensor",
}


def on(instruction: str, chosen: Any, *accepted: str) -> str:
    """The engine's name; the first accepted one where the kernel does not choose."""
    if chosen in (None, engine.unknown):
        return accepted[0]
    name = _NAMES.get(chosen)
    if name not in accepted:
        refuse(f"{instruction} cannot run on {chosen}; accepted: {', '.join(accepted)}")
    assert name is not None
    return name


def tiles(instruction: str, **operands: Any) -> None:
    """Refuse operands that are none."""
    for name, operand in operands.items():
        if isinstance(operand, Beyond):
            raise operand._error
        if isinstance(operand, View) and not operand.size:
            refuse(f"{instruction}: {name} is {operand}, which has no elements")
        if not isinstance(operand, View):
            refuse(f"{instruction}: {name} is a {type(operand).__name__}; accepted: a tile")


def constant(instruction: str, name: str, value: Any) -> np.float32:
    """A number of the instruction's own."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number)):
        refuse(f"{instruction}: {name} is {value!r}; accepted: a number or a tile [partitions, 1]")
    return np.float32(value)


def _not_both_in_psum(instruction: str, one: View, other: View) -> None:
    if machine().limits and one.buffer == other.buffer == PSUM:
        refuse(f"{instruction}: {one} and {other}; only one of the inputs may be in PSUM")


def _needs(instruction: str, generation: int) -> None:
    core = machine()
    if core.limits and core.chip.generation < generation:
        chips = {3: "trn2", 4: "trn3"}[generation]
        refuse(
            f"{instruction} needs NeuronCore-v{generation} ({chips}); {core.chip.name} has "
            f"NeuronCore-v{core.chip.generation}"
        )


def _whole_dtypes(instruction: str, operation: Operation, *operands: View) -> None:
    """Operations on bits take whole numbers only."""
    for operand in operands:
        if machine().limits and not dtypes.is_integer(operand.dtype):
            refuse(
                f"{instruction}: {operation!r} works on bits, and {operand} is "
                f"{dtypes.name(operand.dtype)}; accepted: whole numbers"
            )


def _halves(*operands: View) -> bool:
    return all(o.dtype in dtypes.HALVES for o in operands)


def _packed_in_row(*operands: View) -> bool:
    return all(o._stride == o.dtype.itemsize for o in operands)


# --- copies --------------------------------------------------------------------------------------


def dma_copy(dst: View, src: View, oob: oob_mode = oob_mode.error, name: str = "dma_copy") -> None:
    """Copy between HBM and SBUF; as many elements, dtypes may differ."""
    tiles(name, dst=dst, src=src)
    core = machine()
    _check_indirect(name, oob, dst, src)
    bad = getattr(src, "_bad", None)
    if bad is not None and bad.any():  # skipped rows stay as they are
        rows = np.broadcast_to(bad.reshape(-1, *[1] * (src.ndim - 1)), src.shape).reshape(dst.shape)
        before = core.numbers and dst._values()[rows].copy()
        state = dst._states()
        seen = None if isinstance(state, int) else np.array(state)[rows]
        was = state if isinstance(state, int) else None
        core.copy(name, dst, src)
        if core.numbers:
            values = np.array(dst._values())
            values[rows] = before
            dst._put(values)
        after = dst._storage.states()
        view = dst._states()
        assert isinstance(view, np.ndarray) and after is not None
        view[rows] = was if seen is None else seen
        return
    core.copy(name, dst, src)


def _check_indirect(name: str, oob: Any, *operands: View) -> None:
    core = machine()
    for operand in operands:
        bad = getattr(operand, "_bad", None)
        if bad is None or not bad.any() or not isinstance(operand, Picked):
            continue
        if oob == oob_mode.error and core.limits:
            refuse(
                f"{name}: {int(bad.sum())} of {bad.size} offsets into {operand} are out of bounds; "
                "oob_mode.skip leaves them out"
            )
        operand._taken = ~bad.reshape(-1, *[1] * (operand.ndim - 1))


def dma_transpose(dst: View, src: View, axes: Sequence[int] | None = None) -> None:
    """dst = src with its dimensions in the order that the documents give."""
    tiles("dma_transpose", dst=dst, src=src)
    orders = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    order = orders.get(src.ndim)
    if order is None or (axes is not None and tuple(axes) != order):
        refuse(
            f"dma_transpose: {src} by axes {axes}; accepted: {', '.join(map(str, orders.values()))}"
        )
    assert order is not None
    core = machine()
    if core.limits:
        if dst.buffer != SBUF or src.buffer == PSUM:
            refuse(f"dma_transpose: {src} into {dst}; from HBM or SBUF into SBUF")
        if src.dtype != dst.dtype:
            refuse(f"dma_transpose: {src} and {dst} differ in dtype")
    _check_indirect("dma_transpose", oob_mode.error, src)
    states = core.check_written("dma_transpose", src)
    values = src._values().transpose(order) if core.numbers else None
    if tuple(src.shape[a] for a in order) != tuple(dst.shape):
        refuse(f"dma_transpose: {src} does not become dst {dst}")
    fresh = core.write("dma_transpose", dst, values, once=True)
    if states is not None:
        loose = is_undefined(states).transpose(order)
        core.mark_undefined("dma_transpose", dst, loose, (src,), (states,))
    core.read_from(src)
    moved = dst.size * dst.dtype.itemsize
    # Its elements go one by one on the side where they are not together.
    core.note(
        "DMA", "dma_transpose", dst, (src,), bytes_moved=moved, run=dst.dtype.itemsize, fresh=fresh
    )


def dma_compute(dst: View, srcs: Sequence[View], reduce_op: Any, scales: Any = None) -> None:
    """dst = the sum of the sources, by the DMA engines."""
    operation = resolve("dma_compute", reduce_op)
    if operation.name != "add":
        refuse(f"dma_compute: {operation!r}; accepted: nl.add")
    if scales is not None and any(scale != 1.0 for scale in scales):
        refuse(f"dma_compute: scales are {list(scales)}; accepted: 1.0 for each")
    if not 1 <= len(srcs) <= 16:
        refuse(f"dma_compute: {len(srcs)} sources; accepted: 1 to 16")
    core = machine()
    total = None
    for src in srcs:
        tiles("dma_compute", src=src)
        if src.size != dst.size:
            refuse(f"dma_compute: {src} and dst {dst} differ in their number of elements")
        values = core.read("dma_compute", src)
        core.read_from(src)
        if core.numbers:
            total = values.reshape(dst.shape) + (0 if total is None else total)
    fresh = core.write("dma_compute", dst, total)
    moved = dst.size * dst.dtype.itemsize * len(srcs)
    core.note("DMA", "dma_compute", dst, tuple(srcs), bytes_moved=moved, run=dst._run, fresh=fresh)


def memset(dst: View, value: Any, chosen: Any = None, name: str = "memset") -> None:
    """Fill a tile with a number."""
    tiles(name, dst=dst)
    number = constant(name, "value", value)
    where = on(name, chosen, "Vector", "GpSimd")
    core = machine()
    if core.limits and dst._storage.buffer in ON_CHIP:
        core.check_operand(name, where, dst)
    if dtypes.is_packed(dst.dtype) and value != 0:
        refuse(f"{name}: {dst} holds four numbers in an element; accepted: 0")
    n = dst._elements
    if not core.numbers:
        values = None
    elif dtypes.is_packed(dst.dtype):
        values = np.zeros(dst.shape, dst.dtype)
    elif isinstance(value, (int, np.integer)) and dtypes.is_integer(dst.dtype):
        values = np.full(dst.shape, value, np.int64)
    else:
        values = np.full(dst.shape, number)
    fresh = core.write(name, dst, values)
    cheap = number == 0 and dst.dtype in dtypes.HALVES
    core.note(where, name, dst, (), work=n / 2 if cheap else n, elements=n, fresh=fresh)


def tensor_copy(dst: View, src: View, chosen: Any = None, name: str = "tensor_copy") -> None:
    """Copy on the chip: the bits where the dtypes are the same, else by way of float32."""
    tiles(name, dst=dst, src=src)
    core = machine()
    if core.limits and chosen == engine.scalar and core.chip.generation == 2:
        refuse(
            f"{name} is not supported on the Scalar engine of NeuronCore-v2; write "
            "nisa.activation(dst, op=nl.copy, data=src)"
        )
    where = on(name, chosen, "Vector", "Scalar", "GpSimd")
    same = src.dtype == dst.dtype
    n = src._elements
    fast = 1
    if _halves(dst, src):
        psum = PSUM in (dst.buffer, src.buffer)
        together = _packed_in_row(dst, src)
        fast = 4 if together and not psum else 2 if together != psum or together else 1
    core.compute(where, name, lambda x: x, dst, src, raw=same, work=n, fast=fast)


DYNAMIC_START = 600  # least cycles, where a number says from or to where


def tensor_copy_dynamic(dst: View, src: View, chosen: Any, name: str) -> None:
    """A copy on the chip, of which one side lies where a number says."""
    tiles(name, dst=dst, src=src)
    core = machine()
    if core.limits and not any(isinstance(side, Picked) for side in (dst, src)):
        refuse(f"{name}: neither {dst} nor {src} lies where a number in SBUF says")
    where = on(name, chosen, "Vector", "Scalar", "GpSimd")
    if core.limits and dst.shape[0] != src.shape[0]:
        refuse(f"{name}: {src} and dst {dst} differ in partitions")
    n = src._elements
    same = src.dtype == dst.dtype
    core.compute(where, name, lambda x: x, dst, src, raw=same, work=max(DYNAMIC_START, n))


def atomic_rmw(dst: View, value: Any, op: Any) -> None:
    """HBM at places that numbers choose, plus value: an element after the other, so that those that
    are chosen twice get both."""
    name = "atomic_rmw"
    core = machine()
    if resolve(name, op, numpy=True).name != "add":
        refuse(f"{name}: op is {op!r}; accepted: np.add")
    if core.limits and (not isinstance(dst, Picked) or dst.buffer in ON_CHIP):
        refuse(
            f"{name}: dst {dst}; accepted: a tensor in HBM at places that a tile of numbers says"
        )
    assert isinstance(dst, Picked)
    sources = (value,) if isinstance(value, View) else ()
    if sources and value.shape != dst.shape:
        refuse(f"{name}: {value} and dst {dst} differ in shape")
    if not sources:
        constant(name, "value", value)
    core.check_written(name, dst, whole=True)
    added = core.read(name, value) if sources else np.full(dst.shape, value, np.float32)
    if core.numbers:
        flat, taken = dst._storage.data.reshape(-1), np.ones(dst.shape, bool)
        if dst._taken is not None:
            taken = np.broadcast_to(dst._taken, dst.shape)
        total = dtypes.wide(flat).astype(np.float64)
        np.add.at(total, dst._flat[taken], added[taken])
        flat[...] = dtypes.narrow(total.astype(np.float32), flat.dtype)
    dst._storage.stored = True
    dst._mark(READ)
    moved = 2 * dst.size * dst.itemsize  # there and back
    core.note("DMA", name, dst, (*sources, dst), bytes_moved=moved, run=dst._run)


def tensor_copy_predicated(
    dst: View,
    src: Any,
    predicate: View,
    reverse: bool = False,
    name: str = "tensor_copy_predicated",
) -> None:
    """dst = src where predicate is not zero; elsewhere it stays."""
    tiles(name, dst=dst, predicate=predicate)
    core = machine()
    if core.limits:
        if predicate.dtype not in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.bool_):
            refuse(f"{name}: predicate {predicate} is {predicate.dtype}; accepted: uint8, 16 or 32")
        if isinstance(src, View) and src.dtype != dst.dtype:
            refuse(f"{name}: src {src} and dst {dst} differ in dtype")
    if isinstance(src, View):
        _not_both_in_psum(name, src, predicate)
    sources = (predicate, src) if isinstance(src, View) else (predicate,)
    n = dst._elements
    if not core.numbers:
        core.compute("Vector", name, lambda *_: dst._data, dst, *sources, work=2 * n)
        return
    old = np.array(dst._values())
    before = np.array(np.broadcast_to(dst._states(), dst.shape))
    kept = np.zeros(dst.shape, bool)

    def chosen(condition: np.ndarray, *values: np.ndarray) -> np.ndarray:
        kept[...] = (condition != 0) == reverse
        new = values[0] if values else dtypes.narrow(np.asarray(src, np.float32), dst.dtype)
        return np.where(kept, old, new)

    psum = PSUM in (predicate.buffer, getattr(src, "buffer", SBUF))
    work = n if psum else 2 * n
    core.compute("Vector", name, chosen, dst, *sources, raw=True, work=work, chosen=sources[1:])
    if kept.any() and (before != WRITTEN).any():
        dst._storage.states()
        seen = dst._states()
        assert isinstance(seen, np.ndarray)
        seen[kept] = before[kept]


# --- arithmetic ----------------------------------------------------------------------------------


def tensor_tensor(
    dst: View,
    data1: View,
    data2: View,
    op: Any,
    chosen: Any = None,
    numpy: bool = False,
    name: str = "tensor_tensor",
) -> None:
    """dst = data1 op data2."""
    tiles(name, dst=dst, data1=data1, data2=data2)
    operation = binary(name, op, numpy)
    _not_both_in_psum(name, data1, data2)
    core = machine()
    n = dst._elements
    sums = operation.name if operation.reduces and _same(dst, data1, data2) else ""
    operands = (dst, data1, data2)
    if operation.kind == BITS:
        _whole_dtypes(name, operation, *operands)
        where = on(name, chosen, "Vector")
        core.compute(where, name, operation.function, *operands, raw=True, op=sums)
        return
    integers = all(o.dtype in (dtypes.int32, dtypes.uint32) for o in operands)
    psum = PSUM in (dst.buffer, data1.buffer, data2.buffer)
    if operation.name == "power":
        core.compute(on(name, chosen, "GpSimd"), name, operation.function, *operands)
        return
    if integers and not psum and chosen in (None, engine.unknown, engine.gpsimd):
        # The GpSimd cores compute with whole numbers, and wrap around.
        def exact(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.asarray(operation.function(x, y)).astype(np.int64).astype(dst.dtype)

        core.compute("GpSimd", name, exact, *operands, exact=True, op=sums)
        return
    where = on(name, chosen, "Vector", "GpSimd")
    quick = all(o.dtype == dtypes.bfloat16 for o in operands) and _packed_in_row(data1, data2)
    cheap = operation.name in ("add", "multiply", "subtract") and quick and not psum
    one_each = (PSUM in (data1.buffer, data2.buffer)) or (
        data1._storage.streamed != data2._storage.streamed
    )
    work = n if cheap or one_each else 2 * n
    fast = 2 if work == 2 * n and _halves(*operands) and data1.buffer == data2.buffer == SBUF else 1
    core.compute(
        where,
        name,
        operation.function,
        *operands,
        work=work,
        fast=fast,
        op=sums,
        detail=(operation.name,),
    )


def _same(dst: View, *sources: View) -> bool:
    """Whether one of the sources is dst, element for element."""
    return any(s._storage is dst._storage and s._access() == dst._access() for s in sources)


def _column(name: str, label: str, operand: Any, float32: bool) -> bool:
    """Whether an operand is a tile; refuse what is no number either."""
    if not isinstance(operand, View):
        return False
    if float32 and machine().limits and operand.dtype != np.float32:
        refuse(f"{name}: {label} {operand} is {dtypes.name(operand.dtype)}; accepted: float32")
    return True


_ON_SCALAR = (("multiply", "add"), ("multiply",), ("add",))  # of NeuronCore-v3


def tensor_scalar(
    dst: View,
    data: View,
    steps: Sequence[tuple[Any, Any, bool]],
    chosen: Any = None,
    numpy: bool = False,
    name: str = "tensor_scalar",
) -> np.ndarray | None:
    """dst = data, changed by one or two steps of (op, operand, reverse); the numbers."""
    tiles(name, dst=dst, data=data)
    operations = [resolve(name, op, numpy) for op, _, _ in steps]
    for operation in operations:
        if operation.kind not in ("arithmetic", BITS):
            refuse(
                f"{name}: {operation!r} is a function of the Scalar engine; write nisa.activation"
            )
    bits = {operation.kind == BITS for operation in operations}
    if len(bits) > 1:
        refuse(f"{name}: {operations[0]!r} and {operations[1]!r}; both work on bits, or none")
    core = machine()
    raw = True in bits
    columns = []
    for (_, operand, _), operation in zip(steps, operations):
        if operation.inputs == 2 and _column(name, "operand", operand, not raw):
            columns.append(operand)
    if raw:
        _whole_dtypes(name, operations[0], dst, data, *columns)

    def apply(values: np.ndarray, *given: np.ndarray) -> np.ndarray:
        vectors = iter(given)
        for (_, operand, reverse), operation in zip(steps, operations):
            if operation.inputs == 1:
                values = operation.function(values)
                continue
            if isinstance(operand, View):
                other: Any = next(vectors)
            elif raw:
                other = np.asarray(operand).astype(values.dtype)
            else:
                other = constant(name, "operand", operand)
            values = operation.function(*((other, values) if reverse else (values, other)))
        return values

    for (_, operand, _), operation in zip(steps, operations):
        if operation.inputs == 2 and not isinstance(operand, View):
            constant(name, "operand", operand)
        elif operation.inputs == 1 and operand not in (None, 0, 0.0):
            refuse(f"{name}: {operation!r} takes 1 operands, and operand is {operand!r}")
    if raw:
        where = on(name, chosen, "Vector")
    elif any(operation.name == "rsqrt" for operation in operations) and chosen != engine.vector:
        where = on(name, chosen, "GpSimd", "Vector")
    else:
        where = on(name, chosen, "Vector", "Scalar", "GpSimd")
    if where == "Scalar" and core.limits:
        kinds = tuple(operation.name for operation in operations)
        if core.chip.generation == 3 and kinds not in _ON_SCALAR:
            refuse(
                f"{name}: {', '.join(map(repr, operations))} on the Scalar engine of "
                f"{core.chip.name}; accepted: multiply and add, multiply, add"
            )
    n = data._elements
    fast = 1
    if _halves(dst, data):
        fast = 4 if _packed_in_row(dst, data) and PSUM not in (dst.buffer, data.buffer) else 2
    sums = ""
    if len(steps) == 1 and operations[0].reduces and not steps[0][2] and _same(dst, data):
        sums = operations[0].name
    free = core.hoists and chosen in (None, engine.unknown) and where == "Vector" and not raw
    return core.compute(
        where,
        name,
        apply,
        dst,
        data,
        columns=columns,
        raw=raw,
        work=n,
        fast=fast,
        op=sums,
        either=free,  # beta 1's compiler selects the best engine
    )


def scalar_tensor_tensor(
    dst: View,
    data: View,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: View,
    reverse0: bool = False,
    reverse1: bool = False,
    numpy: bool = False,
) -> None:
    """dst = (data op0 operand0) op1 operand1; operand0 is a number or [partitions, 1]."""
    name = "scalar_tensor_tensor"
    tiles(name, dst=dst, data=data, operand1=operand1)
    first, second = binary(name, op0, numpy), binary(name, op1, numpy)
    for operation in (first, second):
        if operation.kind == BITS:
            refuse(f"{name}: {operation!r} works on bits; accepted: arithmetic")
    _not_both_in_psum(name, data, operand1)
    columns = [operand0] if _column(name, "operand0", operand0, False) else []
    number = 0 if columns else constant(name, "operand0", operand0)

    def apply(values: np.ndarray, tile: np.ndarray, *column: np.ndarray) -> np.ndarray:
        other = column[0] if column else number
        values = first.function(other, values) if reverse0 else first.function(values, other)
        return second.function(tile, values) if reverse1 else second.function(values, tile)

    n = data._elements
    half = all(t.dtype == dtypes.bfloat16 for t in (data, operand1)) and n % 2 == 0
    cheap = half and (first.name, second.name) == ("subtract", "multiply")
    machine().compute(
        "Vector", name, apply, dst, data, operand1, columns=columns, work=n if cheap else 2 * n
    )


def tensor_scalar_reduce(
    dst: View,
    data: View,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: View | None,
    reverse0: bool = False,
    command: reduce_cmd = reduce_cmd.reset_reduce,
    initial: Any = None,
    negate: bool = False,
    numpy: bool = False,
) -> None:
    """tensor_scalar with one step, and a reduction of its result into an accumulator."""
    name = "tensor_scalar_reduce"
    operation = resolve(name, reduce_op, numpy)
    if operation.name not in ("add", "multiply", "maximum", "minimum"):
        refuse(f"{name}: reduce_op is {operation!r}; accepted: nl.add, multiply, max and min")
    made = tensor_scalar(dst, data, [(op0, operand0, reverse0)], engine.vector, numpy, name)
    _reduce_last("Vector", dst, made, operation, reduce_res, command, initial, negate)


def _lanes(view: View) -> slice:
    return slice(view._start, view._start + view.shape[0])


IDENTITY = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


def _reduce_last(
    where: str,
    result: View,
    made: np.ndarray | None,
    operation: Operation,
    out: View | None,
    command: reduce_cmd,
    initial: Any = None,
    negate: bool = False,
) -> None:
    """Reduce what an instruction has just made into its engine's accumulators, in the same pass;
    reading them out is a short instruction more.

    Args:
        result: where the instruction put it.
        made: the numbers, in float32, before they were cast to the dtype of result.
    """
    core = machine()
    registers = core.registers.setdefault(where, np.full(128, np.nan, np.float32))
    spoilt = core.spoilt.setdefault(where, np.zeros(128, bool))
    lanes = _lanes(result)
    if command not in (reduce_cmd.idle, reduce_cmd.reduce):
        spoilt[lanes] = False
    undefined = core.loose
    if command in (reduce_cmd.reset, reduce_cmd.reset_reduce):
        registers[lanes] = IDENTITY[operation.name]
    elif command == reduce_cmd.load_reduce:
        if isinstance(initial, View):
            registers[lanes] = core.read("reduce_init", initial).reshape(-1)
        else:
            registers[lanes] = constant("reduce", "reduce_init", initial)
    if core.numbers and command in (
        reduce_cmd.reduce,
        reduce_cmd.reset_reduce,
        reduce_cmd.load_reduce,
    ):
        if core.limits and np.isnan(registers[lanes]).all():
            refuse(
                "reduce_cmd.reduce: nothing was put into the accumulators; start with reset_reduce"
            )
        assert made is not None
        values = dtypes.wide(np.asarray(made)).reshape(result.shape[0], -1)
        ufunc = operation.function
        assert isinstance(ufunc, np.ufunc)
        with np.errstate(all="ignore"):
            registers[lanes] = ufunc(registers[lanes], ufunc.reduce(values, axis=1))
        if undefined is not None:
            spoilt[lanes] |= undefined.reshape(result.shape[0], -1).any(axis=1)
    if out is not None:
        if core.limits and (out.shape[0] != result.shape[0] or out._elements != 1):
            refuse(f"reduce_res {out}; accepted: [{result.shape[0]}, 1]")
        values = registers[lanes].copy()
        fresh = core.write("reduce_res", out, -values if negate else values)
        loose = spoilt[lanes].reshape(out.shape)
        core.mark_undefined("reduce_res", out, loose, (result,), (loose,))
        core.note(where, "reduce_res", out, (), work=READ_OUT, elements=READ_OUT, fresh=fresh)


def reduce_axes(name: str, data: View, axis: Any) -> tuple[int, ...]:
    """The axes of a reduction: the last ones, and not the partitions."""
    axes = sorted(
        a + data.ndim if a < 0 else int(a)
        for a in (axis if isinstance(axis, (tuple, list)) else [axis])
    )
    last = list(range(data.ndim - len(axes), data.ndim))
    if axes != last or 0 in axes:
        accepted = ", ".join(str(tuple(range(n, data.ndim))) for n in range(data.ndim - 1, 0, -1))
        refuse(f"{name}: axis is {axis} of {data}; accepted: {accepted}")
    return tuple(axes)


def tensor_reduce(
    dst: View,
    op: Any,
    data: View,
    axis: Any,
    negate: bool = False,
    numpy: bool = False,
    name: str = "tensor_reduce",
) -> None:
    """dst = data reduced over its last axes, on the Vector engine."""
    tiles(name, dst=dst, data=data)
    operation = reduction(name, op, numpy)
    axes = reduce_axes(name, data, axis)
    core = machine()
    raw = operation.kind == BITS
    if raw:
        _whole_dtypes(name, operation, dst, data)
    left = math.prod(n for a, n in enumerate(data.shape) if a and a not in axes)
    if core.limits and (dst._elements != left or dst.shape[0] != data.shape[0]):
        refuse(
            f"{name}: dst {dst} does not hold {data} reduced over {axes}; accepted: "
            f"{data.shape[0]} partitions of {left} elements"
        )

    def apply(values: np.ndarray) -> np.ndarray:
        found = reduced(operation, values, axes)
        return (-found if negate else found).reshape(dst.shape)

    n = data._elements
    half = dst.dtype == data.dtype == dtypes.bfloat16 and operation.name in ("add", "maximum")
    passes_on = operation.name in ("add", "multiply", "maximum", "minimum")
    core.compute(
        "Vector",
        name,
        apply,
        dst,
        data,
        raw=raw,
        work=n / 2 if half else n,
        shapes=False,
        chosen=(data,) if passes_on else (),
    )


def tensor_partition_reduce(dst: View, op: Any, data: View, numpy: bool = False) -> None:
    """dst = data reduced over its partitions, on the GpSimd engine."""
    name = "tensor_partition_reduce"
    tiles(name, dst=dst, data=data)
    operation = resolve(name, op, numpy)
    accepted = ("add", "average", "maximum", "bitwise_or", "bitwise_and")
    if operation.name not in accepted:
        refuse(f"{name}: {operation!r}; accepted: {', '.join(accepted)}")
    core = machine()
    if core.limits and (dst.shape[0] != 1 or dst._elements != data._elements):
        refuse(f"{name}: dst {dst}; accepted: 1 partition of {data._elements} elements")
    raw = operation.kind == BITS

    def apply(values: np.ndarray) -> np.ndarray:
        ufunc = operation.function
        assert isinstance(ufunc, np.ufunc)
        found = ufunc.reduce(values.reshape(values.shape[0], -1), axis=0)
        return (
            found / np.float32(values.shape[0]) if operation.name == "average" else found
        ).reshape(dst.shape)

    core.compute("GpSimd", name, apply, dst, data, raw=raw, extra=GPSIMD_START, shapes=False)


def tensor_tensor_scan(
    dst: View,
    data0: View,
    data1: View,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    numpy: bool = False,
) -> None:
    """result[i] = (data0[i] op0 result[i - 1]) op1 data1[i], along each partition."""
    name = "tensor_tensor_scan"
    tiles(name, dst=dst, data0=data0, data1=data1)
    first, second = binary(name, op0, numpy), binary(name, op1, numpy)
    _not_both_in_psum(name, data0, data1)
    columns = [initial] if _column(name, "initial", initial, False) else []
    number = 0 if columns else constant(name, "initial", initial)

    def apply(a: np.ndarray, b: np.ndarray, *column: np.ndarray) -> np.ndarray:
        rows = a.shape[0]
        a, b = a.reshape(rows, -1), b.reshape(rows, -1)
        state = column[0].reshape(rows) if column else np.full(rows, number, np.float32)
        found = np.empty_like(a)
        for i in range(a.shape[1]):
            x = a[:, i]
            step = first.function(state, x) if reverse0 else first.function(x, state)
            state = second.function(b[:, i], step) if reverse1 else second.function(step, b[:, i])
            found[:, i] = state
        return found.reshape(dst.shape)

    n = data0._elements
    machine().compute(
        "Vector", name, apply, dst, data0, data1, columns=columns, work=2 * n, across=True
    )


def tensor_scalar_cumulative(
    dst: View,
    src: View,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    command: reduce_cmd = reduce_cmd.reset_reduce,
) -> None:
    """dst[i] = (src[i] op0 imm0) op1 dst[i - 1]."""
    name = "tensor_scalar_cumulative"
    tiles(name, dst=dst, src=src)
    first, second = binary(name, op0), binary(name, op1)
    if second.name not in IDENTITY:
        refuse(f"{name}: op1 is {second!r}; accepted: {', '.join(IDENTITY)}")
    core = machine()
    registers = core.registers.setdefault("Vector", np.full(128, np.nan, np.float32))
    lanes = _lanes(src)
    columns = [imm0] if _column(name, "imm0", imm0, True) else []
    number = 0 if columns else constant(name, "imm0", imm0)
    if command == reduce_cmd.reset_reduce:
        registers[lanes] = IDENTITY[second.name]
    elif command == reduce_cmd.load_reduce:
        if isinstance(imm1, View):
            registers[lanes] = core.read(name, imm1).reshape(-1)
        else:
            registers[lanes] = constant(name, "imm1", imm1)

    def apply(values: np.ndarray, *column: np.ndarray) -> np.ndarray:
        other = column[0].reshape(-1, 1) if column else number
        flat = first.function(values.reshape(values.shape[0], -1), other)
        state, found = registers[lanes], np.empty_like(flat)
        for i in range(flat.shape[1]):
            state = second.function(flat[:, i], state)
            found[:, i] = state
        registers[lanes] = state
        return found.reshape(dst.shape)

    core.compute("Vector", name, apply, dst, src, columns=columns, across=True)


def activation(
    dst: View,
    op: Any,
    data: View,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: View | None = None,
    command: reduce_cmd = reduce_cmd.idle,
    numpy: bool = False,
    name: str = "activation",
    parameter: Any = None,
) -> None:
    """dst = op(data scale + bias), on the Scalar engine, and a sum of it where asked for.

    scale and bias are numbers or tiles [partitions, 1]; a number as bias needs NeuronCore-v3.
    """
    tiles(name, dst=dst, data=data)
    operation = activation_of(name, op, numpy)
    if operation.name == "prelu":
        refuse(f"{name}: nl.prelu has a slope, which only nisa.activate2 takes, as relu_param")
    core = machine()
    limits = core.limits
    columns: list[View] = []
    if tiled := _column(name, "scale", scale, True):
        columns.append(scale)
    factor = np.float32(1) if tiled else constant(name, "scale", scale)
    shifted = _column(name, "bias", bias, False)
    if shifted:
        columns.append(bias)
    elif bias is not None:
        shift = constant(name, "bias", bias)
        if limits and shift != 0 and core.chip.generation == 2 and not numpy:
            refuse(
                f"{name}: bias is the number {bias}, which needs NeuronCore-v3 (trn2); accepted on "
                f"{core.chip.name}: a tile [{data.shape[0]}, 1]"
            )
    shift = np.float32(0) if bias is None or shifted else constant(name, "bias", bias)
    if limits and shifted and dtypes.is_integer(bias.dtype):
        refuse(f"{name}: bias {bias} is {bias.dtype}; accepted: float32, float16 and bfloat16")
    if reduce_op is not None and resolve(name, reduce_op, numpy).name != "add":
        refuse(f"{name}: reduce_op is {reduce_op!r}; accepted: nl.add")

    def whole(values: np.ndarray, *column: np.ndarray) -> np.ndarray:
        given = iter(column)
        if tiled:
            values = values * next(given)
        elif factor != 1:
            values = values * factor
        if shifted:
            values = values + next(given)
        elif shift != 0:
            values = values + shift
        if limits and operation.limits is not None:
            _in_range(name, operation, values)
        return operation.function(values)

    numbers = (operation.name, float(factor), float(shift))
    plain = reduce_res is None and command == reduce_cmd.idle
    made = core.compute(
        "Scalar",
        name,
        whole,
        dst,
        data,
        columns=columns,
        work=data._elements,
        detail=numbers if plain else None,
    )
    if reduce_res is not None or command != reduce_cmd.idle:
        if command == reduce_cmd.idle and reduce_op is not None:
            command = reduce_cmd.reset_reduce
        _reduce_last(
            "Scalar",
            dst,
            made,
            resolve(name, reduce_op, numpy) if reduce_op is not None else resolve(name, _ADD),
            reduce_res,
            command,
        )


_STAGES = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)


def activate2(
    dst: View,
    op: Any,
    data: View,
    steps: Sequence[tuple[Any, Any, bool]],
    relu_param: Any = 0.0,
    reduce_op: Any = None,
    reduce_res: View | None = None,
    command: reduce_cmd = reduce_cmd.idle,
) -> None:
    """dst = op of data changed by two steps of (op, operand, reverse), on the Scalar engine of
    NeuronCore-v4, and a reduction of it."""
    name = "activate2"
    _needs(name, 4)
    tiles(name, dst=dst, data=data)
    operation = activation_of(name, op)
    stages = [resolve(name, step) for step, _, _ in steps]
    kinds = tuple(stage.name for stage in stages)
    if kinds not in _STAGES:
        accepted = ", ".join(f"{one} and {other}" for one, other in _STAGES)
        refuse(f"{name}: op0 and op1 are {' and '.join(kinds)}; accepted: {accepted}")
    columns: list[View] = []
    numbers: list[Any] = []
    named = [("imm0", steps[0][1]), ("imm1", steps[1][1]), ("relu_param", relu_param)]
    for label, operand in named:
        if _column(name, label, operand, False):
            columns.append(operand)
            numbers.append(None)
        else:
            numbers.append(constant(name, label, operand))
    if len(columns) > 1 and columns[0].dtype != columns[1].dtype:
        refuse(f"{name}: {columns[0]} and {columns[1]} differ in dtype")
    reducing = resolve(name, reduce_op) if reduce_op is not None else _ADD
    if reducing.name not in ("add", "maximum", "minimum", "abs_max", "abs_min"):
        refuse(
            f"{name}: reduce_op is {reducing!r}; accepted: add, maximum, minimum, abs_max, abs_min"
        )
    if command != reduce_cmd.idle and reducing.name in ("abs_max", "abs_min"):
        refuse(f"not simulated: {name} with reduce_op {reducing!r}")

    def whole(values: np.ndarray, *given: np.ndarray) -> np.ndarray:
        left = iter(given)
        first, second, slope = (next(left) if n is None else n for n in numbers)
        for stage, operand, (_, _, reverse) in zip(stages, (first, second), steps):
            if stage.name != "bypass":
                pair = (operand, values) if reverse else (values, operand)
                values = stage.function(*pair)
        if machine().limits and operation.limits is not None:
            _in_range(name, operation, values)
        return prelu(values, slope) if operation.name == "prelu" else operation.function(values)

    made = machine().compute("Scalar", name, whole, dst, data, columns=columns, work=data._elements)
    if command != reduce_cmd.idle or reduce_res is not None:
        _reduce_last("Scalar", dst, made, reducing, reduce_res, command)


_ADD = Operation("add", np.add, 2)


def _in_range(name: str, operation: Operation, values: np.ndarray) -> None:
    assert operation.limits is not None
    low, high = operation.limits
    outside = np.isfinite(values) & ((values < low) | (values > high))
    if operation.name in ("sqrt", "rsqrt"):
        outside &= values != 0
    if outside.any():
        worst = float(values[outside][0])
        refuse(
            f"{name}: {int(outside.sum())} numbers, {worst:.6g} among them, are out of the range "
            f"in which the Scalar engine knows {operation!r}: {low:.6g} to {high:.6g}"
        )


def reciprocal(dst: View, data: View, name: str = "reciprocal") -> None:
    """dst = 1 / data, on the Vector engine: eight cycles an element."""
    tiles(name, dst=dst, data=data)
    machine().compute(
        "Vector", name, lambda x: np.float32(1) / x, dst, data, work=8 * data._elements
    )


def exponential(
    dst: View,
    src: View,
    max_value: Any = 0.0,
    reduce_res: View | None = None,
    command: reduce_cmd = reduce_cmd.idle,
    initial: Any = 0.0,
) -> None:
    """dst = exp(src - max_value), on the Vector engine of NeuronCore-v4: four elements a cycle."""
    _needs("exponential", 4)
    tiles("exponential", dst=dst, src=src)
    columns = [max_value] if _column("exponential", "max_value", max_value, True) else []
    number = 0 if columns else constant("exponential", "max_value", max_value)

    def apply(values: np.ndarray, *column: np.ndarray) -> np.ndarray:
        return np.exp(values - (column[0] if column else number))

    n = src._elements
    made = machine().compute("Vector", "exponential", apply, dst, src, columns=columns, work=n / 4)
    if command != reduce_cmd.idle:
        _reduce_last("Vector", dst, made, _ADD, reduce_res, command, initial)


# --- patterns and choices ------------------------------------------------------------------------


def pattern_values(
    name: str, partitions: int, pattern: Any, offset: int, channel_multiplier: int
) -> np.ndarray:
    """offset + partition × channel_multiplier + Σ steps, [partitions, elements]."""
    pairs = [list(map(int, pair)) for pair in pattern]
    if not 1 <= len(pairs) <= 4 or any(len(pair) != 2 for pair in pairs):
        refuse(f"{name}: pattern is {pattern}; accepted: one to four [step, number]")
    line = np.zeros(1, np.int64)
    for step, number in pairs:
        line = (line[:, None] + step * np.arange(number)).reshape(-1)
    return offset + channel_multiplier * np.arange(partitions)[:, None] + line[None, :]


def iota(dst: View, values: np.ndarray, name: str = "iota") -> None:
    """dst = whole numbers that the instruction makes by itself."""
    tiles(name, dst=dst)
    core = machine()
    if core.limits and dst.buffer != SBUF:
        refuse(f"{name}: dst {dst}; accepted: a tile in SBUF")
    if values.size != dst.size:
        refuse(f"{name}: {values.size // dst.shape[0]} numbers a partition for dst {dst}")
    number = values.reshape(dst.shape)
    n = dst._elements
    core.compute("GpSimd", name, lambda: number, dst, work=n, extra=GPSIMD_START)


def affine_select(
    dst: View, condition: np.ndarray, on_true: View, on_false: Any, name: str = "affine_select"
) -> None:
    """dst = on_true where the condition holds, else a number."""
    tiles(name, dst=dst, on_true_tile=on_true)
    core = machine()
    if core.limits and (dst.buffer != SBUF or on_true.buffer != SBUF):
        refuse(f"{name}: {on_true} into {dst}; both are in SBUF")
    if condition.size != dst.size:
        refuse(
            f"{name}: the pattern has {condition.size // dst.shape[0]} elements a partition; dst "
            f"is {dst}"
        )
    other = constant(name, "on_false_value", on_false)
    taken = condition.reshape(dst.shape)
    n = dst._elements
    core.compute(
        "GpSimd",
        name,
        lambda x: np.where(taken, x, other),
        dst,
        on_true,
        work=n,
        extra=GPSIMD_START,
        chosen=(on_true,),
    )


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def comparison(name: str, op: Any, numpy: bool = False) -> Any:
    """A comparison, as a NumPy function to booleans."""
    operation = binary(name, op, numpy)
    if operation.name not in COMPARISONS:
        refuse(f"{name}: {operation!r}; accepted: {', '.join(COMPARISONS)}")
    return getattr(np, operation.name)


def range_select(
    dst: View,
    on_true: View,
    op0: Any,
    op1: Any,
    bound0: View,
    bound1: View,
    reduce_res: View | None = None,
    command: reduce_cmd = reduce_cmd.reset_reduce,
    range_start: int = 0,
    on_false: float = FP32_MIN,
    numpy: bool = False,
) -> None:
    """dst = on_true where an element's place lies within two bounds of its partition."""
    name = "range_select"
    _needs(name, 3)
    tiles(name, dst=dst, on_true_tile=on_true, bound0=bound0, bound1=bound1)
    first, second = comparison(name, op0, numpy), comparison(name, op1, numpy)
    core = machine()
    if core.limits and np.float32(on_false) != np.float32(FP32_MIN):
        refuse(f"{name}: on_false_value is {on_false}; accepted: {FP32_MIN}")
    if core.limits:
        for bound in (bound0, bound1):
            if bound.dtype != np.float32:
                refuse(f"{name}: {bound} is {dtypes.name(bound.dtype)}; accepted: float32")
    places = np.float32(range_start) + np.arange(on_true._elements, dtype=np.float32)

    def apply(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        rows = values.shape[0]
        taken = first(places[None], low.reshape(rows, 1)) & second(
            places[None], high.reshape(rows, 1)
        )
        return np.where(taken, values.reshape(rows, -1), np.float32(on_false)).reshape(dst.shape)

    made = core.compute(
        "Vector",
        name,
        apply,
        dst,
        on_true,
        columns=(bound0, bound1),
        work=on_true._elements,
        chosen=(on_true,),
    )
    if reduce_res is not None or command != reduce_cmd.idle:
        _reduce_last("Vector", dst, made, resolve(name, _MAX), reduce_res, command)


_MAX = Operation("max", np.maximum, 2)


def select_reduce(
    dst: View,
    predicate: View,
    on_true: View,
    on_false: Any,
    reduce_res: View | None = None,
    command: reduce_cmd = reduce_cmd.idle,
    reverse: bool = False,
) -> None:
    """dst = on_true where predicate is not zero, else on_false; and the largest of each row."""
    name = "select_reduce"
    tiles(name, dst=dst, predicate=predicate, on_true=on_true)
    _not_both_in_psum(name, on_true, predicate)
    columns = [on_false] if _column(name, "on_false", on_false, False) else []
    number = 0 if columns else constant(name, "on_false", on_false)

    def apply(condition: np.ndarray, values: np.ndarray, *column: np.ndarray) -> np.ndarray:
        return np.where((condition != 0) != reverse, values, column[0] if column else number)

    made = machine().compute(
        "Vector", name, apply, dst, predicate, on_true, columns=columns, chosen=(on_true, *columns)
    )
    if reduce_res is not None or command != reduce_cmd.idle:
        _reduce_last("Vector", dst, made, resolve(name, _MAX), reduce_res, command)


def dropout(dst: View, data: View, prob: Any) -> None:
    """Zeros in place of some elements, at random: not the hardware's numbers, but as many."""
    tiles("dropout", dst=dst, data=data)
    columns = [prob] if _column("dropout", "prob", prob, False) else []
    number = 0 if columns else constant("dropout", "prob", prob)
    rng = machine().rng

    def apply(values: np.ndarray, *column: np.ndarray) -> np.ndarray:
        drop = rng.random(values.shape) < (column[0] if column else number)
        return np.where(drop, np.float32(0), values)

    machine().compute("Vector", "dropout", apply, dst, data, columns=columns)


WHOLE = (
    dtypes.int8,
    dtypes.int16,
    dtypes.int32,
    dtypes.uint8,
    dtypes.uint16,
    dtypes.uint32,
)


def rng(dst: View, chosen: Any = None) -> None:
    """Random bits: not the hardware's numbers, but as many."""
    name = "rng"
    tiles(name, dst=dst)
    where = on(name, chosen, "Vector", "GpSimd")
    if where == "GpSimd":
        _needs(f"{name} on GpSimd", 3)
    if machine().limits and dst.dtype not in WHOLE:
        refuse(f"{name}: dst {dst} is {dtypes.name(dst.dtype)}; accepted: whole numbers")
    bits = machine().rng.integers(0, 2 ** (8 * dst.itemsize), dst.shape, np.int64)
    unsigned = bits.astype(f"u{dst.itemsize}")
    values = unsigned.view(dst.dtype) if dst.dtype in WHOLE else unsigned
    extra = GPSIMD_START if where == "GpSimd" else 0
    machine().compute(where, name, lambda: values, dst, raw=True, work=dst._elements, extra=extra)


def rand2(dst: View, low: Any, high: Any) -> None:
    """Random numbers between two bounds, on the Vector engine of NeuronCore-v4: not the hardware's,
    but as many."""
    name = "rand2"
    _needs(name, 4)
    tiles(name, dst=dst)
    columns = [each for each in (low, high) if _column(name, "min and max", each, False)]
    ends = [
        None if isinstance(each, View) else constant(name, "bound", each) for each in (low, high)
    ]
    drawn = machine().rng.random(dst.shape, np.float32)

    def apply(*given: np.ndarray) -> np.ndarray:
        left = iter(given)
        first, last = (next(left) if end is None else end for end in ends)
        if machine().limits and not np.all(first < last):
            refuse(f"{name}: min is {np.max(first)} and max {np.min(last)}; accepted: min < max")
        return first + drawn * (last - first)

    machine().compute("Vector", name, apply, dst, columns=columns, work=dst._elements)


def set_rng_seed(seeds: View) -> None:
    """Start the Vector engine's random numbers anew, from a number of 32 bits."""
    name = "set_rng_seed"
    tiles(name, src_seeds=seeds)
    core = machine()
    if core.limits and (seeds.size != 1 or seeds.itemsize != 4):
        refuse(f"{name}: src_seeds {seeds} {dtypes.name(seeds.dtype)}; accepted: [1, 1] of 32 bits")
    core.check_operand(name, "Vector", seeds)
    core.check_written(name, seeds, whole=True)
    core.rng = np.random.default_rng(seeds._values().reshape(-1).view(np.uint32))


def rand_state(name: str, tile: View, chosen: Any, put: bool) -> None:
    """The state of an engine's random numbers, 6 or 24 uint32 a partition, put there or read."""
    _needs(name, 3)
    tiles(name, seeds=tile)
    where = on(name, chosen, "GpSimd", "Vector")
    if where == "Vector":
        _needs(f"{name} on Vector", 4)
    core, n = machine(), 24 if where == "Vector" else 6
    if core.limits:
        core.check_operand(name, where, tile)
        if tile.dtype != np.uint32 or tile._elements != n:
            refuse(
                f"{name}: {tile} {dtypes.name(tile.dtype)}; accepted on {where}: uint32, {n} each"
            )
    if put:
        core.check_written(name, tile, whole=True)
        core.states[where] = (np.array(tile._values()), core.rng)
        core.rng = np.random.default_rng(tile._values().reshape(-1))
        core.states[where] = (core.states[where][0], core.rng.bit_generator.state)
        return
    values, drawn = core.states.get(where, (None, None))
    if values is None or drawn != core.rng.bit_generator.state or values.shape != tile.shape:
        refuse(f"not simulated: {name} of a state that rand_set_state did not just put there")
    core.write(name, tile, values)


# --- the Tensor engine ---------------------------------------------------------------------------

MATMUL_DTYPES = (
    dtypes.float32,
    dtypes.tfloat32,
    dtypes.bfloat16,
    dtypes.float16,
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
)


def nc_matmul(
    dst: View,
    stationary: View,
    moving: View,
    accumulate: bool | None = None,
    is_transpose: bool = False,
    tile_position: Sequence[int] = (),
    tile_size: Sequence[int] = (),
    perf_mode: Any = matmul_perf_mode.none,
    name: str = "nc_matmul",
) -> None:
    """dst [M, N] = stationary [K, M] transposed times moving [K, N]; dst is in PSUM.

    Args:
        accumulate: False overwrites dst, True adds to what a product left there; None, the
            default, overwrites at the first product into dst and adds at later ones.
    """
    tiles(name, dst=dst, stationary=stationary, moving=moving)
    core = machine()
    for tile in (dst, stationary, moving):
        if getattr(tile, "_snake", False):
            refuse(f"not simulated: {name} of {tile}, which .indirect made")
    double = perf_mode not in (None, matmul_perf_mode.none, "none")
    if core.limits:
        _check_matmul(name, dst, stationary, moving, double, is_transpose)
        _check_pe_tile(name, stationary, tile_position, tile_size)
    states = [core.check_written(name, tile) for tile in (stationary, moving)]
    adds = _adds(name, dst, accumulate)
    before = core.check_written(name, dst) if adds else None
    values = None
    moves = is_transpose and core.chip.generation > 2  # no arithmetic: zeros leave nothing
    if core.numbers:
        left = dtypes.wide(stationary._values()).reshape(-1, stationary.shape[-1])
        right = spoiled(dtypes.wide(moving._values()), states[1]).reshape(left.shape[0], -1)
        if states[0] is not None:
            bad = is_undefined(states[0]).reshape(left.shape)
            left = np.where(bad, np.float32(0 if moves else np.nan), left)
        values = product(left.T, right)
        if adds:
            values = values + dtypes.wide(dst._values()).reshape(values.shape)
        values = values.reshape(dst.shape)
    fresh = core.write(name, dst, values, state=SUMMED)
    if moves and states[0] is not None and core.numbers:
        loose = ((bad.T @ (right != 0)) > 0).reshape(dst.shape)
        core.mark_undefined(name, dst, loose, (stationary,), states[:1])
        states[0] = None
    _spoil_product(name, dst, (stationary, moving), states, before)
    m, n = stationary.shape[-1], moving._elements // (2 if double else 1)
    # float32 takes four times as long as what has 16 bits (architecture guide).
    four = np.float32 in (stationary.dtype, moving.dtype)
    if four and is_transpose and core.chip.generation > 2:
        four = False  # twice as fast as without the mode; still two passes
        n *= 2
    work = max(min(64, m), n) * (4 if four else 1)
    core.note(
        "Tensor",
        name,
        dst,
        (stationary, moving),
        work=work,
        elements=n,
        fresh=fresh,
        summed=adds,
    )


def _spoil_product(
    name: str,
    dst: View,
    sources: Sequence[View],
    states: Sequence[np.ndarray | None],
    before: np.ndarray | None,
) -> None:
    """A row of stationary, [K, M], that is undefined spoils one of dst, and of moving a column."""
    if before is None and all(state is None for state in states):
        return
    loose = np.zeros((dst.shape[0], dst._elements), bool)
    for state, axis in zip(states, (0, 1)):
        if state is not None:
            columns = np.any(is_undefined(state).reshape(-1, loose.shape[axis]), axis=0)
            loose |= np.expand_dims(columns, 1 - axis)
    if before is not None:
        loose |= is_undefined(before).reshape(loose.shape)
    machine().mark_undefined(
        name, dst, loose.reshape(dst.shape), (*sources, dst), (*states, before)
    )


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x y, in pieces that BLAS does not spread over threads: on a busy machine they wait for each
    other a hundred times longer than they compute.

    The order in which the array adds up is not published; here it is four sums, then their sum.
    """
    (m, k), n = x.shape, y.shape[1]
    quarter = -(-k // 4)
    width = max(1, 2**18 // (m * quarter))
    whole = n - n % width
    found = np.zeros((m, n), np.float32)
    for first in range(0, k, quarter):
        a, b = x[:, first : first + quarter], y[first : first + quarter]
        if whole:
            pieces = b[:, :whole].reshape(len(b), whole // width, width).transpose(1, 0, 2)
            found[:, :whole] += np.matmul(a, pieces).transpose(1, 0, 2).reshape(m, whole)
        if whole < n:
            found[:, whole:] += a @ b[:, whole:]
    return found


def _adds(name: str, dst: View, accumulate: Any) -> bool:
    """Whether a product is added to dst. What no product wrote cannot be added to, not even zeros:
    NeuronCore-v2 and -v3 do not define it (nki.isa.nc_matmul)."""
    if accumulate is not None and not isinstance(accumulate, (bool, np.bool_)):
        refuse(f"{name}: accumulate is {accumulate!r}; accepted: None, True and False")
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
    if core.limits and not (core.chip.generation >= 4 and _is_written(states)):
        refuse(
            f"{name}: no product has written {dst.size - summed} of the {dst.size} elements of "
            f"dst {dst}, so there is nothing to add to; start with accumulate=False"
        )
    return True


def _is_written(states: Any) -> bool:
    return bool(np.isin(states, (WRITTEN, SUMMED)).all())


def _check_matmul(
    name: str, dst: View, stationary: View, moving: View, double: bool, is_transpose: bool
) -> None:
    core = machine()
    for tile in (stationary, moving):
        if tile.buffer != SBUF:
            refuse(f"{name}: {tile}; the Tensor engine reads SBUF only")
        core.check_operand(name, "Tensor", tile)
    if dst.buffer != PSUM:
        refuse(f"{name}: dst {dst}; the Tensor engine writes PSUM only")
    core.check_operand(name, "Tensor", dst)
    generation = core.chip.generation
    accepted = MATMUL_DTYPES + ((dtypes.float8_e4m3fn,) if generation >= 4 else ())
    for tile in (stationary, moving):
        if tile.dtype not in accepted and not is_transpose:
            refuse(
                f"{name}: {tile} is {dtypes.name(tile.dtype)}; accepted: "
                + ", ".join(map(dtypes.name, accepted))
            )
    wide = [tile.dtype in (dtypes.float32, dtypes.tfloat32) for tile in (stationary, moving)]
    if wide[0] != wide[1] and not is_transpose:
        refuse(
            f"{name}: {stationary} is {dtypes.name(stationary.dtype)} and {moving} "
            f"{dtypes.name(moving.dtype)}; float32 and tfloat32 go with each other only"
        )
    results = (dtypes.float32,) + ((dtypes.bfloat16,) if generation >= 4 else ())
    if dst.dtype not in results and not is_transpose:
        refuse(
            f"{name}: dst {dst} is {dtypes.name(dst.dtype)}; accepted on {core.chip.name}: "
            + ", ".join(map(dtypes.name, results))
        )
    if double:
        _needs(f"{name} with perf_mode", 3)
        eights = (*dtypes.EIGHTS,)
        if any(
            t.dtype not in eights or t.ndim != 3 or t.shape[1] != 2 for t in (stationary, moving)
        ):
            refuse(
                f"{name}: {stationary} and {moving} with perf_mode; accepted: float8 [K, 2, M] and "
                "[K, 2, N]"
            )
    k, m = stationary.shape[0], stationary._elements // (2 if double else 1)
    n = moving._elements // (2 if double else 1)
    if moving.shape[0] != k or (dst.shape[0], dst._elements) != (m, n):
        refuse(f"{name}: {stationary} and {moving} do not make dst {dst}")
    most = core.chip.moving_fmax * (2 if dst.dtype.itemsize == 2 else 1)
    if m > 128 or n > most:  # 512 float32 fill a PSUM bank
        refuse(f"{name}: {stationary} and {moving}; at most 128 stationary and {most} moving")


def _check_pe_tile(
    name: str, stationary: View, position: Sequence[int], size: Sequence[int]
) -> None:
    if not position and not size:
        return
    if not position or not size:
        refuse(f"{name}: tile_position is {position} and tile_size {size}; set both, or none")
    generation = machine().chip.generation
    accepted = (64, 128) if generation == 2 else (32, 64, 128)
    for label, start, length, need in zip(
        ("rows", "columns"), position, size, (stationary.shape[0], stationary.shape[-1])
    ):
        if length not in accepted or start % length or start + length > 128:
            refuse(
                f"{name}: {label} {start} + {length} of tile_position and tile_size; accepted: "
                f"sizes {', '.join(map(str, accepted))} at multiples of themselves, within 128"
            )
        if need > length:
            refuse(f"{name}: {stationary} is larger than tile_size {tuple(size)}")


def nc_transpose(dst: View, data: View, chosen: Any = None, name: str = "nc_transpose") -> None:
    """dst = data with partitions and elements exchanged, on the Tensor or the Vector engine."""
    tiles(name, dst=dst, data=data)
    p, f = data.shape[0], data._elements
    core = machine()
    small = p <= 32 and f <= 32
    default = "Tensor" if dst.buffer == PSUM or not small else "Vector"
    where = on(name, chosen, default, "Tensor", "Vector")
    if core.limits:
        for operand in (dst, data):
            core.check_operand(name, where, operand)
        if (dst.shape[0], dst._elements) != (f, p):
            refuse(f"{name}: {data} does not become dst {dst}; accepted: [{f}, {p}]")
        most = 32 if where == "Vector" else 128
        if max(p, f) > most:
            refuse(f"{name}: {data}; the {where} engine transposes at most [{most}, {most}]")
        if where == "Tensor" and (data.buffer != SBUF or dst.buffer != PSUM):
            refuse(f"{name}: {data} into {dst}; the Tensor engine reads SBUF and writes PSUM")
        plain = core.chip.generation == 2 and where == "Tensor"  # an ordinary product: float32
        if dst.dtype != data.dtype and not (plain and dst.dtype == np.float32):
            refuse(f"{name}: dst {dst} is {dtypes.name(dst.dtype)}, data {dtypes.name(data.dtype)}")
    states = core.check_written(name, data)
    values = data._values().reshape(p, f).T if core.numbers else None
    by_product = where == "Tensor" and core.chip.generation == 2 and core.limits
    floats = values is not None and values.dtype.kind not in "iub"
    known = True if states is None else ~is_undefined(states).reshape(p, f).T
    if by_product and floats and not np.isfinite(dtypes.wide(values))[known].all():  # type: ignore[arg-type]
        refuse(
            f"{name}: {data} holds NaN or infinity, which a product by the identity spreads "
            "over the tile on NeuronCore-v2"
        )
    if values is not None and dst.dtype != data.dtype:
        values = dtypes.wide(values)
    fresh = core.write(name, dst, values)
    if states is not None:
        loose = is_undefined(states).reshape(p, f).T
        if by_product:  # by the identity, whose zeros do not help against infinity
            loose = loose | loose.any(axis=1, keepdims=True)
        core.mark_undefined(name, dst, loose.reshape(dst.shape), (data,), (states,))
    work = max(64, f) if where == "Vector" else max(p, min(64, f))
    if where == "Tensor" and data.dtype == np.float32:
        work *= 4 if core.chip.generation == 2 else 2
    core.note(where, name, dst, (data,), work=work, elements=f, fresh=fresh)


def _quads(name: str, view: View) -> np.ndarray:
    """[P, F] of packed elements → [P, F, 4] numbers."""
    element = dtypes.QUADS.get(view.dtype)
    if element is None:
        refuse(
            f"{name}: {view} is {dtypes.name(view.dtype)}; accepted: "
            + ", ".join(map(dtypes.name, dtypes.QUADS))
        )
    data = np.ascontiguousarray(view._values())
    return dtypes.unpacked(data).reshape(view.shape[0], -1, 4)


def _scale_rows(scale: View, partitions: int) -> list[int]:
    """Where the scales of each group of 8 partitions are: each quadrant of 32 partitions has them
    in its first four."""
    rows = [32 * (group // 4) + group % 4 for group in range(partitions // 8)]
    return rows if rows[-1] < scale.shape[0] else list(range(partitions // 8))


def _scales(scale: View, partitions: int) -> np.ndarray:
    """The scales of each group of 8 partitions, [partitions / 8, F]."""
    codes = scale._values().view(np.uint8).reshape(scale.shape[0], -1)
    exponents = codes[_scale_rows(scale, partitions)].astype(np.int32) - 127
    return np.ldexp(np.float32(1), exponents)


def _scaled_states(name: str, tile: View, scale: View) -> np.ndarray | None:
    """The states of scaled numbers, [partitions, F]; None where all are defined."""
    core = machine()
    partitions = tile.shape[0]
    states = core.check_written(name, tile)
    scales = core.check_written(name, scale)
    part = [None if scales is None else scales[row] for row in _scale_rows(scale, partitions)]
    if states is None and all(each is None for each in part):
        return None
    found = np.full((partitions, tile._elements), WRITTEN, np.uint8)
    if states is not None:
        found[is_undefined(states).reshape(found.shape)] = UNDEFINED
    for group, each in enumerate(part):
        if each is not None:
            wrong = is_undefined(each).reshape(-1)[: tile._elements]
            found[8 * group : 8 * group + 8, wrong] = UNDEFINED
    return found


def nc_matmul_mx(
    dst: View,
    stationary: View,
    moving: View,
    stationary_scale: View,
    moving_scale: View,
    accumulate: bool | None = None,
) -> None:
    """A product of numbers with a scale for each 32 (8 partitions of 4), on NeuronCore-v4."""
    name = "nc_matmul_mx"
    _needs(name, 4)
    core = machine()
    k = stationary.shape[0]
    if core.limits:
        if k % 32 or moving.shape[0] != k:
            refuse(
                f"{name}: {stationary} and {moving}; accepted: as many partitions, a multiple of 32"
            )
        for tile in (stationary, moving, stationary_scale, moving_scale):
            core.check_operand(name, "Tensor", tile)
        if dst.buffer != PSUM or (dst.shape[0], dst._elements) != (
            stationary._elements,
            moving._elements,
        ):
            refuse(f"{name}: {stationary} and {moving} do not make dst {dst}")
    adds = _adds(name, dst, accumulate)
    pairs = ((stationary, stationary_scale), (moving, moving_scale))
    states = [_scaled_states(name, tile, scale) for tile, scale in pairs]
    before = core.check_written(name, dst) if adds else None
    values = None
    if core.numbers:
        sides = []
        for (tile, scale), state in zip(pairs, states):
            quads = _quads(name, tile)
            factors = np.repeat(_scales(scale, k), 8, axis=0)[:, : quads.shape[1]]
            sides.append(quads * spoiled(factors, state)[:, :, None])
        values = np.einsum("kmq,knq->mn", *sides, optimize=True)
        if adds:
            values = values + dtypes.wide(dst._values()).reshape(values.shape)
        values = values.reshape(dst.shape)
    fresh = core.write(name, dst, values, state=SUMMED)
    _spoil_product(name, dst, (stationary, moving), states, before)
    n = moving._elements
    core.note(
        "Tensor",
        name,
        dst,
        (stationary, moving, stationary_scale, moving_scale),
        work=max(64, n),
        elements=n,
        fresh=fresh,
        summed=adds,
    )


def quantize_mx(dst: View, src: View, dst_scale: View) -> None:
    """float16 or bfloat16 → float8 with a scale for each 32 numbers, on NeuronCore-v4."""
    name = "quantize_mx"
    _needs(name, 4)
    core = machine()
    element = dtypes.QUADS.get(dst.dtype)
    if core.limits and (element not in dtypes.EIGHTS or src.dtype not in dtypes.HALVES):
        refuse(
            f"{name}: {src} into {dst}; accepted: float16 or bfloat16 into float8_e4m3fn_x4 or "
            "float8_e5m2_x4"
        )
    p, f = src.shape[0], src._elements
    if core.limits and (p % 32 or f % 4 or dst._elements * 4 != f or dst.shape[0] != p):
        refuse(f"{name}: {src} into {dst}; accepted: partitions by 32, and 4 elements into each")
    states = core.check_written(name, src)
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
    fresh = core.write(name, dst, values)
    loose = np.zeros((p // 8, f // 4), bool)
    if states is not None:
        loose |= np.any(is_undefined(states).reshape(p // 8, 8, f // 4, 4), axis=(1, 3))
        spread = np.repeat(loose, 8, axis=0).reshape(dst.shape)
        core.mark_undefined(name, dst, spread, (src,), (states,))
    for at, row in enumerate(_scale_rows(dst_scale, p)):
        part = dst_scale[row : row + 1]  # type: ignore[index]
        bits = None if codes is None else codes[at].view(dst_scale.dtype).reshape(part.shape)
        core.write(name, part, bits)
        core.mark_undefined(name, part, loose[at].reshape(part.shape), (src,), (states,))
    core.note("Vector", name, dst, (src,), work=f / 4, elements=f, fresh=fresh, also=(dst_scale,))


# --- searching, gathering, statistics ------------------------------------------------------------


def max8(dst: View, src: View) -> None:
    """The 8 largest numbers of each partition, from the largest on."""
    tiles("max8", dst=dst, src=src)
    core, n = machine(), src._elements
    if core.limits and not 8 <= n <= 16384:
        refuse(f"max8: {src}; accepted: 8 to 16384 elements a partition")
    if core.limits and dst._elements != 8:
        refuse(f"max8: dst {dst}; accepted: [{src.shape[0]}, 8]")

    def apply(values: np.ndarray) -> np.ndarray:
        flat = values.reshape(values.shape[0], -1)
        return -np.sort(-flat, axis=1)[:, :8].reshape(dst.shape)

    core.compute("Vector", "max8", apply, dst, src, work=n, shapes=False)


def _matches(
    data: np.ndarray, vals: np.ndarray, order: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """For each of 8 values the first place that no equal one has taken; −1 where there is none."""
    rows, flat = data.shape[0], data.reshape(data.shape[0], -1)
    wanted = vals.reshape(rows, 8)
    places = np.full((rows, 8), -1, np.int64)
    used = np.zeros(flat.shape, bool)
    for i in order:
        free = (flat == wanted[:, i : i + 1]) & ~used
        found = free.any(axis=1)
        at = free.argmax(axis=1)
        places[found, i] = at[found]
        used[np.flatnonzero(found), at[found]] = True
    return places, used


def nc_find_index8(dst: View, data: View, vals: View) -> None:
    """Where each of 8 numbers stands in its partition."""
    name = "nc_find_index8"
    tiles(name, dst=dst, data=data, vals=vals)
    core, n = machine(), data._elements
    if core.limits:
        if not 8 <= n <= 16384 or vals._elements != 8 or dst._elements != 8:
            refuse(f"{name}: {data}, {vals}, dst {dst}; accepted: 8 to 16384 elements, and 8 and 8")
        if dst.dtype not in (dtypes.uint16, dtypes.uint32):
            refuse(f"{name}: dst {dst} is {dst.dtype}; accepted: uint16 and uint32")

    def apply(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        places, _ = _matches(values, wanted, range(8))
        missing = np.iinfo(dst.dtype).max
        return np.where(places < 0, missing, places).reshape(dst.shape)

    core.compute("Vector", name, apply, dst, data, vals, work=n, shapes=False)


def nc_match_replace8(
    dst: View, data: View, vals: View, imm: float, dst_idx: View | None = None
) -> None:
    """data with the first place of each of 8 numbers replaced."""
    name = "nc_match_replace8"
    tiles(name, dst=dst, data=data, vals=vals)
    core = machine()
    found: list[np.ndarray] = []

    def apply(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        places, used = _matches(values, wanted, range(7, -1, -1))
        found.append(places)
        flat = values.reshape(values.shape[0], -1)
        return np.where(used, np.float32(imm), flat).reshape(dst.shape)

    core.compute("Vector", name, apply, dst, data, vals, work=data._elements, shapes=False)
    if dst_idx is not None:
        values = None
        if found:
            values = np.where(found[0] < 0, np.iinfo(dst_idx.dtype).max, found[0])
        core.write(name, dst_idx, values)


def nc_stream_shuffle(dst: View, src: View, mask: Sequence[int]) -> None:
    """Partitions of each 32 exchanged as the mask says; 255 leaves one as it is."""
    name = "nc_stream_shuffle"
    tiles(name, dst=dst, src=src)
    lanes = [int(m) for m in mask]
    if len(lanes) != 32 or any(not (0 <= m < 32 or m == 255) for m in lanes):
        refuse(f"{name}: shuffle_mask is {list(mask)}; accepted: 32 numbers of 0 to 31, or 255")
    core = machine()
    if core.limits:
        if dst.dtype != src.dtype or dst._elements != src._elements:
            refuse(f"{name}: {src} and dst {dst} differ in dtype or in elements")
        active = -(-max(dst.shape[0], src.shape[0]) // 32) * 32
        for operand in (dst, src):
            core.check_operand(name, "Vector", operand)
            if active > 64 and operand._start:
                refuse(
                    f"{name}: {operand} starts at partition {operand._start}; {active} start at 0"
                )
    states = core.check_written(name, src)
    rows = dst.shape[0]
    source = [32 * (r // 32) + lanes[r % 32] if lanes[r % 32] != 255 else None for r in range(rows)]
    for row, at in enumerate(source):
        if at is not None and at >= src.shape[0]:
            refuse(
                f"{name}: partition {row} takes partition {at} of {src}, which has {src.shape[0]}"
            )
    values = None
    if core.numbers:
        given = src._values().reshape(src.shape[0], -1)
        values = np.array(dst._values()).reshape(rows, -1)
        for row, at in enumerate(source):
            if at is not None:
                values[row] = given[at]
        values = values.reshape(dst.shape)
    loose = np.zeros((rows, dst._elements), bool)
    kept = [row for row, at in enumerate(source) if at is None]
    if kept and (before := core.check_written(name, dst)) is not None:
        loose[kept] = is_undefined(before).reshape(loose.shape)[kept]
    if states is not None:
        moved = [(row, at) for row, at in enumerate(source) if at is not None]
        given = is_undefined(states).reshape(src.shape[0], -1)
        for row, at in moved:
            loose[row] = given[at]
    fresh = core.write(name, dst, values)
    core.mark_undefined(name, dst, loose.reshape(dst.shape), (src,), (states,))
    n = src._elements
    core.note("Vector", name, dst, (src,), work=n, elements=n, fresh=fresh)


def nc_n_gather(dst: View, data: View, indices: View) -> None:
    """dst = data[indices], in each partition for itself."""
    name = "nc_n_gather"
    tiles(name, dst=dst, data=data, indices=indices)
    core = machine()
    if core.limits:
        for operand in (dst, data, indices):
            if operand.buffer != SBUF:
                refuse(f"{name}: {operand}; the GpSimd engine reaches SBUF only")
        if indices.dtype != np.uint32 or dst.dtype != data.dtype:
            refuse(
                f"{name}: {indices} is {indices.dtype}, {data} {data.dtype}, dst {dst.dtype}; "
                "accepted: uint32, and one dtype"
            )
        if indices._elements != dst._elements:
            refuse(f"{name}: {indices._elements} indices for dst {dst}")
    n = data._elements

    def apply(values: np.ndarray, places: np.ndarray) -> np.ndarray:
        rows = values.shape[0]
        places = places.reshape(rows, -1).astype(np.int64)
        if (places >= n).any():
            refuse(
                f"{name}: index {int(places.max())} of {data} is out of bounds: a partition has {n}"
            )
        return np.take_along_axis(values.reshape(rows, -1), places, 1).reshape(dst.shape)

    core.compute(
        "GpSimd",
        name,
        apply,
        dst,
        data,
        indices,
        raw=True,
        work=dst._elements,
        extra=GPSIMD_START,
        shapes=False,
        chosen=(data,),
    )


def local_gather(
    dst: View,
    src_buffer: View,
    index: View,
    num_elem_per_idx: int = 1,
    num_valid_indices: Any = None,
) -> None:
    """Each GpSimd core gathers from its 16 partitions by the indices that they hold."""
    name = "local_gather"
    tiles(name, dst=dst, src_buffer=src_buffer, index=index)
    core = machine()
    rows = src_buffer.shape[0]
    if core.limits:
        if rows % 16 or index.shape[0] != rows:
            refuse(f"{name}: {src_buffer} and {index}; as many partitions, a multiple of 16")
        if num_elem_per_idx not in (1, 2, 4, 8, 16, 32):
            refuse(f"{name}: num_elem_per_idx is {num_elem_per_idx}; accepted: 1, 2, 4, 8, 16, 32")
        if index.dtype != np.uint16:
            refuse(f"{name}: {index} is {index.dtype}; accepted: uint16")
    each = index.size // (rows // 16)
    valid = each if num_valid_indices is None else int(num_valid_indices)

    def apply(values: np.ndarray, places: np.ndarray) -> np.ndarray:
        flat = values.reshape(rows, -1)
        found = np.array(dst._values()).reshape(rows, -1)
        for first in range(0, rows, 16):
            order = (
                places.reshape(rows, -1)[first : first + 16].T.reshape(-1)[:valid].astype(np.int64)
            )
            wanted = (order[:, None] + np.arange(num_elem_per_idx)).reshape(-1)
            if (wanted >= flat.shape[1]).any():
                refuse(f"{name}: index {int(wanted.max())} of {src_buffer} is out of bounds")
            found[first : first + 16, : wanted.size] = flat[first : first + 16, wanted]
        return found.reshape(dst.shape)

    work = valid * num_elem_per_idx
    core.compute(
        "GpSimd",
        name,
        apply,
        dst,
        src_buffer,
        index,
        raw=True,
        work=work,
        extra=GPSIMD_START,
        shapes=False,
        chosen=(src_buffer,),
    )


def topk(val_dst: View, idx_dst: View, src: View, n: int) -> None:
    """The k largest of n numbers and their places, in ascending order, for each 16 partitions: the
    numbers go down the partitions, column by column, and each of the 16 gets the result."""
    name = "topk"
    tiles(name, val_dst=val_dst, idx_dst=idx_dst, src=src)
    core, k, rows = machine(), val_dst._elements, src.shape[0]
    if core.limits:
        for operand in (val_dst, idx_dst, src):
            if operand.buffer != SBUF:
                refuse(f"{name}: {operand}; the GpSimd engine reaches SBUF only")
        if (val_dst.dtype, src.dtype, idx_dst.dtype) != (dtypes.bfloat16,) * 2 + (dtypes.uint32,):
            refuse(f"{name}: {src}, {val_dst}, {idx_dst}; accepted: bfloat16, bfloat16 and uint32")
        if not 8 <= n < 65536 or not 1 <= k <= min(n, 32767) or src._elements < -(-n // 16):
            refuse(f"{name}: {k} of n = {n} in {src}; accepted: 8 ≤ n < 65536, k ≤ n ≤ 16 columns")
        if rows % 16 or {val_dst.shape[0], idx_dst.shape[0]} != {rows} or idx_dst._elements != k:
            refuse(f"{name}: {src} into {val_dst} and {idx_dst}; as many partitions, by 16")
    core.check_written(name, src[:, 0 : n // 16] if n >= 16 else src[0:n], whole=True)  # type: ignore[index]
    values = places = None
    if core.numbers:
        snake = dtypes.wide(src._values()).reshape(rows // 16, 16, -1).transpose(0, 2, 1)
        numbers = snake.reshape(rows // 16, -1)[:, :n]
        order = np.argsort(numbers, axis=1, kind="stable")[:, n - k :]
        values = np.repeat(np.take_along_axis(numbers, order, 1), 16, axis=0)
        places = np.repeat(order, 16, axis=0)
    fresh = core.write(name, val_dst, values)
    core.write(name, idx_dst, places)
    core.note(
        "GpSimd", name, val_dst, (src,), work=4 * n + k, elements=n, fresh=fresh, also=(idx_dst,)
    )


def bn_stats(dst: View, data: View) -> None:
    """Count, mean and variance × count of the even elements, then of the odd ones."""
    tiles("bn_stats", dst=dst, data=data)
    core, n = machine(), data._elements
    if core.limits and (n > 512 or dst._elements != 6):
        refuse(f"bn_stats: {data} into {dst}; at most 512 elements a partition, into 6")

    def apply(values: np.ndarray) -> np.ndarray:
        flat, parts = values.reshape(values.shape[0], -1), []
        for half in (flat[:, 0::2], flat[:, 1::2]):
            count = half.shape[1]
            mean = half.mean(axis=1) if count else np.zeros(len(flat), np.float32)
            spread = ((half - mean[:, None]) ** 2).sum(axis=1)
            parts += [np.full(len(flat), count, np.float32), mean, spread]
        return np.stack(parts, 1).reshape(dst.shape)

    core.compute("Vector", "bn_stats", apply, dst, data, work=n, shapes=False)


def bn_aggr(dst: View, data: View) -> None:
    """Mean and variance from the triples of bn_stats."""
    tiles("bn_aggr", dst=dst, data=data)
    core, n = machine(), data._elements
    if core.limits and (n % 3 or dst._elements != 2):
        refuse(f"bn_aggr: {data} into {dst}; triples, into 2")

    def apply(values: np.ndarray) -> np.ndarray:
        count, mean, spread = np.moveaxis(values.reshape(values.shape[0], -1, 3), 2, 0)
        total = count.sum(1)
        middle = (count * mean).sum(1) / total
        variance = (spread + count * (mean - middle[:, None]) ** 2).sum(1) / total
        return np.stack([middle, variance], 1).reshape(dst.shape)

    core.compute("Vector", "bn_aggr", apply, dst, data, work=13 * n / 3, shapes=False)


def sequence_bounds(dst: View, segment_ids: View) -> None:
    """For each element where its segment starts and ends; 0 is padding."""
    name = "sequence_bounds"
    tiles(name, dst=dst, segment_ids=segment_ids)
    core, n = machine(), segment_ids._elements

    def apply(values: np.ndarray) -> np.ndarray:
        ids = values.reshape(-1)
        first, last = np.full(n, n, np.float32), np.full(n, -1, np.float32)
        for one in np.unique(ids[ids != 0]):
            places = np.flatnonzero(ids == one)
            first[places], last[places] = places[0], places[-1] + 1
        return np.stack([first, last]).reshape(dst.shape)

    core.compute("GpSimd", name, apply, dst, segment_ids, work=n, extra=GPSIMD_START, shapes=False)


def nonzero_with_count(dst: View, src: View, index_offset: int = 0, padding_val: int = -1) -> None:
    """Where each 16th partition is not zero, padded, and how often at the end."""
    name = "nonzero_with_count"
    _needs(name, 3)
    tiles(name, dst=dst, src=src)
    core, n = machine(), src._elements
    if core.limits and (dst._elements != n + 1 or dst.dtype != np.int32):
        refuse(f"{name}: {src} into {dst}; accepted: int32, one element more")
    states = core.check_written(name, src)
    for row in range(0, src.shape[0], 16):
        values = None
        if core.numbers:
            places = np.flatnonzero(src._values()[row].reshape(-1)) + index_offset
            values = np.full(n + 1, padding_val, np.int32)
            values[: places.size], values[-1] = places, places.size
        part = dst[row : row + 1]  # type: ignore[index]
        core.write(name, part, values)
        if states is not None:
            spoilt = np.full(part.shape, is_undefined(states[row]).any())
            core.mark_undefined(name, part, spoilt, (src,), (states,))
    core.note("GpSimd", name, dst, (src,), work=n, elements=n, extra=GPSIMD_START)


# --- registers -----------------------------------------------------------------------------------


def register_load(register: Register, src: View) -> None:
    """A number of memory into a register."""
    tiles("register_load", src=src)
    core = machine()
    if src.size != 1:
        refuse(f"register_load: {src}; accepted: a tensor of one element")
    if not core.numbers:
        raise NeedsNumbers("register_load")
    core.check_written("register_load", src, whole=True)
    core.read_from(src)
    register.value = int(src._values().reshape(-1)[0])


def register_store(dst: View, register: Register) -> None:
    """A register into memory."""
    tiles("register_store", dst=dst)
    if dst.size != 1:
        refuse(f"register_store: {dst}; accepted: a tensor of one element")
    machine().write("register_store", dst, np.full(dst.shape, register.number()))


__all__ = ["HBM", "Machine", "offsets"]
