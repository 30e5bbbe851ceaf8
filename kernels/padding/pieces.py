"""Rows of bricks as the Taichi kernels read them. NumPy arrays, and tensors for per-pixel kernels.

A row of bricks repeats. Two pieces of it, one after the other, hold every rotation of a piece in
one stretch: so a kernel that copies needs no remainder.
"""

import numpy as np

PIECE = 256  # elements at least: shorter loops cost more than they copy


def laid(tile, plan):
    """[h, w] → the bricks [h, period], contiguous."""
    if plan.bricks is None:
        return tile
    if isinstance(tile, np.ndarray):
        return tile[plan.bricks].reshape(plan.h, plan.period)
    import torch

    chosen = torch.from_numpy(plan.bricks).to(tile.device)
    return tile[chosen].reshape(plan.h, plan.period)


def doubled(bricks):
    """[h, period] → [h, 2 n] and n: so many periods that a piece is long enough."""
    period = bricks.shape[1]
    n = -(-PIECE // period) * period
    columns = np.arange(2 * n) % period
    if isinstance(bricks, np.ndarray):
        return np.take(bricks, columns, axis=1), n
    import torch

    return bricks[:, torch.from_numpy(columns).to(bricks.device)].contiguous(), n
