"""The oracle of GIOU. NumPy or JAX arrays in, in float64; so it can be differentiated too.

Coordinates are exact and are subtracted once, so a side is as exact as a float gets. What loses
digits is the union, a sum that can cancel: the magnitudes below count its terms one by one.
"""

__all__ = ["giou"]
EPSILON = 1e-5  # area below which nothing counts: union and enclosing box are at least so large


def _areas(preds, targets):
    """Of the intersection, of both boxes and of the enclosing box; and the sides of all four."""
    xp = preds.__array_namespace__()
    first, last, first_, last_ = preds[..., :2], preds[..., 2:], targets[..., :2], targets[..., 2:]
    both = (
        xp.maximum(xp.minimum(last, last_) - xp.maximum(first, first_), 0),
        last - first,
        last_ - first_,
        xp.maximum(xp.maximum(last, last_) - xp.minimum(first, first_), 0),
    )
    sides = [(lengths[..., 0], lengths[..., 1]) for lengths in both]
    return [width * height for width, height in sides], sides


def giou(preds, targets):
    """[..., 4], [..., 4] → [...]; boxes are left, top, right, bottom."""
    inter, union, enclosing, *_ = _condition(preds, targets)
    return inter / union - (enclosing - union) / enclosing


def _condition(preds, targets):
    """The areas as `giou` uses them, how ill-conditioned the union is, and the sides."""
    xp = preds.__array_namespace__()
    (inter, pred, target, enclosing), sides = _areas(preds, targets)
    terms = abs(pred) + abs(target) + inter
    union = xp.maximum(pred + target - inter, EPSILON)
    return inter, union, xp.maximum(enclosing, EPSILON), terms, sides


def giou_magnitude(preds, targets):
    """What each score adds up: the ratios, and the terms of the union where it counts."""
    inter, union, enclosing, terms, _ = _condition(preds, targets)
    return inter / union * (1 + terms / union) + (terms + enclosing) / enclosing


def giou_gradient_magnitude(preds, targets, cotangent):
    """The same for the gradients: the sides that multiply what comes back to each area."""
    xp = preds.__array_namespace__()
    inter, union, enclosing, terms, sides = _condition(preds, targets)
    back = abs(cotangent) * (1 + terms / union)
    ratio = inter / union
    of_box = back * (ratio / union + 1 / enclosing)
    of_inter = back * 1 / union + of_box
    of_enclosing = back * union / enclosing**2
    (iw, ih), pred, target, (ew, eh) = sides
    sizes = []
    for width, height in (pred, target):
        across = abs(height) * of_box + ih * of_inter + eh * of_enclosing
        along = abs(width) * of_box + iw * of_inter + ew * of_enclosing
        sizes.append(xp.stack([across, along, across, along], axis=-1))
    return sizes
