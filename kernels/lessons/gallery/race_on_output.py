"""Parallel programs that each hold the whole output and write a part of it."""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="Two cores write the same output block",
    operator="add_vectors",
    caught_by="simulate",
    says="race",
    cause="Every program writes its own part of one shared block. Each core has its own copy of "
    "that block, and the copy that is written back last wins, garbage included.",
    lesson='Along a "parallel" dimension, every program needs an output block of its own.',
    workloads=(Workload("four_parts", {"n": 4096}),),
)


def kernel(x, y, *, interpret, repaired=False):
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
