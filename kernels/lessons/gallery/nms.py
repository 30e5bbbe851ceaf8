"""Wrong non-maximum suppression in Pallas for a TPU."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import bug
from kernels.nms.xla import by_score, in_input_order, overlaps
from kernels.proof.workload import Workload

HALF = {"iou_threshold": 0.5}
BLOCK = 8


@bug(Workload("four_blocks", {"n": 32}, values="disjoint", options=HALF))
def parallel_suppression(boxes, scores, *, iou_threshold, interpret, repaired=False):
    """[n, 4], [n] → bool [n]; n is a multiple of 8. A step for 8 boxes, one after another."""
    n = len(scores)
    order, sides = by_score(jnp.asarray(boxes), jnp.asarray(scores))

    def body(columns_ref, rows_ref, keep_ref, dropped_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            dropped_ref[...] = jnp.zeros_like(dropped_ref)

        rows = [rows_ref[i : i + 1] for i in range(5)]
        rank = lax.broadcasted_iota(jnp.int32, (1, n), 1)
        dropped = dropped_ref[...]
        for i in range(BLOCK):
            here = rank == pl.program_id(0) * BLOCK + i
            alive = jnp.max(jnp.where(here, 1.0 - dropped, 0.0), axis=1, keepdims=True)
            box = [columns_ref[i : i + 1, side : side + 1] for side in range(5)]
            drops = overlaps(box, rows, iou_threshold) & ~here & (alive > 0)
            dropped = jnp.where(drops, 1.0, dropped)
            keep_ref[i : i + 1] = alive
        dropped_ref[...] = dropped

    table = jnp.stack(sides)
    semantics = "arbitrary" if repaired else "parallel"
    keep = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((n, 1), jnp.float32),
        grid=(n // BLOCK,),
        in_specs=[
            pl.BlockSpec((BLOCK, 5), lambda b: (b, 0)),
            pl.BlockSpec((5, n), lambda b: (0, 0)),
        ],
        out_specs=pl.BlockSpec((BLOCK, 1), lambda b: (b, 0)),
        scratch_shapes=[pltpu.VMEM((1, n), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=(semantics,)),
        interpret=interpret,
    )(table.T, table)
    return in_input_order(order, keep[:, 0] > 0)


@bug(
    Workload("identical", {"n": 128}, values="identical", options=HALF),
    Workload("chain", {"n": 128}, values="chain", options=HALF),
)
def revived_box(boxes, scores, *, iou_threshold, interpret, repaired=False):
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
        body, out_shape=jax.ShapeDtypeStruct((1, n), jnp.float32), interpret=interpret
    )(table.T, table)
    return in_input_order(order, keep[0] > 0)
