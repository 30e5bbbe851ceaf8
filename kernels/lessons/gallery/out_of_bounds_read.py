"""A last step that reads, and writes, past the end of its buffer."""

import jax
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.proof.workload import Workload

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
