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
    (pl, pt, pr, pb), (tl, tt, tr, tb) = pred, target
    inter = jnp.maximum(_overlap(pl, pr, tl, tr), 0) * jnp.maximum(_overlap(pt, pb, tt, tb), 0)
    enclosing = jnp.maximum(_span(pl, pr, tl, tr), 0) * jnp.maximum(_span(pt, pb, tt, tb), 0)
    union = (pr - pl) * (pb - pt) + (tr - tl) * (tb - tt) - inter
    union, enclosing = jnp.maximum(union, EPSILON), jnp.maximum(enclosing, EPSILON)
    return inter / union - (enclosing - union) / enclosing


def _larger(a, b):
    """The derivative of max(a, b) by a."""
    return jnp.where(a > b, 1.0, jnp.where(a == b, 0.5, 0.0))


def gradients(pred, target, cotangent):
    """The derivatives of `score` by the coordinates of both, times a cotangent of its shape."""
    (pl, pt, pr, pb), (tl, tt, tr, tb) = pred, target
    iw, ih = _overlap(pl, pr, tl, tr), _overlap(pt, pb, tt, tb)
    ew, eh = _span(pl, pr, tl, tr), _span(pt, pb, tt, tb)
    inter_w, inter_h = jnp.maximum(iw, 0), jnp.maximum(ih, 0)
    outer_w, outer_h = jnp.maximum(ew, 0), jnp.maximum(eh, 0)
    inter, enclosing = inter_w * inter_h, outer_w * outer_h
    union = (pr - pl) * (pb - pt) + (tr - tl) * (tb - tt) - inter
    u, c = jnp.maximum(union, EPSILON), jnp.maximum(enclosing, EPSILON)

    # score = inter / u - 1 + u / c, and u holds inter once more.
    of_union = cotangent * (1 / c - inter / (u * u)) * _larger(union, EPSILON)
    of_inter = cotangent / u - of_union
    of_enclosing = -cotangent * u / (c * c) * _larger(enclosing, EPSILON)
    of_iw, of_ih = of_inter * inter_h * _larger(iw, 0), of_inter * inter_w * _larger(ih, 0)
    of_ew, of_eh = of_enclosing * outer_h * _larger(ew, 0), of_enclosing * outer_w * _larger(eh, 0)

    def of_interval(first, last, first_, last_, of_area, of_overlap, of_span):
        """By the first and the last coordinate of the one box, along one axis."""
        of_first = -of_area - of_overlap * _larger(first, first_) - of_span * _larger(first_, first)
        return of_first, of_area + of_overlap * _larger(last_, last) + of_span * _larger(
            last, last_
        )

    left, right = of_interval(pl, pr, tl, tr, of_union * (pb - pt), of_iw, of_ew)
    top, bottom = of_interval(pt, pb, tt, tb, of_union * (pr - pl), of_ih, of_eh)
    left_, right_ = of_interval(tl, tr, pl, pr, of_union * (tb - tt), of_iw, of_ew)
    top_, bottom_ = of_interval(tt, tb, pt, pb, of_union * (tr - tl), of_ih, of_eh)
    return (left, top, right, bottom), (left_, top_, right_, bottom_)
