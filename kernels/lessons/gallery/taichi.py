"""Wrong kernels in Taichi: brick padding, and a depthwise convolution.

The second rung runs them in another process, which finds each function by its name.
"""

import functools

from kernels.lessons.gallery.bug import from_table
from kernels.machines import taichi
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.workload import cases

_bug = functools.partial(from_table, backend=TAICHI)


def _laid(border, shift_y=None):
    return {"options": {"border": border} | ({"shift_y": shift_y} if shift_y else {})}


def _image(tile, border):
    (h, w), (rows, cols) = tile.shape, border
    return taichi.empty((h + 2 * rows, w + 2 * cols), tile)


@functools.cache
def _walk():
    ti = taichi.module()
    array = ti.types.ndarray(ndim=2)

    @ti.kernel
    def pad(out: array, tile: array, rows: ti.i32, cols: ti.i32, step: ti.i32, early: ti.i32):
        h, w = tile.shape[0], tile.shape[1]
        for row in range(out.shape[0]):
            y = out.shape[0] - 1 - row - rows
            v = y // h
            source = h - 1 - (y - v * h)
            j = (-cols - v * step) % w
            pixel = tile[source, j]
            for col in range(out.shape[1]):
                out[row, col] = pixel
                j += 1
                if early:
                    pixel = tile[source, j]
                if j == w:
                    j = 0
                    pixel = tile[source, j]
                if not early:
                    pixel = tile[source, j]

    return pad


def walked(tile, *, border, shift_y, repaired=False):
    """[h, w] → [h + 2 rows, w + 2 cols], shift_y = (step, h)."""
    out = _image(tile, border)
    taichi.launch(_walk(), out, tile, *border, shift_y[0], not repaired)
    return out


early_read = _bug("early_read", walked, *cases("h w c", bricks=(5, 7, 0, _laid((9, 20), (2, 5)))))


@functools.cache
def _places():
    ti = taichi.module()
    array = ti.types.ndarray(ndim=2)

    @ti.kernel
    def pad(out: array, tile: array, rows: ti.i32, cols: ti.i32, step: ti.i32):
        h, w = tile.shape[0], tile.shape[1]
        for row, col in ti.ndrange(out.shape[0], out.shape[1]):
            y = out.shape[0] - 1 - row + rows
            v = y // h
            out[row, col] = tile[h - 1 - (y - v * h), (col - cols - v * step) % w]

    return pad


def placed(tile, *, border, shift_y=(0, 0), repaired=False):
    """[h, w] → [h + 2 rows, w + 2 cols], shift_y = (step, h)."""
    (rows, cols), out = border, _image(tile, border)
    taichi.launch(_places(), out, tile, -rows if repaired else rows, cols, shift_y[0])
    return out


flipped_border = _bug(
    "flipped_border",
    placed,
    *cases(
        "h w c", whole_bricks=(4, 6, 0, _laid((8, 3))), shifted=(4, 6, 0, _laid((8, 3), (1, 4)))
    ),
)


@functools.cache
def _tiles_of_four(repaired):
    ti = taichi.module()

    @ti.kernel
    def steps(
        out: ti.types.ndarray(ti.f32, ndim=3),
        w: ti.types.ndarray(ti.f32, ndim=2),
        k: ti.types.ndarray(ti.f32, ndim=3),
        eps: ti.f32,
    ):
        T = k.shape[2]
        for b, c, tile in ti.ndrange(k.shape[0], k.shape[1], (T + 3) // 4):
            s = ti.Vector([eps] * 4)
            for u in range(ti.min(4 * tile + 4, T)):
                for i in ti.static(range(4)):
                    lag = 4 * tile + i - u
                    if ti.static(repaired):
                        lag = ti.min(lag, T - 1)
                    if lag >= 0:
                        s[i] += w[c, (T - 1) - lag] * k[b, c, u]
            for i in ti.static(range(4)):
                if 4 * tile + i < T:
                    out[b, c, 4 * tile + i] = s[i]

    return steps


def tiled(w, k, eps, *, repaired=False):
    """[C, T], [B, C, T] → [B, C, T]."""
    out = taichi.empty(k.shape, k)
    taichi.launch(_tiles_of_four(repaired), out, w, k, eps)
    return out


unbounded_index = _bug(
    "unbounded_index", tiled, *cases("b c t", whole=(1, 1, 64, "four divides 64"), cut=(1, 1, 65))
)
