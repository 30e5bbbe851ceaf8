"""Non-maximum suppression whose blocks are promised to be parallel."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.gallery.bug import Bug
from kernels.nms.overlap import by_score, in_input_order, overlaps
from kernels.proof.workload import Workload

BUG = Bug(
    title='The blocks of a sequential algorithm are declared "parallel"',
    operator="nms",
    caught_by="simulate",
    says="integers are exact",
    cause="A step reads in scratch memory which boxes earlier steps dropped. Another core has "
    "scratch of its own, and in another order, different steps come before.",
    lesson="Scratch that outlives a step needs its steps in order, on one core. Simulate two.",
    workloads=(
        Workload("four_blocks", {"n": 32}, values="disjoint", options={"iou_threshold": 0.5}),
    ),
)
BLOCK = 8


def kernel(boxes, scores, *, iou_threshold, interpret, repaired=False):
    """[n, 4], [n] → bool [n]; n is a multiple of 8. A step for 8 boxes, one after another."""
    n = len(scores)
    order, sides = by_score(jnp.asarray(boxes), jnp.asarray(scores))

    def body(columns_ref, rows_ref, keep_ref, dropped_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            dropped_ref[...] = jnp.zeros_like(dropped_ref)

        rows = [rows_ref[i : i + 1] for i in range(5)]
        rank = jax.lax.broadcasted_iota(jnp.int32, (1, n), 1)
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
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary" if repaired else "parallel",)
        ),
        interpret=interpret,
    )(table.T, table)
    return in_input_order(order, keep[:, 0] > 0)
