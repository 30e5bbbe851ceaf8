"""Kernels and shapes that several files of tests make."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ANY = pl.BlockSpec(memory_space=pl.ANY)


def shape(*sizes, dtype=jnp.bfloat16):
    """An array that is not there."""
    return jax.ShapeDtypeStruct(sizes, dtype)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def blockwise(sizes, block, dtype=jnp.float32, body=copy, **options):
    """A kernel with blocks of rows, and the argument that it takes."""
    spec = pl.BlockSpec(block, lambda i: (i, 0))
    array = shape(*sizes, dtype=dtype)
    options |= {"grid": (sizes[0] // block[0],), "in_specs": [spec], "out_specs": spec}
    return pl.pallas_call(body, out_shape=array, **options), array


def chosen_rows(body=lambda s, x, o: copy(x, o), index=lambda i, s: (s[i], 0), rows=64, wide=128):
    """A kernel (scalars, x, o) on eight blocks of rows that prefetched scalars may choose."""
    block = (rows // 8, wide)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(8,),
        in_specs=[pl.BlockSpec(block, index)],
        out_specs=pl.BlockSpec(block, lambda i, s: (i, 0)),
    )
    return pl.pallas_call(body, grid_spec=spec, out_shape=shape(rows, wide, dtype=jnp.float32))


def products(n, block):
    """A matmul through the grid, and the same through emit_pipeline."""
    steps = n // block
    left = pl.BlockSpec((block, block), lambda i, j, k: (i, k))
    right = pl.BlockSpec((block, block), lambda i, j, k: (k, j))
    out = pl.BlockSpec((block, block), lambda i, j, k: (i, j))
    grid = (steps, steps, steps)

    def add(x, y, o, total):
        @pl.when(pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == steps - 1)
        def _():
            o[...] = total[...].astype(o.dtype)

    def piped(x, y, o, total):
        body = lambda x, y, o: add(x, y, o, total)
        pltpu.emit_pipeline(body, grid=grid, in_specs=[left, right], out_specs=[out])(x, y, o)

    scratch = [pltpu.VMEM((block, block), jnp.float32)]
    common = {"out_shape": shape(n, n), "scratch_shapes": scratch}
    by_grid = pl.pallas_call(add, grid=grid, in_specs=[left, right], out_specs=out, **common)
    return by_grid, pl.pallas_call(piped, in_specs=[ANY, ANY], out_specs=ANY, **common)
