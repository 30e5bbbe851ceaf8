"""Non-maximum suppression in which a dropped box goes on dropping others."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from kernels.lessons.gallery.bug import Bug
from kernels.nms.overlap import by_score, in_input_order, overlaps
from kernels.proof.workload import Workload

HALF = {"iou_threshold": 0.5}

BUG = Bug(
    title="A box that was dropped drops another",
    operator="nms",
    caught_by="interpret",
    says="the reference True",
    cause="A matrix tells who overlaps a better box. Whether that one was kept is not in it.",
    lesson="Boxes that do not overlap, and boxes that all do, never show it. Test with a chain.",
    workloads=(
        Workload("identical", {"n": 128}, values="identical", options=HALF),
        Workload("chain", {"n": 128}, values="chain", options=HALF),
    ),
)


def kernel(boxes, scores, *, iou_threshold, interpret, repaired=False):
    """[n, 4], [n] → bool [n], for one block: n is 128."""
    n = len(scores)
    order, sides = by_score(jnp.asarray(boxes), jnp.asarray(scores))

    def body(columns_ref, rows_ref, keep_ref):
        columns = [columns_ref[:, i : i + 1] for i in range(5)]
        rows = [rows_ref[i : i + 1] for i in range(5)]
        j, i = (lax.broadcasted_iota(jnp.int32, (n, n), axis) for axis in (0, 1))
        drops = jnp.where(overlaps(columns, rows, iou_threshold) & (j < i), 1.0, 0.0)
        everyone = jnp.ones((1, n), jnp.float32)

        def visit(_, keep):
            # Asked once, all boxes drop; asked n times, only those that are kept.
            dropped_by = jnp.dot(keep, drops, preferred_element_type=jnp.float32)
            return jnp.where(dropped_by > 0, 0.0, 1.0)

        keep_ref[...] = lax.fori_loop(0, n if repaired else 1, visit, everyone)

    table = jnp.stack(sides)
    keep = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((1, n), jnp.float32),
        interpret=interpret,
    )(table.T, table)
    return in_input_order(order, keep[0] > 0)
