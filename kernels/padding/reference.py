"""The oracle of brick padding: paint the copies of the tile, one after another."""

import numpy as np


def brick_pad(tile, *, border, shift_x=None, shift_y=None):
    """The oracle; see kernels.padding.brick_pad.

    Every copy that touches the image is painted, and every pixel must be painted once: so this
    also says which shifts tile the plane, by looking.

    Raises:
        ValueError: for parallel shifts, and where copies overlap or leave gaps.
    """
    tile = np.asarray(tile)
    h, w = tile.shape[:2]
    rows, cols = border
    (a, b), (c, d) = shift_x or (w, 0), shift_y or (0, h)
    out = np.zeros((h + 2 * rows, w + 2 * cols, *tile.shape[2:]), tile.dtype)
    painted = np.zeros(out.shape[:2], int)
    # Copy (m, n) has its lower left corner at (x, y) = m shift_x + n shift_y; solved for m and n.
    x, y = np.meshgrid([-cols - w, w + cols], [-rows - h, h + rows])
    area = a * d - b * c
    if not area:
        raise ValueError("the shifts are parallel")
    reach = [np.stack((x * d - y * c, y * a - x * b)) / area]
    low, high = np.floor(np.min(reach, (0, 2, 3))), np.ceil(np.max(reach, (0, 2, 3)))
    m, n = np.meshgrid(*(np.arange(int(i), int(j) + 1) for i, j in zip(low, high)))
    xs, ys = (m * a + n * c).ravel() + cols, (m * b + n * d).ravel() + rows
    touches = (xs > -w) & (xs < out.shape[1]) & (ys > -h) & (ys < out.shape[0])
    for left, bottom in zip(xs[touches], ys[touches]):
        top = out.shape[0] - bottom - h  # y points up, rows down
        into = np.s_[max(top, 0) : max(top + h, 0), max(left, 0) : max(left + w, 0)]
        seen = out[into].shape
        skip = max(-top, 0), max(-left, 0)
        out[into] = tile[skip[0] : skip[0] + seen[0], skip[1] : skip[1] + seen[1]]
        painted[into] += 1
    if (painted != 1).any():
        raise ValueError(f"the copies overlap or leave gaps: a pixel is painted {painted.max()}×")
    return out
