"""A grid that is rounded down, so that the last elements have no program."""

import jax
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

BUG = Bug(
    title="The grid is rounded down",
    operator="add_vectors",
    caught_by="interpret",
    says="not finite",
    cause="n // 1024 programs leave the last n % 1024 elements to nobody.",
    lesson="Use pl.cdiv for grids, and test a length that the block does not divide.",
    workloads=(
        Workload("even", {"n": 4096}, why="1024 divides it"),
        Workload("uneven", {"n": 5000}),
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
        grid=(pl.cdiv(x.size, 1024) if repaired else x.size // 1024,),
        in_specs=[spec, spec],
        out_specs=spec,
        interpret=interpret,
    )(x, y)
