"""Two ways in plain JAX: a row of overlaps for each box in turn, and all of them at once."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from kernels.nms.overlap import by_score, in_input_order, overlaps


@functools.partial(jax.jit, static_argnames="threshold")
def nms(boxes, scores, threshold):
    """[n, 4], [n] → bool [n]: n steps in order, each with a row of n overlaps."""
    n = len(scores)
    order, boxes = by_score(boxes, scores)
    table = jnp.stack(boxes)  # one slice of it for each step, and not five

    def visit(i, keep):
        box = lax.dynamic_slice_in_dim(table, i, 1, axis=1)
        later = lax.iota(jnp.int32, n) > i
        return keep & ~(overlaps(box, table, threshold) & later & keep[i])

    keep = jnp.ones(n, bool)
    return in_input_order(order, lax.fori_loop(0, n, visit, keep) if n else keep)


@functools.partial(jax.jit, static_argnames=("threshold", "rounds"))
def nms_by_matrix(boxes, scores, threshold, rounds=None):
    """Greedy suppression by an n × n matrix of who would drop whom, applied until all agree.

    After k rounds the first k boxes are right, so there are at most n of them, and usually few.

    Args:
        boxes: [n, 4].
        scores: [n].
        threshold: of the overlap, 0 to 1.
        rounds: that many instead, for an estimate of what one costs.

    Returns:
        bool [n].
    """
    order, boxes = by_score(boxes, scores)
    rank = lax.iota(jnp.int32, len(scores))
    columns = [side[:, None] for side in boxes]
    drops = overlaps(columns, boxes, threshold) & (rank[:, None] < rank)

    def visit(keep):
        return ~jnp.any(drops & keep[:, None], axis=0)

    keep = jnp.ones(len(scores), bool)
    if rounds is None:
        keep = until_nothing_changes(visit, keep)
    else:
        keep = lax.fori_loop(0, rounds, lambda _, keep: visit(keep), keep)
    return in_input_order(order, keep)


def until_nothing_changes(step, first):
    """Apply `step` until it gives back what it was given."""

    def again(carry):
        before, now = carry
        return jnp.any(before != now)

    return lax.while_loop(again, lambda carry: (carry[1], step(carry[1])), (first, step(first)))[1]
