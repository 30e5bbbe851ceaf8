"""Greedy suppression on a TPU: blocks of boxes in order, and a memory of who was dropped.

Inside a block the order matters, and rounds on a small matrix settle it. Then the block drops boxes
of all later blocks, 128 × 128 pairs at a time, and no order matters. Which boxes are dropped so far
stays in scratch memory from one grid step to the next.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.checks import fail
from kernels.machines.pallas import interprets
from kernels.nms.xla import by_score, in_input_order, overlaps

LEFT, RIGHT = 0, 2
BLOCK = 128  # boxes: a row of them fills the lanes of a register
MOST = 1 << 17  # boxes, which with their marks fit into 16 MiB of VMEM


def _lanes(b):
    return pl.ds(pl.multiple_of(b * BLOCK, BLOCK), BLOCK)


def _rows(ref, b):
    """The boxes of block b: sides and area, five rows [1, BLOCK]."""
    table = ref[:, _lanes(b)]
    return [table[i : i + 1] for i in range(5)]


def _turn(row):
    """[1, BLOCK] → [BLOCK, BLOCK]: element j all along row j."""
    return jnp.broadcast_to(row, (BLOCK, BLOCK)).T


def _settle(drops, alive, rounds):
    """[BLOCK, BLOCK], [1, BLOCK] → [1, BLOCK]: who is kept, of those that are alive.

    drops[j, i] = 1: j, if kept, drops i; 0 unless j < i. After k rounds the first k are right.
    """

    def visit(keep):
        dropped_by = jnp.dot(keep, drops, preferred_element_type=jnp.float32)
        return jnp.where(dropped_by > 0, 0.0, alive)

    def again(carry):
        before, now = carry
        return jnp.max(jnp.abs(before - now)) > 0

    if rounds is not None:
        return lax.fori_loop(0, rounds, lambda _, keep: visit(keep), alive)
    return lax.while_loop(again, lambda c: (c[1], visit(c[1])), (alive, visit(alive)))[1]


def _nms_kernel(boxes_ref, keep_ref, dropped_ref, kept_ref, *, threshold, rounds):
    # boxes_ref [5, n], all of them, sorted; keep_ref [1, BLOCK]
    # scratch: dropped_ref [1, n], who is dropped so far; kept_ref [5, BLOCK, BLOCK], a block turned
    b, blocks = pl.program_id(0), pl.num_programs(0)

    @pl.when(b == 0)
    def _():
        dropped_ref[...] = jnp.zeros_like(dropped_ref)

    rows = _rows(boxes_ref, b)
    for i, row in enumerate(rows):
        kept_ref[i] = _turn(row)
    j, i = (lax.broadcasted_iota(jnp.int32, (BLOCK, BLOCK), axis) for axis in (0, 1))
    drops = jnp.where(overlaps(list(kept_ref[...]), rows, threshold) & (j < i), 1.0, 0.0)
    keep = _settle(drops, 1.0 - dropped_ref[:, _lanes(b)], rounds)
    keep_ref[...] = keep
    # A dropped box becomes an empty one: it overlaps nothing, and needs no mask.
    kept_ref[RIGHT] = _turn(jnp.where(keep > 0, rows[RIGHT], rows[LEFT]))

    def drop_from(later, _):
        rows = _rows(boxes_ref, later)
        drops = jnp.where(overlaps(list(kept_ref[...]), rows, threshold), 1.0, 0.0)
        dropped = jnp.maximum(dropped_ref[:, _lanes(later)], jnp.max(drops, axis=0, keepdims=True))
        dropped_ref[:, _lanes(later)] = dropped
        return _

    lax.fori_loop(b + 1, blocks, drop_from, None)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _nms(boxes, scores, threshold, interpret, rounds):
    n = len(scores)
    blocks = max(pl.cdiv(n, BLOCK), 1)  # a grid has at least one step
    order, boxes = by_score(boxes, scores)
    # What fills the last block up is empty: it overlaps nothing.
    boxes = jnp.pad(jnp.stack(boxes), ((0, 0), (0, blocks * BLOCK - n)))
    keep = pl.pallas_call(
        functools.partial(_nms_kernel, threshold=threshold, rounds=rounds),
        out_shape=jax.ShapeDtypeStruct((1, blocks * BLOCK), jnp.float32),
        grid=(blocks,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=pl.BlockSpec((1, BLOCK), lambda b: (0, b)),
        scratch_shapes=[
            pltpu.VMEM((1, blocks * BLOCK), jnp.float32),
            pltpu.VMEM((5, BLOCK, BLOCK), jnp.float32),
        ],
        # A block needs to know what the blocks before it dropped.
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
        name="nms",
    )(boxes)
    return in_input_order(order, keep[0, :n] > 0)


def nms(boxes, scores, threshold, *, interpret=None, rounds=None):
    """[n, 4], [n] → bool [n] on a TPU; grid (n / BLOCK,), in order.

    Raises:
        ValueError: for more boxes than MOST.
    """
    if len(scores) > MOST:
        fail("boxes.shape[0]", len(scores), f"at most {MOST}, which fit into a TPU's VMEM")
    boxes, scores = jnp.asarray(boxes), jnp.asarray(scores)
    return _nms(boxes, scores, threshold, interprets(interpret, "tpu"), rounds)
