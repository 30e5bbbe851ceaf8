"""A grid with one program more than there are blocks."""

import jax
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The grid has one program too many",
    operator="add_vectors",
    caught_by="simulate",
    says="Out-of-bounds block index",
    cause="Where 1024 divides n, n // 1024 + 1 is one too many. The last program asks for a block "
    "past the end; the interpreter gives it the last one, and the right sums are made twice.",
    lesson="pl.cdiv(n, block) rounds up only when it must.",
    workloads=(
        Workload("uneven", {"n": 5000}, why="here the extra program is needed"),
        Workload("even", {"n": 4096}),
    ),
)


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n], n at least 1024."""

    def body(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    spec = pl.BlockSpec((1024,), lambda i: (i,))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.size, 1024) if repaired else x.size // 1024 + 1,),
        in_specs=[spec, spec],
        out_specs=spec,
        interpret=interpret,
    )(x, y)
