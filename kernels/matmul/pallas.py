"""Matmul on a TPU: a grid of output blocks, and k cut into blocks where it is long."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.matmul.blocks import BlockSizes
from kernels.pallas import interprets


def _inside(block, axis, step, size):
    """Zero what lies beyond `size` along `axis`: a block that is cut short ends in garbage."""
    position = step * block.shape[axis] + jax.lax.broadcasted_iota(jnp.int32, block.shape, axis)
    # Selected in 32 bits: a v5e has no narrower vector arithmetic.
    wide = block.astype(jnp.int32 if block.dtype == jnp.int8 else jnp.float32)
    return jnp.where(position < size, wide, 0).astype(block.dtype)


def _kernel(x_ref, y_ref, z_ref, *scratch, k, activation, transpose_rhs, widen):
    # x_ref [bm, bk], y_ref [bk, bn] or [bn, bk], z_ref [bm, bn], acc_ref [bm, bn] where k is cut
    step, steps = pl.program_id(2), pl.num_programs(2)
    contract = 1 if transpose_rhs else 0
    x, y = x_ref[...], y_ref[...]
    if k % x.shape[1]:
        x, y = _inside(x, 1, step, k), _inside(y, contract, step, k)
    if widen:
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    product = jax.lax.dot_general(
        x,
        y,
        (((1,), (contract,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=_accumulator(x.dtype),
    )

    def write(z):
        z_ref[...] = (z if activation is None else activation(z)).astype(z_ref.dtype)

    if not scratch:
        write(product)
        return
    (acc_ref,) = scratch

    @pl.when(step == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += product

    @pl.when(step == steps - 1)
    def _():
        write(acc_ref[...])


def _accumulator(dtype):
    return jnp.int32 if dtype == jnp.int8 else jnp.float32


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _call(x, y, block, activation, transpose_rhs, interpret):
    (m, k), n = x.shape, y.shape[0 if transpose_rhs else 1]
    b = block or BlockSizes.default(m, k, n, x.dtype)
    b = b.fitted(m, k, n, x.dtype)
    grid = (pl.cdiv(m, b.bm), pl.cdiv(n, b.bn), pl.cdiv(k, b.bk))
    if transpose_rhs:
        y_spec = pl.BlockSpec((b.bn, b.bk), lambda i, j, step: (j, step))
    else:
        y_spec = pl.BlockSpec((b.bk, b.bn), lambda i, j, step: (step, j))
    accumulator = _accumulator(x.dtype)
    return pl.pallas_call(
        functools.partial(
            _kernel,
            k=k,
            activation=activation,
            transpose_rhs=transpose_rhs,
            # XLA's CPU backend lacks bfloat16 dots in some layouts. float32 holds every bfloat16
            # exactly, so an interpreted sum is the same.
            widen=interpret is True and x.dtype == jnp.bfloat16,
        ),
        out_shape=jax.ShapeDtypeStruct((m, n), accumulator if x.dtype == jnp.int8 else x.dtype),
        grid=grid,
        in_specs=[pl.BlockSpec((b.bm, b.bk), lambda i, j, step: (i, step)), y_spec],
        out_specs=pl.BlockSpec((b.bm, b.bn), lambda i, j, step: (i, j)),
        scratch_shapes=[pltpu.VMEM((b.bm, b.bn), accumulator)] if grid[2] > 1 else [],
        # Only k adds to what came before; i and j may run anywhere, in any order.
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
        name="matmul",
    )(x, y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def _differentiable(x, y, block, activation, transpose_rhs, interpret):
    return _call(x, y, block, activation, transpose_rhs, interpret)


def _forward(x, y, block, activation, transpose_rhs, interpret):
    return _call(x, y, block, activation, transpose_rhs, interpret), (x, y)


def _backward(block, activation, transpose_rhs, interpret, saved, dz):
    """dx = dz yᵀ and dy = xᵀ dz, after dz has gone back through the activation."""
    x, y = saved
    if activation is not None:
        # The sums were not kept: multiplying again is cheaper than a [m, n] float32 array.
        sums = _call(x, y, block, None, transpose_rhs, interpret)
        dz = jax.vjp(activation, sums.astype(jnp.float32))[1](dz.astype(jnp.float32))[0]
        dz = dz.astype(x.dtype)
    dx = _call(dz, y, None, None, not transpose_rhs, interpret)
    left, right = (dz, x) if transpose_rhs else (x, dz)
    return dx, _call(left.T, right, None, None, False, interpret)


_differentiable.defvjp(_forward, _backward)


def matmul(x, y, *, block=None, activation=None, transpose_rhs=False, interpret=None):
    """[m, k], [k, n] → [m, n]; grid (m / bm, n / bn, k / bk), k innermost."""
    return _differentiable(
        jnp.asarray(x),
        jnp.asarray(y),
        block,
        activation,
        transpose_rhs,
        interprets(interpret, "tpu"),
    )
