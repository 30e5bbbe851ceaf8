"""Wrong functions of PyTorch tensors: brick padding, and a convolution by FFT."""

import functools

from kernels.lessons.gallery.bug import bug
from kernels.machines.optional import require
from kernels.proof.backends.torch import TORCH
from kernels.proof.workload import Workload, cases

_bug = functools.partial(bug, backend=TORCH)


@_bug(Workload("twice", {"h": 6, "w": 8, "c": 0}, options={"border": (5, 9), "shift_y": (2, 6)}))
def changed_argument(tile, *, border, shift_y, repaired=False):
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


@_bug(
    Workload("small", {"h": 3, "w": 50, "c": 0}, "uint8", options={"border": (0, 0)}),
    Workload("large", {"h": 1, "w": 2**24 + 63, "c": 0}, "uint8", options={"border": (0, 0)}),
)
def float_index(tile, *, border, repaired=False):
    """[h, w] → [h + 2 rows, w + 2 cols], no shift."""
    torch = require("torch", "this bug")
    (h, w), (rows, cols) = tile.shape, border
    number = torch.int64 if repaired else torch.float32
    row = torch.remainder(torch.arange(h + 2 * rows) - rows, h).to(number)
    column = torch.remainder(torch.arange(w + 2 * cols) - cols, w).to(number)
    place = row[:, None] * w + column
    return torch.take(torch.as_tensor(tile), place.to(torch.int64))


@_bug(
    Workload("grey", {"h": 5, "w": 6, "c": 0}, "uint8", options={"border": (3, 7)}),
    Workload("colour", {"h": 5, "w": 6, "c": 3}, "uint8", options={"border": (3, 7)}),
)
def one_channel(tile, *, border, repaired=False):
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


@_bug(*cases("b c t", one_step=(2, 3, 1, "a circle of one step is a line"), circle=(2, 3, 64)))
def circular_convolution(w, k, eps, *, repaired=False):
    """[C, T], [B, C, T] → [B, C, T]."""
    torch = require("torch", "this bug")
    steps = k.shape[2]
    n = 2 * steps if repaired else steps
    lags, rows = torch.from_numpy(w).flip(1).double(), torch.from_numpy(k).double()
    spectrum = torch.fft.rfft(lags, n) * torch.fft.rfft(rows, n)
    return (eps + torch.fft.irfft(spectrum, n)[..., :steps]).float().numpy()
