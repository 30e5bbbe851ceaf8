"""Places in an array that are computed in float32."""

from kernels.lessons.gallery.bug import Bug
from kernels.machines.optional import require
from kernels.proof.backends.torch import TORCH
from kernels.proof.workload import Workload

BUG = Bug(
    title="Indices in float32",
    operator="brick_pad",
    caught_by="interpret",
    says="integers are exact",
    cause="A matrix-vector product gives the places, and float32 has no odd numbers above 2²⁴.",
    lesson="Index with integers, or test a size beyond 16.8 million elements.",
    workloads=(
        Workload("small", {"h": 3, "w": 50, "c": 0}, "uint8", options={"border": (0, 0)}),
        Workload("large", {"h": 1, "w": 2**24 + 63, "c": 0}, "uint8", options={"border": (0, 0)}),
    ),
    needs="torch",
    backend=TORCH,
)


def kernel(tile, *, border, repaired=False):
    """[h, w] → [h + 2 rows, w + 2 cols], no shift."""
    torch = require("torch", "this bug")
    (h, w), (rows, cols) = tile.shape, border
    number = torch.int64 if repaired else torch.float32
    row = torch.remainder(torch.arange(h + 2 * rows) - rows, h).to(number)
    column = torch.remainder(torch.arange(w + 2 * cols) - cols, w).to(number)
    place = row[:, None] * w + column
    return torch.take(torch.as_tensor(tile), place.to(torch.int64))
