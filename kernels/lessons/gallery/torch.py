"""Wrong functions of PyTorch tensors: brick padding, and a convolution by FFT."""

import functools

from kernels.lessons.gallery.bug import bug
from kernels.machines.optional import require
from kernels.proof.backends.torch import TORCH
from kernels.proof.workload import Workload, cases

_bug = functools.partial(bug, caught_by="interpret", needs="torch", backend=TORCH)
_pad = functools.partial(_bug, operator="brick_pad")


@_pad(
    title="The argument is changed",
    says="the reference",
    cause="pixels[..., 1] -= cols writes to the caller's table: the second call shifts it again.",
    lesson="One call proves nothing about the next: call twice, and compare the arguments.",
    workloads=(
        Workload("twice", {"h": 6, "w": 8, "c": 0}, options={"border": (5, 9), "shift_y": (2, 6)}),
    ),
)
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


@_pad(
    title="Indices in float32",
    says="integers are exact",
    cause="A matrix-vector product gives the places, and float32 has no odd numbers above 2²⁴.",
    lesson="Index with integers, or test a size beyond 16.8 million elements.",
    workloads=(
        Workload("small", {"h": 3, "w": 50, "c": 0}, "uint8", options={"border": (0, 0)}),
        Workload("large", {"h": 1, "w": 2**24 + 63, "c": 0}, "uint8", options={"border": (0, 0)}),
    ),
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


@_pad(
    title="One channel of three",
    says="shape is (11, 20)",
    cause="The gather indexes the flat tile, where a pixel in colour is three numbers.",
    lesson="Gather rows of channels; and let the contract name the shape of the result.",
    workloads=(
        Workload("grey", {"h": 5, "w": 6, "c": 0}, "uint8", options={"border": (3, 7)}),
        Workload("colour", {"h": 5, "w": 6, "c": 3}, "uint8", options={"border": (3, 7)}),
    ),
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


@_bug(
    title="The FFT lets the future wrap around into the past",
    operator="depthwise_conv",
    says="allowed",
    cause="A product of two transforms of length T is a convolution on a circle: step 0 sees the "
    "last steps as its past.",
    lesson="Transform with room for both, 2 T - 1 steps, and keep the first T. A causal operator "
    "deserves a test that changes the last step and looks at the first.",
    workloads=cases(
        "b c t", one_step=(2, 3, 1, "a circle of one step is a line"), circle=(2, 3, 64)
    ),
)
def circular_convolution(w, k, eps, *, repaired=False):
    """[C, T], [B, C, T] → [B, C, T]."""
    torch = require("torch", "this bug")
    steps = k.shape[2]
    n = 2 * steps if repaired else steps
    lags, rows = torch.from_numpy(w).flip(1).double(), torch.from_numpy(k).double()
    spectrum = torch.fft.rfft(lags, n) * torch.fft.rfft(rows, n)
    return (eps + torch.fft.irfft(spectrum, n)[..., :steps]).float().numpy()
