"""Matmul on a TPU, the last level: blocks by the tuner's records, and what a model wants around it.

Each program multiplies a block of rows by a block of columns. Where VMEM holds all of k, that is
one dot and nothing is carried; else k is cut, and the first and the last step spare a pass over the
accumulator. A function may be applied to x as it is read, another to the sums before they are
rounded.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines import checks
from kernels.machines.pallas import interprets
from kernels.machines.tpu.plan import TpuPlan
from kernels.machines.tpu.products import accumulator, product
from kernels.matmul import narrow
from kernels.matmul.blocks import BlockSizes, plan
from kernels.matmul.quantized import Dequantise
from kernels.matmul.xla import mask_tails, result_dtype


@dataclasses.dataclass(frozen=True)
class MatmulSpec:
    """Everything about a product but its operands; hashable, so that jit can key on it."""

    plan: TpuPlan[BlockSizes] | None = None  # its blocks, and the chip that they are for
    prologue: Callable | None = None  # elementwise, of x in float32
    # Of a block of sums and the blocks of the arrays that go with it.
    epilogue: Callable | None = None
    # Whether x and y are given transposed.
    transpose_lhs: bool = False
    transpose_rhs: bool = False
    out_dtype: str | None = None  # of the result; None is what `result_dtype` makes of that of x
    interpret: object = None  # as `pallas_call` takes it

    @property
    def contract(self):
        """The axis of x and the axis of y that are summed over."""
        return (0 if self.transpose_lhs else 1), (1 if self.transpose_rhs else 0)

    def sizes(self, x, y):
        """m, k and n of the product."""
        k_axis, y_axis = self.contract
        return x.shape[1 - k_axis], x.shape[k_axis], y.shape[1 - y_axis]

    def planned(self, x, y, block=None, chip=None):
        """This spec with a plan for these operands; ValueError for blocks that do not fit."""
        return dataclasses.replace(self, plan=plan(*self.sizes(x, y), x.dtype, block, chip=chip))


def tuned_kernel(x_ref, y_ref, z_ref, *scratch, k, spec, epilogue_operands=()):
    # x_ref [bm, bk], y_ref [bk, bn] or transposed; z_ref [bm, bn]; acc_ref [bm, bn] where k is cut;
    # epilogue_operands: (bm, 1) or (1, bn) of each further array
    step, last = pl.program_id(2), pl.num_programs(2) - 1

    def dot():
        x = x_ref[...]
        if spec.prologue is not None:
            x = spec.prologue(x.astype(jnp.float32)).astype(x.dtype)
        x, y = mask_tails(x, y_ref[...], step, k, spec.contract)
        return product(x, y, spec.contract, widen=spec.interpret is True)

    def write(z):
        if spec.epilogue is not None:
            z = spec.epilogue(z, *[ref[...] for ref in epilogue_operands])
        z_ref[...] = z.astype(z_ref.dtype)

    if not scratch:
        write(dot())
        return
    (acc_ref,) = scratch

    @pl.when(step == 0)
    def _():
        acc_ref[...] = dot()

    @pl.when((step > 0) & (step < last))
    def _():
        acc_ref[...] += dot()

    @pl.when(step == last)
    def _():
        write(acc_ref[...] + dot())


@functools.partial(jax.jit, static_argnums=0)
def tuned_call(spec, x, y, *arrays):
    """The product by a spec that has its plan.

    Args:
        spec: with its plan.
        x, y: the factors, [m, k] and [k, n], or transposed as the spec says.
        arrays: [m, 1] or [1, n] each, for the epilogue.
    """
    m, k, n = spec.sizes(x, y)
    bm, bk, bn = spec.plan.block.bm, spec.plan.block.bk, spec.plan.block.bn
    rows, columns, steps = pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)
    # Without steps, the outer operand stays in VMEM while the inner one passes.
    by_columns = steps == 1 and m * k * columns + k * n < m * k + k * n * rows
    grid = (columns, rows, steps) if by_columns else (rows, columns, steps)

    def place(index):
        """An index map of (i, j, step), whichever of i and j the grid has outside."""
        return (lambda j, i, s: index(i, j, s)) if by_columns else index

    def block_spec(shape, index, transposed):
        if transposed:
            return pl.BlockSpec(shape[::-1], place(lambda i, j, s: index(i, j, s)[::-1]))
        return pl.BlockSpec(shape, place(index))

    # Beside x and y: a column of m rows or a row of n columns, to go with each block of sums.
    further = [
        block_spec((bm, 1), lambda i, j, s: (i, 0), False)
        if array.shape == (m, 1)
        else block_spec((1, bn), lambda i, j, s: (0, j), False)
        for array in arrays
    ]
    out_dtype = jnp.dtype(spec.out_dtype or result_dtype(x.dtype))
    kernel = functools.partial(tuned_kernel, k=k, spec=spec)
    if arrays:

        def kernel(x_ref, y_ref, *refs):
            count = len(arrays)
            tuned_kernel(
                x_ref, y_ref, *refs[count:], k=k, spec=spec, epilogue_operands=refs[:count]
            )

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), out_dtype),
        grid=grid,
        in_specs=[
            block_spec((bm, bk), lambda i, j, s: (i, s), spec.transpose_lhs),
            block_spec((bk, bn), lambda i, j, s: (s, j), spec.transpose_rhs),
            *further,
        ],
        out_specs=block_spec((bm, bn), lambda i, j, s: (i, j), False),
        scratch_shapes=[pltpu.VMEM((bm, bn), accumulator(x.dtype))] if steps > 1 else [],
        compiler_params=pltpu.CompilerParams(
            # Only k adds to what came before; i and j may run anywhere, in any order.
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=spec.plan.vmem_limit_bytes,
        ),
        interpret=spec.interpret,
        name="matmul",
    )(x, y, *arrays)


def _backward(spec, saved, dz):
    """dx = dz yᵀ and dy = xᵀ dz, after dz has gone back through the epilogue."""
    x, y = saved
    checks.one_of("x.dtype, for a gradient,", str(x.dtype), ("float32", "bfloat16"))
    chip = spec.plan.chip
    again = MatmulSpec(interpret=spec.interpret)
    if spec.epilogue is not None:
        # The sums were not kept: multiplying again is cheaper than a [m, n] float32 array.
        sums = tuned_call(dataclasses.replace(spec, epilogue=None), x, y)
        dz = jax.vjp(spec.epilogue, sums.astype(jnp.float32))[1](dz.astype(jnp.float32))[0]
        dz = dz.astype(x.dtype)
    by_y = dataclasses.replace(again, transpose_rhs=not spec.transpose_rhs)
    dx = tuned_call(by_y.planned(dz, y, chip=chip), dz, y)
    read = x
    if spec.prologue is not None:
        read, back = jax.vjp(lambda x: spec.prologue(x.astype(jnp.float32)).astype(x.dtype), x)
        (dx,) = back(dx)
    left, right = (dz, read) if spec.transpose_rhs else (read, dz)
    by_x = dataclasses.replace(again, transpose_lhs=True)
    return dx, tuned_call(by_x.planned(left, right, chip=chip), left, right)


_differentiable = jax.custom_vjp(tuned_call, nondiff_argnums=(0,))
_differentiable.defvjp(lambda spec, x, y: (tuned_call(spec, x, y), (x, y)), _backward)


def matmul(
    x, y, *, block=None, prologue=None, activation=None, transpose_rhs=False, interpret=None
):
    """[m, k], [k, n] → [m, n]; grid (m / bm, n / bn, k / bk), k innermost."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    spec = MatmulSpec(
        prologue=prologue,
        epilogue=activation,
        transpose_rhs=transpose_rhs,
        interpret=interprets(interpret, "tpu"),
    )
    return _differentiable(spec.planned(x, y, block), x, y)


def quantized_matmul(
    x,
    y,
    x_scale,
    y_scale,
    bias,
    *,
    weights=None,
    block=None,
    activation=None,
    out_dtype,
    interpret=None,
):
    """int8 by int8 with the kernel above and the scales at its end; floats by narrow weights."""
    x, y, y_scale, bias = map(jnp.asarray, (x, y, y_scale, bias))
    interpret = interprets(interpret, "tpu")
    if x.dtype != jnp.int8:
        weights = weights or str(y.dtype)
        y_scale = y_scale.reshape(-1, y.shape[1])
        blocks = narrow.plan(*x.shape, y.shape[1], x.dtype, weights, block)
        static = weights, activation, out_dtype, blocks, interpret
        return narrow.narrow_matmul(x, y, y_scale, bias, *static)
    spec = MatmulSpec(epilogue=Dequantise(activation), out_dtype=out_dtype, interpret=interpret)
    epilogue_operands = (jnp.asarray(x_scale)[:, None], y_scale[None], bias[None])
    return tuned_call(spec.planned(x, y, block), x, y, *epilogue_operands)
