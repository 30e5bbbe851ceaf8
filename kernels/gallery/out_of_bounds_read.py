"""A last step that reads, and writes, past the end of its buffer."""

import jax
from jax.experimental import pallas as pl

from kernels.gallery.bug import Bug
from kernels.workload import Workload

BUG = Bug(
    title="The last step reads past the end",
    operator="add_vectors",
    caught_by="simulate",
    says="Out-of-bounds read",
    cause="The interpreter moves a slice that sticks out back inside. It moves the read and the "
    "write alike, so the result is right. The hardware moves neither: it stops, or it quietly uses "
    "and overwrites what lies behind the buffer.",
    lesson="Let BlockSpec cut the array, or mask. A slice computed by hand is checked by nobody.",
    workloads=(Workload("uneven", {"n": 3000}),),
)


def kernel(x, y, *, interpret, repaired=False):
    """[n], [n] → [n], all of it in one buffer, walked in steps of 1024."""
    n = x.size

    def body(x_ref, y_ref, o_ref):
        here = slice(None) if repaired else pl.ds(pl.program_id(0) * 1024, 1024)
        o_ref[here] = x_ref[here] + y_ref[here]

    # Repaired, each step has a block of its own, and BlockSpec cuts the last one.
    part, whole = pl.BlockSpec((1024,), lambda i: (i,)), pl.BlockSpec((n,), lambda i: (0,))
    spec = part if repaired else whole
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(n, 1024),),
        in_specs=[spec, spec],
        out_specs=spec,
        interpret=interpret,
    )(x, y)
