"""add_vectors and iota for a GPU: Pallas, lowered through its Triton backend."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from kernels.machines.pallas import interprets
from kernels.vector.pallas import counted, differentiable

BLOCK = 1024  # elements a program; Triton wants a power of two


def _add_vectors_kernel(x_ref, y_ref, o_ref):  # each [n], in global memory
    start = pl.program_id(0) * BLOCK
    here = pl.ds(start, BLOCK)
    inside = start + jnp.arange(BLOCK) < x_ref.shape[0]
    x = pltriton.load(x_ref.at[here], mask=inside, other=0)
    y = pltriton.load(y_ref.at[here], mask=inside, other=0)
    pltriton.store(o_ref.at[here], x + y, mask=inside)


@differentiable
@functools.partial(jax.jit, static_argnums=2)
def _add_vectors(x, y, interpret):
    return pl.pallas_call(
        _add_vectors_kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.size, BLOCK),),
        compiler_params=pltriton.CompilerParams(),
        interpret=interpret,
        name="add_vectors",
    )(x, y)


def add_vectors(x, y, *, interpret=None):
    """[n], [n] → [n]; one program for each BLOCK elements, the last one masked."""
    return _add_vectors(jnp.asarray(x), jnp.asarray(y), interprets(interpret, "gpu"))


def iota(n, *, interpret=None):
    """→ int32 [n]; one program for each number, in any order, into global memory."""
    return counted(int(n), interprets(interpret, "gpu"), None, pltriton.CompilerParams())
