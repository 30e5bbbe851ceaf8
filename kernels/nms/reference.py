"""The oracle: greedy suppression, box by box, in NumPy.

The result is a choice, and a choice has no rounding error. So the oracle makes each decision as the
contract says, in float32 with every operation rounded, and not in float64: an overlap that differs
from the threshold by less than a rounding would be decided otherwise.
"""

import numpy as np

TINY = np.finfo(np.float32).tiny
SMALLEST_UNION = np.float32(1e-5)


def nms(boxes, scores, *, iou_threshold):
    """[n, 4], [n] → bool [n]. The arguments hold float32 values, in any wider dtype."""
    boxes, scores = (_flush(np.asarray(a, np.float32)) for a in (boxes, scores))
    keep = np.ones(len(boxes), bool)
    order = np.argsort(-scores, kind="stable")  # NaN last
    for place, i in enumerate(order):
        later = order[place + 1 :]
        if keep[i]:
            keep[later] &= ~_overlaps(boxes[i], boxes[later], np.float32(iou_threshold))
    return keep


def _overlaps(box, others, threshold):
    """[4], [m, 4] → bool [m]: intersection > threshold · union."""
    with np.errstate(all="ignore"):  # infinities and NaN are allowed
        corner = np.maximum(box[:2], others[:, :2])
        sides = _flush(np.minimum(box[2:], others[:, 2:]) - corner)
        inside = (sides > 0).all(-1)
        common = np.where(inside, _flush(sides[:, 0] * sides[:, 1]), np.float32(0))
        union = _area(box) + _area(others) - common
        return common > threshold * np.maximum(union, SMALLEST_UNION)


def _area(boxes):
    sides = _flush(boxes[..., 2:] - boxes[..., :2])
    area = _flush(sides[..., 0] * sides[..., 1])
    return np.where(area > 0, area, np.float32(0))


def _flush(x):
    """Subnormal numbers become zero, as XLA and the TPU have them."""
    return np.where(np.abs(x) < TINY, np.float32(0), x)
