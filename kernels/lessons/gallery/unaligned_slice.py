"""A slice that starts wherever the program's number puts it."""

import jax
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="A slice starts in the middle of a tile",
    operator="add_vectors",
    caught_by="compile",
    says="align",
    cause="A load reaches whole tiles. The compiler has to prove where one begins, and 1000 i is "
    "not always a multiple of 128.",
    lesson="Step by multiples of a tile, or let BlockSpec do the stepping.",
    workloads=(Workload("both_divide", {"n": 128_000}),),
    needs="libtpu",
)


def kernel(x, y, *, interpret, repaired=False):
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
