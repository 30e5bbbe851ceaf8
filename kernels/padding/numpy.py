"""Brick padding in NumPy: each row of the image is one copy out of a long row of bricks."""

import numpy as np


def brick_pad(tile, plan, out):
    """[h, w] → out [height, width], by `plan`."""
    repeats = -(-(plan.width + plan.period) // plan.period)
    long = np.tile(plan.laid(tile), (1, repeats))
    for row, source, start in zip(out, *(part.tolist() for part in plan.rows()), strict=True):
        row[:] = long[source, start : start + plan.width]
    return out
