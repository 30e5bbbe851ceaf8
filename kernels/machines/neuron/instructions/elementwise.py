"""An element at a time: what the Vector, the Scalar and the GpSimd engine compute with."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions.common import (
    GPSIMD,
    IDLE,
    REDUCERS,
    RESET_REDUCE,
    SCALAR,
    UNKNOWN,
    VECTOR,
    column,
    constant,
    halves,
    not_both_in_psum,
    on,
    packed_in_row,
    reduce_last,
    tiles,
    typed,
)
from kernels.machines.neuron.machine import machine
from kernels.machines.neuron.memory import ON_CHIP, PSUM, SBUF, WRITTEN, View
from kernels.machines.neuron.operations import (
    ARITHMETIC,
    TABLE,
    MathOperation,
    activation_function,
    binary,
    resolve,
)


def memset(dst, value, engine=UNKNOWN, name=None, *, what: str = "memset") -> None:
    """Fill a tile with a constant."""
    tiles(what, dst=dst)
    number = constant(what, "value", value)
    where = on(what, engine, "Vector", "GpSimd")
    core = machine()
    if core.limits and dst._storage.buffer in ON_CHIP:
        core.check_operand(what, where, dst)
    if dtypes.is_packed(dst.dtype) and value != 0:
        refuse(f"{what}: {dst} holds four numbers in an element; accepted: 0")
    n = dst._elements
    if not core.numbers:
        values = None
    elif dtypes.is_packed(dst.dtype):
        values = np.zeros(dst.shape, dst.dtype)
    elif isinstance(value, (int, np.integer)) and dtypes.is_integer(dst.dtype):
        values = np.full(dst.shape, value, np.int64)
    else:
        values = np.full(dst.shape, number)
    fresh = core.write(what, dst, values)
    cheap = number == 0 and dst.dtype in dtypes.HALVES
    core.note(where, what, dst, (), work=n / 2 if cheap else n, elements=n, fresh=fresh)


def tensor_copy(
    dst, src, engine=UNKNOWN, name=None, dtype=None, *, what: str = "tensor_copy"
) -> None:
    """Copy on the chip, as from PSUM to SBUF: bits between equal dtypes, else by way of float32."""
    tiles(what, dst=dst, src=src)
    core = machine()
    if core.limits and engine == SCALAR and core.chip.generation == 2:
        refuse(
            f"{what} is not supported on the Scalar engine of NeuronCore-v2; write "
            "nisa.activation(dst, op=nl.copy, data=src)"
        )
    where = on(what, engine, "Vector", "Scalar", "GpSimd")
    same = src.dtype == dst.dtype
    fast = 1
    if halves(dst, src):
        psum = PSUM in (dst.buffer, src.buffer)
        together = packed_in_row(dst, src)
        fast = 4 if together and not psum else 2 if together or psum else 1
    core.compute(where, what, lambda x: x, dst, src, raw=same, work=src._elements, fast=fast)


def tensor_copy_predicated(dst, src, predicate, reverse_pred: bool = False, name=None) -> None:
    """dst = src where predicate is not zero; elsewhere it stays."""
    what = "tensor_copy_predicated"
    tiles(what, dst=dst, predicate=predicate)
    core = machine()
    typed(what, predicate, dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.bool_)
    if isinstance(src, View):
        typed(what, src, dst.dtype)
        not_both_in_psum(what, src, predicate)
    sources = (predicate, src) if isinstance(src, View) else (predicate,)
    n = dst._elements
    if not core.numbers:
        core.compute("Vector", what, lambda *_: dst._data, dst, *sources, work=2 * n)
        return
    old = np.array(dst._values())
    before = np.array(np.broadcast_to(dst._states(), dst.shape))
    kept = np.zeros(dst.shape, bool)

    def chosen(condition: np.ndarray, *values: np.ndarray) -> np.ndarray:
        kept[...] = (condition != 0) == reverse_pred
        new = values[0] if values else dtypes.narrow(np.asarray(src, np.float32), dst.dtype)
        return np.where(kept, old, new)

    psum = PSUM in (predicate.buffer, getattr(src, "buffer", SBUF))
    work = n if psum else 2 * n
    core.compute("Vector", what, chosen, dst, *sources, raw=True, work=work, chosen=sources[1:])
    if kept.any() and (before != WRITTEN).any():
        dst._change(kept, before[kept])


def select_reduce(
    dst,
    predicate,
    on_true,
    on_false,
    reduce_res=None,
    reduce_cmd=IDLE,
    reduce_op=TABLE["maximum"],
    reverse_pred: bool = False,
    name=None,
) -> None:
    """dst = on_true where predicate is not zero, else on_false; and the largest of each row."""
    what = "select_reduce"
    tiles(what, dst=dst, predicate=predicate, on_true=on_true)
    not_both_in_psum(what, on_true, predicate)
    columns = (column(what, "on_false", on_false),)

    def apply(condition: np.ndarray, values: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.where((condition != 0) != reverse_pred, values, other)

    numbers = machine().compute(
        "Vector", what, apply, dst, predicate, on_true, columns=columns, chosen=(on_true, *columns)
    )
    reduce_last("Vector", dst, numbers, TABLE["maximum"], reduce_res, reduce_cmd)


def dropout(dst, data, prob, name=None) -> None:
    """Zeros in place of some elements, at random: not the hardware's numbers, but as many."""
    tiles("dropout", dst=dst, data=data)
    rate, rng = column("dropout", "prob", prob), machine().rng

    def apply(values: np.ndarray, share: np.ndarray) -> np.ndarray:
        return np.where(rng.random(values.shape) < share, np.float32(0), values)

    machine().compute("Vector", "dropout", apply, dst, data, columns=[rate])


