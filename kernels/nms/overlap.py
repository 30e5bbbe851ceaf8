"""What all implementations in JAX share: the order of the boxes, and who overlaps whom."""

import jax.numpy as jnp
from jax import lax

SMALLEST_UNION = 1e-5


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
