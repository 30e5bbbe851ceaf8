"""Along a partition: reductions, scans and statistics; and over the partitions."""

import math

import numpy as np

from kernels.machines.neuron import dtypes
from kernels.machines.neuron.errors import refuse
from kernels.machines.neuron.instructions.common import (
    IDENTITY,
    RESET_REDUCE,
    accumulators,
    begin,
    column,
    not_both_in_psum,
    on_gpsimd,
    sized,
    tiles,
)
from kernels.machines.neuron.machine import BEFORE, machine
from kernels.machines.neuron.memory import View
from kernels.machines.neuron.operations import binary, reduced, reduction, resolve


def reduce_axes(what: str, data: View, axis) -> tuple[int, ...]:
    """The axes of a reduction: the last ones, and not the partitions."""
    axes = sorted(
        a + data.ndim if a < 0 else int(a)
        for a in (axis if isinstance(axis, (tuple, list)) else [axis])
    )
    last = list(range(data.ndim - len(axes), data.ndim))
    if axes != last or 0 in axes:
        accepted = ", ".join(str(tuple(range(n, data.ndim))) for n in range(data.ndim - 1, 0, -1))
        refuse(f"{what}: axis is {axis} of {data}; accepted: {accepted}")
    return tuple(axes)


def tensor_reduce(
    dst,
    op,
    data,
    axis,
    negate: bool = False,
    keepdims: bool = False,
    name=None,
    *,
    what: str = "tensor_reduce",
) -> None:
    """dst = data reduced over its last axes, on the Vector engine."""
    tiles(what, dst=dst, data=data)
    operation = reduction(what, op)
    axes = reduce_axes(what, data, axis)
    left = math.prod(n for a, n in enumerate(data.shape) if a and a not in axes)
    sized(what, "dst", dst, data.shape[0], left)

    def apply(values: np.ndarray) -> np.ndarray:
        numbers = reduced(operation, values, axes)
        return (-numbers if negate else numbers).reshape(dst.shape)

    n = data._elements
    half = dst.dtype == data.dtype == dtypes.bfloat16 and operation.name in ("add", "maximum")
    passes_on = operation.name in ("add", "multiply", "maximum", "minimum")
    machine().compute(
        "Vector",
        what,
        apply,
        dst,
        data,
        work=n / 2 if half else n,
        shapes=False,
        chosen=(data,) if passes_on else (),
    )


def tensor_partition_reduce(dst, op, data, name=None) -> None:
    """dst = data reduced over its partitions, on the GpSimd engine."""
    what = "tensor_partition_reduce"
    tiles(what, dst=dst, data=data)
    operation = resolve(what, op)
    accepted = ("add", "maximum")
    if operation.name not in accepted:
        refuse(f"{what}: {operation!r}; accepted: {', '.join(accepted)}")
    sized(what, "dst", dst, 1, data._elements)

    def apply(values: np.ndarray) -> np.ndarray:
        ufunc = operation.function
        assert isinstance(ufunc, np.ufunc)
        return ufunc.reduce(values.reshape(values.shape[0], -1), axis=0).reshape(dst.shape)

    on_gpsimd(what, apply, dst, data, shapes=False)


def tensor_tensor_scan(
    dst, data0, data1, initial, op0, op1, reverse0: bool = False, reverse1: bool = False, name=None
) -> None:
    """dst[i] = (data0[i] op0 dst[i - 1]) op1 data1[i], along each partition."""
    what = "tensor_tensor_scan"
    tiles(what, dst=dst, data0=data0, data1=data1)
    first, second = binary(what, op0), binary(what, op1)
    not_both_in_psum(what, data0, data1)
    start = column(what, "initial", initial)

    def apply(a: np.ndarray, b: np.ndarray, before: np.ndarray) -> np.ndarray:
        rows = a.shape[0]
        a, b, state = a.reshape(rows, -1), b.reshape(rows, -1), np.reshape(before, -1)
        numbers = np.empty_like(a)
        for i in range(a.shape[1]):
            x = a[:, i]
            step = first.function(state, x) if reverse0 else first.function(x, state)
            state = second.function(b[:, i], step) if reverse1 else second.function(step, b[:, i])
            numbers[:, i] = state
        return numbers.reshape(dst.shape)

    n = data0._elements
    machine().compute(
        "Vector", what, apply, dst, data0, data1, columns=[start], work=2 * n, across=BEFORE
    )


def tensor_scalar_cumulative(
    dst, src, op0, op1, imm0, imm1=None, reduce_cmd=RESET_REDUCE, name=None
) -> None:
    """dst[i] = (src[i] op0 imm0) op1 dst[i - 1], along each partition."""
    what = "tensor_scalar_cumulative"
    tiles(what, dst=dst, src=src)
    first, second = binary(what, op0), binary(what, op1)
    if second.name not in IDENTITY:
        refuse(f"{what}: op1 is {second!r}; accepted: {', '.join(IDENTITY)}")
    sums, _ = accumulators("Vector", src)
    operand = column(what, "imm0", imm0, float32=True)
    begin(sums, reduce_cmd, second, "imm1", imm1)

    def apply(values: np.ndarray, other: np.ndarray) -> np.ndarray:
        flat = first.function(values.reshape(values.shape[0], -1), np.reshape(other, (-1, 1)))
        state, numbers = sums, np.empty_like(flat)
        for i in range(flat.shape[1]):
            state = second.function(flat[:, i], state)
            numbers[:, i] = state
        sums[:] = state
        return numbers.reshape(dst.shape)

    machine().compute("Vector", what, apply, dst, src, columns=[operand], across=True)


def bn_stats(dst, data, name=None) -> None:
    """Count, mean and variance × count of the even elements, then of the odd ones."""
    tiles("bn_stats", dst=dst, data=data)
    core, n = machine(), data._elements
    sized("bn_stats", "dst", dst, data.shape[0], 6)
    if core.limits and n > 512:
        refuse(f"bn_stats: {data}; accepted: at most 512 elements a partition")

    def apply(values: np.ndarray) -> np.ndarray:
        flat, parts = values.reshape(values.shape[0], -1), []
        for half in (flat[:, 0::2], flat[:, 1::2]):
            count = half.shape[1]
            mean = half.mean(axis=1) if count else np.zeros(len(flat), np.float32)
            spread = ((half - mean[:, None]) ** 2).sum(axis=1)
            parts += [np.full(len(flat), count, np.float32), mean, spread]
        return np.stack(parts, 1).reshape(dst.shape)

    core.compute("Vector", "bn_stats", apply, dst, data, work=n, shapes=False)


def bn_aggr(dst, data, name=None) -> None:
    """Mean and variance from the triples of bn_stats."""
    tiles("bn_aggr", dst=dst, data=data)
    core, n = machine(), data._elements
    sized("bn_aggr", "dst", dst, data.shape[0], 2)
    if core.limits and n % 3:
        refuse(f"bn_aggr: {data}; accepted: triples")

    def apply(values: np.ndarray) -> np.ndarray:
        count, mean, spread = np.moveaxis(values.reshape(values.shape[0], -1, 3), 2, 0)
        total = count.sum(1)
        middle = (count * mean).sum(1) / total
        variance = (spread + count * (mean - middle[:, None]) ** 2).sum(1) / total
        return np.stack([middle, variance], 1).reshape(dst.shape)

    core.compute("Vector", "bn_aggr", apply, dst, data, work=13 * n / 3, shapes=False)
