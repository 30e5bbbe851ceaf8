"""Wrong kernels on vectors, in Pallas for a TPU: sums of two, and numbers in order."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import bug, family
from kernels.proof.workload import cases


def in_blocks(x, y, *, interpret, fault):
    """[n], [n] → [n], n at least 1024. Right when repaired; else it has the fault of that name."""
    wrong = {"short_grid": x.size // 1024, "one_program_too_many": x.size // 1024 + 1}

    def body(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    spec = pl.BlockSpec((1024,), lambda i: (i,))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(wrong[fault] if fault else pl.cdiv(x.size, 1024),),
        in_specs=[spec, spec],
        out_specs=spec,
        interpret=interpret,
    )(x, y)


_faulty = family(in_blocks)

short_grid = _faulty("short_grid", *cases("n", even=(4096, "1024 divides it"), uneven=5000))

one_program_too_many = _faulty(
    "one_program_too_many",
    *cases("n", uneven=(5000, "here the extra program is needed"), even=4096),
)


@bug(*cases("n", uneven=3000))
def out_of_bounds_read(x, y, *, interpret, repaired=False):
    """[n], [n] → [n], all of it in one buffer, walked in steps of 1024."""
    n = x.size

    def body(x_ref, y_ref, o_ref):
        here = pl.ds(pl.program_id(0) * 1024, 1024)
        o_ref[here] = x_ref[here] + y_ref[here]

    length = pl.cdiv(n, 1024) * 1024 if repaired else n  # a buffer as long as the steps
    whole = pl.BlockSpec((length,), lambda i: (0,))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(n, 1024),),
        in_specs=[whole, whole],
        out_specs=whole,
        interpret=interpret,
    )(x, y)


@bug(*cases("n", four_parts=4096))
def race_on_output(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of 1024."""

    def body(x_ref, y_ref, o_ref):
        here = slice(None) if repaired else pl.ds(pl.program_id(0) * 1024, 1024)
        o_ref[here] = x_ref[...] + y_ref[...]

    part = pl.BlockSpec((1024,), lambda i: (i,))
    whole = pl.BlockSpec(x.shape, lambda i: (0,))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.size // 1024,),
        in_specs=[part, part],
        out_specs=part if repaired else whole,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x, y)


@bug(*cases("n", one_tile=1024))
def unawaited_copy(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; y stays in HBM and is copied by hand."""

    def body(x_ref, y_hbm_ref, o_ref, y_ref, arrived):
        copy = pltpu.make_async_copy(y_hbm_ref, y_ref, arrived)
        copy.start()
        if repaired:
            copy.wait()
        o_ref[...] = x_ref[...] + y_ref[...]
        if not repaired:
            copy.wait()

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM(y.shape, y.dtype), pltpu.SemaphoreType.DMA],
        interpret=interpret,
    )(x, y)


@bug(*cases("n", both_divide=128_000))
def unaligned_slice(x, y, *, interpret, repaired=False):
    """[n], [n] → [n]; n a multiple of the step."""
    step = 1024 if repaired else 1000

    def body(x_ref, y_ref, o_ref):
        here = pl.ds(pl.program_id(0) * step, step)
        o_ref[here] = x_ref[here] + y_ref[here]

    whole = pl.BlockSpec(x.shape, lambda i: (0,))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.size // step,),
        in_specs=[whole, whole],
        out_specs=whole,
        interpret=interpret,
    )(x, y)


@bug(*cases("n", dtype="int32", one_register=1024))
def missing_operation(n, *, interpret, repaired=False):
    """→ int32 [n]; n a multiple of 128, at once."""

    def body(o_ref):
        if repaired:
            rows, lanes = (jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, d) for d in (0, 1))
            o_ref[...] = rows * 128 + lanes
        else:
            o_ref[...] = jnp.cumsum(jnp.ones(n, jnp.int32)).reshape(o_ref.shape) - 1

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n // 128, 128), jnp.int32),
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        interpret=interpret,
    )().reshape(n)


@bug(*cases("n", dtype="int32", one_register=1024))
def missing_dtype(n, *, interpret, repaired=False):
    """→ int32 [n]; n a multiple of 128, at most 2048, up to which float16 counts exactly."""
    dtype = jnp.float32 if repaired else jnp.float16

    def body(o_ref, numbers_ref):
        rows, lanes = (jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, d) for d in (0, 1))
        numbers_ref[...] = (rows * 128 + lanes).astype(dtype)
        o_ref[...] = (numbers_ref[...] + numbers_ref[...]).astype(jnp.int32) // 2

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n // 128, 128), jnp.int32),
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((n // 128, 128), dtype)],
        interpret=interpret,
    )().reshape(n)


@bug(*cases("n", dtype="int32", tiny=8))
def scalar_in_vmem(n, *, interpret, repaired=False):
    """→ int32 [n]."""

    def body(o_ref):
        i = pl.program_id(0)
        o_ref[i] = i

    space = pltpu.SMEM if repaired else pltpu.VMEM
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),
        grid=(n,),
        out_specs=pl.BlockSpec(memory_space=space),
        interpret=interpret,
    )()
