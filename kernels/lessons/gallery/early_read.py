"""A counter that is looked up before it is set back."""

import functools

from kernels.lessons.gallery.bug import Bug
from kernels.machines import taichi
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The next pixel is read before the counter turns",
    operator="brick_pad",
    caught_by="simulate",
    says="Out of bound access",
    cause="At the end of each brick tile[row, w] is read, which is the next row's first pixel.",
    lesson="The pixel is thrown away and the image is right: only checked accesses show it.",
    workloads=(
        Workload(
            "bricks", {"h": 5, "w": 7, "c": 0}, options={"border": (9, 20), "shift_y": (2, 5)}
        ),
    ),
    needs="taichi",
    backend=TAICHI,
)


@functools.cache
def _kernel():
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


def kernel(tile, *, border, shift_y, repaired=False):
    """[h, w] → [h + 2 rows, w + 2 cols], shift_y = (step, h)."""
    (h, w), (rows, cols) = tile.shape, border
    out = taichi.empty((h + 2 * rows, w + 2 * cols), tile)
    taichi.launch(_kernel(), out, tile, rows, cols, shift_y[0], not repaired)
    return out
