"""A border that is added where it has to be taken away."""

import functools

from kernels.lessons.gallery.bug import Bug
from kernels.machines import taichi
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.workload import Workload

BUG = Bug(
    title="The border is added instead of taken away",
    operator="brick_pad",
    caught_by="interpret",
    says="the reference",
    cause="Rows count from the top of the image: height - 1 - row - border is the tile's own y.",
    lesson="Where twice the border is whole bricks it does not show; look at the centre.",
    workloads=(
        Workload("whole_bricks", {"h": 4, "w": 6, "c": 0}, options={"border": (8, 3)}),
        Workload(
            "shifted", {"h": 4, "w": 6, "c": 0}, options={"border": (8, 3), "shift_y": (1, 4)}
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
    def pad(out: array, tile: array, rows: ti.i32, cols: ti.i32, step: ti.i32):
        h, w = tile.shape[0], tile.shape[1]
        for row, col in ti.ndrange(out.shape[0], out.shape[1]):
            y = out.shape[0] - 1 - row + rows
            v = y // h
            out[row, col] = tile[h - 1 - (y - v * h), (col - cols - v * step) % w]

    return pad


def kernel(tile, *, border, shift_y=(0, 0), repaired=False):
    """[h, w] → [h + 2 rows, w + 2 cols], shift_y = (step, h)."""
    (h, w), (rows, cols) = tile.shape, border
    out = taichi.empty((h + 2 * rows, w + 2 * cols), tile)
    sign = -1 if repaired else 1
    taichi.launch(_kernel(), out, tile, sign * rows, cols, shift_y[0])
    return out
