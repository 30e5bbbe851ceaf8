"""Three ways in plain JAX: box by box, all pairs of boxes at once, and block by block.

The order of the boxes and their overlaps are those of the other implementations too.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

SMALLEST_UNION = 1e-5
LOOPS = 8  # at most, over the blocks; each sees the boxes from its first block on


def by_score(boxes, scores):
    """The boxes [n, 4] from the best score down: int32 [n], their indices; and five arrays [n].

    These are left, top, right, bottom and area. The sides travel with their keys through the sort,
    which spares a gather.
    """
    index = lax.iota(jnp.int32, len(scores))
    # The index as a second key breaks ties, also those between NaNs, which come last.
    _, order, *sides = lax.sort((-scores, index, *boxes.T), num_keys=2)
    return order, (*sides, area(*sides))


def in_input_order(order, keep):
    """What was sorted, bool [n], back where it came from: order is int32 [n], the indices."""
    return lax.sort((order, keep.astype(jnp.int32)), num_keys=1)[1] > 0


def overlaps(one, other, threshold):
    """Whether intersection > threshold · union, for boxes that broadcast.

    A compiler for CPUs may join a product and the sum it goes into, and round once where the
    contract rounds twice. It cannot do so through the `where` that stands after each product.

    Args:
        one, other: left, top, right, bottom and area.
        threshold: of the overlap, 0 to 1.
    """
    left, top, right, bottom, areas = zip(one, other, strict=True)
    width = jnp.minimum(*right) - jnp.maximum(*left)
    height = jnp.minimum(*bottom) - jnp.maximum(*top)
    common = jnp.where((width > 0) & (height > 0), width * height, 0.0)
    union = areas[0] + areas[1] - common
    return common > threshold * jnp.maximum(union, SMALLEST_UNION)


def area(left, top, right, bottom):
    """Of boxes; where it is not positive, nothing is overlapped, and 0 will do."""
    product = (right - left) * (bottom - top)
    return jnp.where(product > 0, product, 0.0)


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
    """By an n × n matrix of who would drop whom, applied until all agree.

    After k rounds the first k boxes are right, so there are at most n of them, and usually few.
    """
    order, boxes = by_score(boxes, scores)
    rank = lax.iota(jnp.int32, len(scores))
    columns = [side[:, None] for side in boxes]
    drops = overlaps(columns, boxes, threshold) & (rank[:, None] < rank)
    return in_input_order(order, settled(drops, jnp.ones(len(scores), bool), rounds))


@functools.partial(jax.jit, static_argnames=("threshold", "rounds", "block"))
def nms_in_blocks(boxes, scores, threshold, rounds=None, block=None):
    """Greedy suppression by blocks of boxes: settle one in rounds, then drop from all later.

    Each loop ignores the boxes before its first block, so that a pair is compared about once.

    Args:
        boxes: [n, 4].
        scores: [n].
        threshold: of the overlap, 0 to 1.
        rounds: of settling a block; None until nothing changes, a number for an estimate of one.
        block: boxes that are settled together; None for block_for(n).

    Returns:
        bool [n].

    Source:
        In our own words, after tf.image.non_max_suppression_padded in TensorFlow.
    """
    n = len(scores)
    order, boxes = by_score(boxes, scores)
    size = min(block or block_for(n), max(n, 1))
    blocks = -(-n // size)
    # What fills the last block up is empty: it overlaps nothing.
    table = jnp.pad(jnp.stack(boxes), ((0, 0), (0, blocks * size - n)))
    rank = lax.iota(jnp.int32, size)

    def visit(b, alive, table):
        here = lax.dynamic_slice_in_dim(table, b * size, size, axis=1)
        columns = list(here[:, :, None])
        drops = overlaps(columns, list(here), threshold) & (rank[:, None] < rank)
        keep = settled(drops, lax.dynamic_slice_in_dim(alive, b * size, size), rounds)
        later = lax.iota(jnp.int32, len(alive)) >= (b + 1) * size
        dropped = jnp.any(overlaps(columns, list(table), threshold) & keep[:, None], axis=0)
        return lax.dynamic_update_slice_in_dim(alive & ~(dropped & later), keep, b * size, axis=0)

    keep, alive = [], jnp.ones(blocks * size, bool)
    together = max(-(-blocks // LOOPS), 1)
    for first in range(0, blocks, together):
        last = min(first + together, blocks)
        rest = functools.partial(visit, table=table[:, first * size :])
        alive = lax.fori_loop(0, last - first, rest, alive)
        keep.append(alive[: (last - first) * size])
        alive = alive[(last - first) * size :]
    return in_input_order(order, jnp.concatenate([*keep, alive])[:n])


def block_for(n):
    """The boxes in a block that the estimates favour for n boxes, tried at the chapter's sizes."""
    return 1024 if 1024 < n <= 8192 else 512


def settled(drops, alive, rounds):
    """Who is kept of those that are alive.

    Args:
        drops: bool [m, m]; drops[j, i] says that j, if it is kept, drops i.
        alive: bool [m].
        rounds: that many; None until nothing changes.

    Returns:
        bool [m].
    """

    def visit(keep):
        return alive & ~jnp.any(drops & keep[:, None], axis=0)

    def again(carry):
        before, now = carry
        return jnp.any(before != now)

    if rounds is not None:
        return lax.fori_loop(0, rounds, lambda _, keep: visit(keep), alive)
    return lax.while_loop(again, lambda c: (c[1], visit(c[1])), (alive, visit(alive)))[1]
