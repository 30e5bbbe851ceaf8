"""A kernel along rows: what has to be known of a whole row first, then the row's results.

One pass over HBM where a block holds whole rows. Where rows are longer, the grid walks over their
parts twice: the first time it merges what is known of the parts, the second time it writes.

    for each block of rows:                 for each block of rows:
        for each strip of a few rows:           for each part: known = merge(known, start(part))
            known = start(strip)                for each part: write finish(known, part)
            write finish(known, strip)
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.pallas import interprets
from kernels.machines.tpu import rows
from kernels.machines.tpu.plan import TpuPlan
from kernels.machines.tpu.rows import RowBlocks


@dataclass(frozen=True)
class RowKernel:
    """What a kernel computes; all in float32, [rows, columns] of a part of some rows."""

    name: str  # of the kernel
    known: int  # how many numbers a row has to be known by, each float32 [rows, 1]
    # (keep, count, *arrays, *vectors) → that many, of a part of `count` columns. keep(values,
    # other=0) puts `other` where a block goes beyond the array.
    start: Callable[..., tuple[Any, ...]]
    merge: Callable[..., tuple[Any, ...]]  # (known, known) → known, of two parts together
    # (known, *arrays, *vectors) → the results' values, then those to be added up over all rows.
    finish: Callable[..., tuple[Any, ...]]


def call(
    form: RowKernel,
    arrays: Sequence[Any],
    vectors: Sequence[Any],
    *,
    results: int,
    sums: int = 0,
    plan: TpuPlan[RowBlocks],
    interpret: Any,
) -> tuple[Any, ...]:
    """Run it.

    Args:
        form: what to compute.
        arrays: [rows, n], of one dtype.
        vectors: [n].
        results: how many [rows, n] in the arrays' dtype it gives.
        sums: how many float32 [n], added up over all rows.
        plan: for so many arrays and vectors.
        interpret: as pl.pallas_call takes it.

    Returns:
        The results, then the sums.
    """
    number, n = arrays[0].shape
    height, width = plan.block.rows, plan.block.columns
    blocks, parts = pl.cdiv(number, height), pl.cdiv(n, width)
    passes = 1 if parts == 1 else 2
    taken, vectors_taken = len(arrays), len(vectors)

    def kernel(*refs):
        inputs, refs = refs[: taken + vectors_taken], refs[taken + vectors_taken :]
        result_refs, refs = refs[:results], refs[results:]
        sum_refs, known_refs = refs[:sums], refs[sums:]
        i, turn, part = (pl.program_id(axis) for axis in range(3))

        def keep(values, other=0.0):
            if n % width == 0:
                return values
            column = part * width + jax.lax.broadcasted_iota(jnp.int32, values.shape, 1)
            return jnp.where(column < n, values, other)

        def loaded(here):
            strips = [ref[here, :].astype(jnp.float32) for ref in inputs[:taken]]
            return (*strips, *(ref[...].astype(jnp.float32) for ref in inputs[taken:]))

        def start(here):
            return form.start(keep, jnp.minimum(n - part * width, width), *loaded(here))

        def learn(first, size):
            here = pl.ds(first, size)
            new = start(here)
            both = form.merge(tuple(ref[here, :] for ref in known_refs), new)
            for ref, merged, alone in zip(known_refs, both, new, strict=True):
                ref[here, :] = jnp.where(part == 0, alone, merged)

        def write(first, size):
            here = pl.ds(first, size)
            known = start(here) if passes == 1 else tuple(ref[here, :] for ref in known_refs)
            values = form.finish(known, *loaded(here))
            for ref, value in zip(result_refs, values):
                ref[here, :] = value.astype(ref.dtype)
            for ref, value in zip(sum_refs, values[results:], strict=True):
                row = i * height + first + jax.lax.broadcasted_iota(jnp.int32, value.shape, 0)
                ref[...] += jnp.where(row < number, value, 0).sum(0, keepdims=True)

        def strips(work):
            size = plan.block.strip
            whole = height // size

            def body(strip, carry):
                work(pl.multiple_of(strip * size, size), size)
                return carry

            jax.lax.fori_loop(0, whole, body, None)
            if rest := height % size:
                work(whole * size, rest)

        def finish():
            for ref in sum_refs:
                ref[...] = jnp.zeros_like(ref)
            strips(write)

        if passes == 1:
            finish()
        else:
            pl.when(turn == 0)(lambda: strips(learn))
            pl.when(turn == 1)(finish)

    # Until there is something to write, the first block of the results waits in VMEM.
    writing = (lambda turn, part: part) if passes == 1 else (lambda turn, part: turn * part)
    block = pl.BlockSpec((height, width), lambda i, turn, part: (i, part))
    vector = pl.BlockSpec((1, width), lambda i, turn, part: (0, part))
    result = pl.BlockSpec((height, width), lambda i, turn, part: (i, writing(turn, part)))
    total = pl.BlockSpec((None, 1, width), lambda i, turn, part: (i, 0, writing(turn, part)))
    shape = jax.ShapeDtypeStruct
    one = arrays[0]
    outputs = pl.pallas_call(
        kernel,
        out_shape=[shape(one.shape, one.dtype)] * results
        + [shape((blocks, 1, n), jnp.float32)] * sums,
        grid=(blocks, passes, parts),
        in_specs=[block] * taken + [vector] * vectors_taken,
        out_specs=[result] * results + [total] * sums,
        scratch_shapes=[pltpu.VMEM((height, 1), jnp.float32)] * (form.known * (passes - 1)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary"),
            vmem_limit_bytes=plan.vmem_limit_bytes,
        ),
        cost_estimate=pl.CostEstimate(
            flops=8 * one.size,
            transcendentals=one.size,
            bytes_accessed=(passes * taken + results) * one.size * one.dtype.itemsize,
        ),
        interpret=interpret,
        name=form.name,
    )(*arrays, *(v[None] for v in vectors))
    return (*outputs[:results], *(total.sum((0, 1)) for total in outputs[results:]))


def along_rows(
    forms: Callable[..., tuple[RowKernel, RowKernel]],
    x: Any,
    *vectors: Any,
    block: RowBlocks | None,
    interpret: Any,
    **options: float,
) -> Any:
    """A differentiable function along the last axis of x, by two kernels.

    Args:
        forms: (n, **options) → forward, of x and the vectors, with one result; and backward, of x,
            dy and the first vector, with dx as its result and a sum for each vector's gradient.
        x, vectors: [..., n], and [n] each, of x's dtype; the result is as x.
        block: of the forward kernel; None lets it choose, as the backward one does.
        interpret: None interprets where there is no TPU.
    """
    x, *vectors_taken = map(jnp.asarray, (x, *vectors))
    flat = x.reshape(-1, x.shape[-1])
    plan = rows.plan(len(flat), x.shape[-1], x.dtype, 2, len(vectors), block=block)
    static = forms, tuple(options.items()), plan, interprets(interpret, "tpu")
    return _forward(*static, flat, *vectors_taken).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _forward(forms, options, plan, interpret, x, *vectors):
    forward, _ = forms(x.shape[1], **dict(options))
    return call(forward, [x], vectors, results=1, plan=plan, interpret=interpret)[0]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _backward(forms, options, plan, interpret, saved, dy):
    x, *vectors = saved
    _, backward = forms(x.shape[1], **dict(options))
    sums, vectors = len(vectors), vectors[:1]
    own = rows.plan(*x.shape, x.dtype, 3, len(vectors) + sums, chip=plan.chip)
    dx, *gradients = call(
        backward, [x, dy], vectors, results=1, sums=sums, plan=own, interpret=interpret
    )
    return dx, *(g.astype(x.dtype) for g in gradients)


_forward.defvjp(lambda *arguments: (_forward(*arguments), arguments[4:]), _backward)
