"""A gather of pixels that takes one number for each."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.optional import require
from kernels.proof.backends.torch import TORCH
from kernels.proof.workload import Workload

BUG = Bug(
    title="One channel of three",
    operator="brick_pad",
    caught_by="interpret",
    says="shape is (11, 20)",
    cause="The gather indexes the flat tile, where a pixel in colour is three numbers.",
    lesson="Gather rows of channels; and let the contract name the shape of the result.",
    workloads=(
        Workload("grey", {"h": 5, "w": 6, "c": 0}, "uint8", options={"border": (3, 7)}),
        Workload("colour", {"h": 5, "w": 6, "c": 3}, "uint8", options={"border": (3, 7)}),
    ),
    needs="torch",
    backend=TORCH,
)


def kernel(tile, *, border, repaired=False):
    """[h, w] or [h, w, C] → [h + 2 rows, w + 2 cols(, C)], no shift."""
    torch = require("torch", "this bug")
    (h, w, *channels), (rows, cols) = tile.shape, border
    row = torch.remainder(torch.arange(h + 2 * rows) - rows, h)
    column = torch.remainder(torch.arange(w + 2 * cols) - cols, w)
    tile, place = torch.as_tensor(tile), row[:, None] * w + column
    if repaired:
        return tile.reshape(h * w, *channels)[place]
    size = channels[0] if channels else 1
    return tile.reshape(-1)[place * size]
