"""Coordinates that are computed in place, in the table that the next call gets too."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.optional import require
from kernels.proof.backends.torch import TORCH
from kernels.proof.workload import Workload

BUG = Bug(
    title="The argument is changed",
    operator="brick_pad",
    caught_by="interpret",
    says="the reference",
    cause="pixels[..., 1] -= cols writes to the caller's table: the second call shifts it again.",
    lesson="One call proves nothing about the next: call twice, and compare the arguments.",
    workloads=(
        Workload("twice", {"h": 6, "w": 8, "c": 0}, options={"border": (5, 9), "shift_y": (2, 6)}),
    ),
    needs="torch",
    backend=TORCH,
)


def kernel(tile, *, border, shift_y, repaired=False):
    """[h, w] → [h + 2 rows, w + 2 cols], shift_y = (step, h): what the second call gives."""
    torch = require("torch", "this bug")
    tile = torch.as_tensor(tile)
    (h, w), (rows, cols) = tile.shape, border
    height, width = h + 2 * rows, w + 2 * cols
    grid = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")

    def pad(pixels):
        if repaired:
            pixels = pixels.clone()
        pixels[..., 0] = height - 1 - rows - pixels[..., 0]
        pixels[..., 1] -= cols
        y, x = pixels[..., 0], pixels[..., 1]
        v = torch.div(y, h, rounding_mode="floor")
        return tile[h - 1 - (y - v * h), (x - v * shift_y[0]) % w]

    table = torch.stack(grid, dim=2)  # made once, as a loop over images would
    pad(table)
    return pad(table)
