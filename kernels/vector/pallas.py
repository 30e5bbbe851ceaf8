"""add_vectors and iota for a TPU."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.checks import fail
from kernels.machines.pallas import interprets

BLOCK = 1 << 16  # elements; three double-buffered blocks of 4 bytes take 1.5 MiB of VMEM
SMEM_ELEMENTS = 1 << 17  # half of a v5e's 1 MiB of scalar memory, in int32


def differentiable(add):
    """Give `add(x, y, interpret)` its gradient: a sum hands the cotangent on to both terms."""

    with_gradient = jax.custom_vjp(add, nondiff_argnums=(2,))
    with_gradient.defvjp(
        lambda *arguments: (add(*arguments), None),  # nothing has to be remembered
        lambda interpret, _, cotangent: (cotangent, cotangent),
    )
    return with_gradient


def _add_vectors_kernel(x_ref, y_ref, o_ref):  # each [block], in VMEM
    o_ref[...] = x_ref[...] + y_ref[...]


@differentiable
@functools.partial(jax.jit, static_argnums=2)
def _add_vectors(x, y, interpret):
    block = min(BLOCK, x.size)  # a block as long as the vector may have any length
    spec = pl.BlockSpec((block,), lambda i: (i,))
    return pl.pallas_call(
        _add_vectors_kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.size, block),),
        in_specs=[spec, spec],
        out_specs=spec,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
        name="add_vectors",
    )(x, y)


def add_vectors(x, y, *, interpret=None):
    """[n], [n] → [n]; one program for each block of at most BLOCK elements."""
    return _add_vectors(jnp.asarray(x), jnp.asarray(y), interprets(interpret, "tpu"))


def _iota_kernel(o_ref):  # [n]
    i = pl.program_id(0)
    o_ref[i] = i


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def counted(n, interpret, memory_space=None, compiler_params=None):
    """→ int32 [n], which a program for each number writes to memory of this kind."""
    return pl.pallas_call(
        _iota_kernel,
        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),
        grid=(n,),
        out_specs=pl.BlockSpec(memory_space=memory_space),
        compiler_params=compiler_params,
        interpret=interpret,
        name="iota",
    )()


def iota(n, *, interpret=None):
    """→ int32 [n]; one program for each number, in order."""
    if n > SMEM_ELEMENTS:
        fail("n", n, f"at most {SMEM_ELEMENTS}, which fit into a TPU's scalar memory")
    # A single number is a scalar, and a TPU stores scalars in scalar memory only.
    return counted(int(n), interprets(interpret, "tpu"), pltpu.SMEM)
