"""GIOU of coordinates in separate arrays, and its derivative: what every Pallas kernel computes.

Where two coordinates are equal, each gets half of the derivative of their maximum or minimum, as
jax.numpy has it.
"""

import jax.numpy as jnp

__all__ = ["gradients", "score"]
EPSILON = 1e-5


def _overlap(first, last, first_, last_):
    """The length that two intervals share; negative where there is a gap."""
    return jnp.minimum(last, last_) - jnp.maximum(first, first_)


def _span(first, last, first_, last_):
    """The length of the interval that encloses both."""
    return jnp.maximum(last, last_) - jnp.minimum(first, first_)


def score(pred, target):
    """GIOU of pairs of boxes: left, top, right and bottom of each are arrays of one shape."""
    (left, top, right, bottom), (left_, top_, right_, bottom_) = pred, target
    across, down = (left, right, left_, right_), (top, bottom, top_, bottom_)
    inter = jnp.maximum(_overlap(*across), 0) * jnp.maximum(_overlap(*down), 0)
    enclosing = jnp.maximum(_span(*across), 0) * jnp.maximum(_span(*down), 0)
    union = (right - left) * (bottom - top) + (right_ - left_) * (bottom_ - top_) - inter
    union, enclosing = jnp.maximum(union, EPSILON), jnp.maximum(enclosing, EPSILON)
    return inter / union - (enclosing - union) / enclosing


def _larger(a, b):
    """The derivative of max(a, b) by a."""
    return jnp.where(a > b, 1.0, jnp.where(a == b, 0.5, 0.0))


def gradients(pred, target, cotangent):
    """The derivatives of `score` by the coordinates of both, times a cotangent of its shape."""
    (left, top, right, bottom), (left_, top_, right_, bottom_) = pred, target
    across, down = (left, right, left_, right_), (top, bottom, top_, bottom_)
    iw, ih, ew, eh = _overlap(*across), _overlap(*down), _span(*across), _span(*down)
    inter_w, inter_h = jnp.maximum(iw, 0), jnp.maximum(ih, 0)
    outer_w, outer_h = jnp.maximum(ew, 0), jnp.maximum(eh, 0)
    inter, enclosing = inter_w * inter_h, outer_w * outer_h
    union = (right - left) * (bottom - top) + (right_ - left_) * (bottom_ - top_) - inter
    u, c = jnp.maximum(union, EPSILON), jnp.maximum(enclosing, EPSILON)

    # score = inter / u - 1 + u / c, and u holds inter once more.
    of_union = cotangent * (1 / c - inter / (u * u)) * _larger(union, EPSILON)
    of_inter = cotangent / u - of_union
    of_enclosing = -cotangent * u / (c * c) * _larger(enclosing, EPSILON)
    of_iw, of_ih = of_inter * inter_h * _larger(iw, 0), of_inter * inter_w * _larger(ih, 0)
    of_ew, of_eh = of_enclosing * outer_h * _larger(ew, 0), of_enclosing * outer_w * _larger(eh, 0)

    def of_ends(first, last, first_, last_, of_side, of_overlap, of_span):
        """By the first and the last coordinate of the one box, along one axis."""
        of_first = -of_side - of_overlap * _larger(first, first_) - of_span * _larger(first_, first)
        of_last = of_side + of_overlap * _larger(last_, last)
        return of_first, of_last + of_span * _larger(last, last_)

    def of_box(left, top, right, bottom, left_, top_, right_, bottom_):
        across = of_ends(left, right, left_, right_, of_union * (bottom - top), of_iw, of_ew)
        down = of_ends(top, bottom, top_, bottom_, of_union * (right - left), of_ih, of_eh)
        return across[0], down[0], across[1], down[1]

    return of_box(*pred, *target), of_box(*target, *pred)
