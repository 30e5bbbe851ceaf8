"""Brick padding in Taichi level by level: each changes one thing, and the last is in taichi.py.

0: as published: each pixel by itself, its place by division in float32 and rounding down. From
   the middle of the pixel, since Taichi divides in a hurry and 95.9999 is not in the same brick.
1: the same with whole numbers.
2: what a row has in common is computed once a row; then a column counter runs through the bricks.
3: nothing but copies: a row is made of pieces of a doubled row of bricks, one like the other.
4: eight bytes a store; it is the last one's kernel, whose elements are wider still.
"""

import functools

import numpy as np

from kernels.machines import taichi
from kernels.machines.checks import fail

__all__ = ["copied", "counted", "divide", "whole"]
ti = taichi.module()
Array = ti.types.ndarray(ndim=2)

PIECE = 256  # elements at least: shorter loops cost more than they copy
EXACT = 2**21  # below it no quotient is wrong by half a pixel, not even by fast division


@ti.kernel
def divide(out: Array, bricks: Array, up: ti.i32, left: ti.i32, step: ti.i32):
    h, period = bricks.shape[0], bricks.shape[1]
    for row, col in ti.ndrange(out.shape[0], out.shape[1]):
        x, y = col + left, out.shape[0] - 1 - row - up
        v = ti.cast(ti.floor((y + 0.5) / h), ti.i32)
        u = ti.cast(ti.floor((x - v * step + 0.5) / period), ti.i32)
        out[row, col] = bricks[h - 1 - (y - v * h), x - v * step - u * period]


@ti.kernel
def whole(out: Array, bricks: Array, up: ti.i32, left: ti.i32, step: ti.i32):
    h, period = bricks.shape[0], bricks.shape[1]
    for row, col in ti.ndrange(out.shape[0], out.shape[1]):
        x, y = col + left, out.shape[0] - 1 - row - up
        v = y // h
        out[row, col] = bricks[h - 1 - (y - v * h), (x - v * step) % period]


@ti.kernel
def counted(out: Array, bricks: Array, up: ti.i32, left: ti.i32, step: ti.i32):
    h, period = bricks.shape[0], bricks.shape[1]
    for row in range(out.shape[0]):
        y = out.shape[0] - 1 - row - up
        v = y // h
        source = h - 1 - (y - v * h)
        j = (left - v * step) % period
        for col in range(out.shape[1]):
            out[row, col] = bricks[source, j]
            j += 1
            if j == period:
                j = 0


@ti.kernel
def copied(
    out: Array, pieces: Array, up: ti.i32, left: ti.i32, step: ti.i32, period: ti.i32, n: ti.i32
):
    h = pieces.shape[0]
    for row in range(out.shape[0]):
        y = out.shape[0] - 1 - row - up
        v = y // h
        source = h - 1 - (y - v * h)
        j = (left - v * step) % period
        whole = out.shape[1] // n
        for piece in range(whole):
            for c in range(n):
                out[row, piece * n + c] = pieces[source, j + c]
        for c in range(out.shape[1] - whole * n):
            out[row, whole * n + c] = pieces[source, j + c]


def doubled(bricks):
    """[h, period] → [h, 2 n] and n: so many periods that a piece is long enough. Two pieces, one
    after the other, hold every rotation of a piece in one stretch: no remainder is needed."""
    period = bricks.shape[1]
    n = -(-PIECE // period) * period
    columns = np.arange(2 * n) % period
    if isinstance(bricks, np.ndarray):
        return np.take(bricks, columns, axis=1), n
    import torch

    return bricks[:, torch.from_numpy(columns).to(bricks.device)].contiguous(), n


def brick_pad(tile, plan, out, level):
    """[h, w] → out [height, width], by one of the four kernels."""
    bricks = plan.laid(tile)
    numbers = plan.up, plan.left, plan.step
    if level == 0 and plan.farthest >= EXACT:
        fail("border", "so wide that float32 loses count", f"coordinates below {EXACT}")
    if level < 3:
        taichi.launch((divide, whole, counted)[level], out, bricks, *numbers)
    else:
        pieces, n = doubled(bricks)
        taichi.launch(copied, out, pieces, *numbers, plan.period, n)
    return out


v0, v1, v2, v3 = (functools.partial(brick_pad, level=level) for level in range(4))