def tensor_tensor(
    dst, data1, data2, op, engine=UNKNOWN, name=None, *, what: str = "tensor_tensor"
) -> None:
    """dst = data1 op data2."""
    tiles(what, dst=dst, data1=data1, data2=data2)
    operation = binary(what, op)
    not_both_in_psum(what, data1, data2)
    core = machine()
    n = dst._elements
    sums = operation.name if operation.reduces and _same(dst, data1, data2) else ""
    operands = (dst, data1, data2)
    integers = all(o.dtype in (dtypes.int32, dtypes.uint32) for o in operands)
    psum = PSUM in (dst.buffer, data1.buffer, data2.buffer)
    if integers and not psum and engine in (None, UNKNOWN, GPSIMD):
        # The GpSimd cores compute with whole numbers, and wrap around.
        def exact(*numbers: np.ndarray) -> np.ndarray:
            result = operation.function(*[number.astype(np.int64) for number in numbers])
            return result.astype(np.int64).astype(dst.dtype)

        core.compute("GpSimd", what, exact, *operands, raw=True, op=sums)
        return
    where = on(what, engine, "Vector", "GpSimd")
    quick = all(o.dtype == dtypes.bfloat16 for o in operands) and packed_in_row(data1, data2)
    cheap = operation.name in ("add", "multiply", "subtract") and quick and not psum
    one_each = (PSUM in (data1.buffer, data2.buffer)) or (
        data1._storage.streamed != data2._storage.streamed
    )
    work = n if cheap or one_each else 2 * n
    fast = 2 if work == 2 * n and halves(*operands) and data1.buffer == data2.buffer == SBUF else 1
    core.compute(
        where,
        what,
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


def tensor_scalar(
    dst,
    data,
    op0,
    operand0,
    reverse0: bool = False,
    op1=None,
    operand1=None,
    reverse1: bool = False,
    engine=UNKNOWN,
    name=None,
    *,
    what: str = "tensor_scalar",
) -> None:
    """dst = (data op0 operand0) op1 operand1; operands are numbers, or float32 [partitions, 1]."""
    second = [] if op1 is None else [(op1, operand1, reverse1)]
    _in_steps(what, dst, data, [(op0, operand0, reverse0), *second], engine)


def tensor_scalar_reduce(
    dst,
    data,
    op0,
    operand0,
    reduce_op,
    reduce_res=None,
    reverse0: bool = False,
    reduce_cmd=RESET_REDUCE,
    reduce_init=None,
    reduce_res_negate: bool = False,
    name=None,
) -> None:
    """dst = data op0 operand0, and a reduction of it into an accumulator."""
    what = "tensor_scalar_reduce"
    reducing = resolve(what, reduce_op)
    if reducing.name not in REDUCERS:
        refuse(f"{what}: reduce_op is {reducing!r}; accepted: nl.add, multiply, max and min")
    numbers = _in_steps(what, dst, data, [(op0, operand0, reverse0)], VECTOR)
    reduce_last(
        "Vector", dst, numbers, reducing, reduce_res, reduce_cmd, reduce_init, reduce_res_negate
    )


_ON_SCALAR = (("multiply", "add"), ("multiply",), ("add",))  # of NeuronCore-v3


def _in_steps(
    what: str, dst: View, data: View, steps: Sequence[tuple[Any, Any, bool]], engine
) -> np.ndarray | None:
    """dst = data, changed by one or two steps of (op, operand, reverse); the numbers."""
    tiles(what, dst=dst, data=data)
    operations = [resolve(what, op) for op, _, _ in steps]
    for operation in operations:
        if operation.kind != ARITHMETIC:
            refuse(
                f"{what}: {operation!r} is a function of the Scalar engine; write nisa.activation"
            )
    core = machine()
    columns = []
    for (_, operand, _), operation in zip(steps, operations):
        if operation.inputs == 1 and operand not in (None, 0, 0.0):
            refuse(f"{what}: {operation!r} takes 1 operands, and operand is {operand!r}")
        number = 0.0 if operation.inputs == 1 else operand
        columns.append(column(what, "operand", number, float32=True))

    def apply(values: np.ndarray, *others: np.ndarray) -> np.ndarray:
        for (_, _, reverse), operation, other in zip(steps, operations, others):
            pair = (other, values) if reverse else (values, other)
            values = operation.function(*(pair if operation.inputs == 2 else (values,)))
        return values

    if any(operation.name == "rsqrt" for operation in operations) and engine != VECTOR:
        where = on(what, engine, "GpSimd", "Vector")
    else:
        where = on(what, engine, "Vector", "Scalar", "GpSimd")
    if where == "Scalar" and core.limits:
        kinds = tuple(operation.name for operation in operations)
        if core.chip.generation == 3 and kinds not in _ON_SCALAR:
            refuse(
                f"{what}: {', '.join(map(repr, operations))} on the Scalar engine of "
                f"{core.chip.name}; accepted: multiply and add, multiply, add"
            )
    fast = 1
    if halves(dst, data):
        fast = 4 if packed_in_row(dst, data) and PSUM not in (dst.buffer, data.buffer) else 2
    sums = ""
    if len(steps) == 1 and operations[0].reduces and not steps[0][2] and _same(dst, data):
        sums = operations[0].name
    return core.compute(
        where,
        what,
        apply,
        dst,
        data,
        columns=columns,
        work=data._elements,
        fast=fast,
        op=sums,
        # beta 1's compiler selects the best engine
        either=core.beta1 and engine in (None, UNKNOWN) and where == "Vector",
    )


def scalar_tensor_tensor(
    dst,
    data,
    op0,
    operand0,
    op1,
    operand1,
    reverse0: bool = False,
    reverse1: bool = False,
    name=None,
) -> None:
    """dst = (data op0 operand0) op1 operand1; operand0 is a number or [partitions, 1]."""
    what = "scalar_tensor_tensor"
    tiles(what, dst=dst, data=data, operand1=operand1)
    first, second = binary(what, op0), binary(what, op1)
    not_both_in_psum(what, data, operand1)
    columns = (column(what, "operand0", operand0),)

    def apply(values: np.ndarray, tile: np.ndarray, other: np.ndarray) -> np.ndarray:
        values = first.function(other, values) if reverse0 else first.function(values, other)
        return second.function(tile, values) if reverse1 else second.function(values, tile)

    n = data._elements
    half = all(t.dtype == dtypes.bfloat16 for t in (data, operand1)) and n % 2 == 0
    cheap = half and (first.name, second.name) == ("subtract", "multiply")
    machine().compute(
        "Vector", what, apply, dst, data, operand1, columns=columns, work=n if cheap else 2 * n
    )


def reciprocal(dst, data, name=None) -> None:
    """dst = 1 / data, on the Vector engine: eight cycles an element."""
    tiles("reciprocal", dst=dst, data=data)
    machine().compute(
        "Vector", "reciprocal", lambda x: np.float32(1) / x, dst, data, work=8 * data._elements
    )


def activation(
    dst,
    op,
    data,
    bias=None,
    scale=1.0,
    reduce_op=None,
    reduce_res=None,
    reduce_cmd=IDLE,
    name=None,
    *,
    what: str = "activation",
) -> None:
    """dst = op(data scale + bias), on the Scalar engine, and a sum of it where asked for. scale and
    bias are numbers or tiles [partitions, 1]; a number as bias needs NeuronCore-v3."""
    tiles(what, dst=dst, data=data)
    operation = activation_function(what, op)
    core = machine()
    limits = core.limits
    columns = (
        column(what, "scale", scale, float32=True),
        column(what, "bias", 0.0 if bias is None else bias),
    )
    numbered = [None if isinstance(one, View) else float(one) for one in columns]
    if limits and isinstance(bias, View) and dtypes.is_integer(bias.dtype):
        refuse(f"{what}: bias {bias} is {bias.dtype}; accepted: float32, float16 and bfloat16")
    if limits and numbered[1] and core.chip.generation == 2 and not core.beta1:
        refuse(
            f"{what}: bias is the number {bias}, which needs NeuronCore-v3 (trn2); accepted on "
            f"{core.chip.name}: a tile [{data.shape[0]}, 1]"
        )
    reducing = resolve(what, TABLE["add"] if reduce_op is None else reduce_op)
    if reducing.name != "add":
        refuse(f"{what}: reduce_op is {reduce_op!r}; accepted: nl.add")

    def apply(values: np.ndarray, factor: np.ndarray, shift: np.ndarray) -> np.ndarray:
        if numbered[0] != 1:
            values = values * factor
        if bias is not None:
            values = values + shift
        if limits and operation.limits is not None:
            _in_range(what, operation, values)
        return operation.function(values)

    reduces = reduce_res is not None or reduce_cmd != IDLE
    numbers = core.compute(
        "Scalar",
        what,
        apply,
        dst,
        data,
        columns=columns,
        work=data._elements,
        detail=None if reduces else (operation.name, *numbered),
    )
    if reduces and reduce_cmd == IDLE and reduce_op is not None:
        reduce_cmd = RESET_REDUCE
    reduce_last("Scalar", dst, numbers, reducing, reduce_res, reduce_cmd)


def activation_reduce(
    dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None
) -> None:
    """dst = op(data scale + bias), and its sum in reduce_res."""
    what = "activation_reduce"
    activation(dst, op, data, bias, scale, reduce_op, reduce_res, RESET_REDUCE, what=what)


def _in_range(what: str, operation: MathOperation, values: np.ndarray) -> None:
    assert operation.limits is not None
    low, high = operation.limits
    outside = np.isfinite(values) & ((values < low) | (values > high))
    if operation.name in ("sqrt", "rsqrt"):
        outside &= values != 0
    if outside.any():
        worst = float(values[outside][0])
        refuse(
            f"{what}: {int(outside.sum())} numbers, {worst:.6g} among them, are out of the range "
            f"in which the Scalar engine knows {operation!r}: {low:.6g} to {high:.6g}"
        )
