"""The problems that brick padding is proven on."""

import functools

from kernels.machines.optional import require
from kernels.proof.workload import Workload, Workloads, cases, size, values

SHORT = ("uint8", "int16", "int32", "int64", "uint16", "float16", "bfloat16", "float32", "float64")


def _shape(workload):
    """[h, w], or [h, w, C] where C is not 0."""
    h, w, c = (workload.sizes[name] for name in "hwc")
    return (h, w, c) if c else (h, w)


def _make(workload, rng):
    return (values(workload.values, _shape(workload), workload.dtype, rng),)


def basis(h, w, step, across, mixing):
    """Two vectors (x, y) of the lattice of bricks h × w: rows that move by `step`, or columns if
    `across`; each number of `mixing` adds so many times one vector to the other, in turn."""
    vectors = [(w, step), (0, h)] if across else [(w, 0), (step, h)]
    for turn, times in enumerate(mixing):
        (a, b), (c, d) = vectors[turn % 2], vectors[1 - turn % 2]
        vectors[turn % 2] = (a + times * c, b + times * d)
    return tuple(vectors)


def _draw(rng):
    h, w = (min(size(rng), 65) for _ in "hw")
    mixing = rng.integers(-2, 3, 2).tolist()
    shift_x, shift_y = basis(h, w, int(rng.integers(-w, 2 * w)), bool(rng.integers(2)), mixing)
    border = tuple(int(rng.choice([0, 1, 7, 64, 130])) for _ in "rc")
    sizes = {"h": h, "w": w, "c": int(rng.choice([0, 1, 3]))}
    laid = _laid(*border, shift_x=shift_x, shift_y=shift_y)
    return Workload("random", sizes, str(rng.choice(SHORT)), **laid)


def _laid(rows, cols, **shifts):
    return {"options": {"border": (rows, cols), **shifts}}


def limit(workload, device="cpu"):
    """Writing the result's memory once, PyTorch's ``fill_``: no padding can be faster."""
    torch = require("torch", "the time that writing the memory takes")
    h, w, *channels = _shape(workload)
    rows, cols = workload.options["border"]
    shape = (h + 2 * rows, w + 2 * cols, *channels)
    out = torch.empty(shape, dtype=getattr(torch, workload.dtype), device=device)
    return "fill_", functools.partial(out.fill_, 1), 1.0


_PUBLISHED = _laid(2048, 4096, shift_y=(10, 48))
_SKEWED = _laid(20, 30, shift_x=(5, 6), shift_y=(1, 6))
_BYTES = {"dtype": "uint8"}

brick_pad = Workloads(
    make=_make,
    draw=_draw,
    limit=limit,
    figures=cases(
        "h w c",
        published=(48, 32, 0, "the published size: 4144 × 8224 pixels", _PUBLISHED),
        rgb=(48, 32, 3, "the same in colour", _BYTES, _PUBLISHED),
    ),
    named=cases(
        "h w c",
        tiny=(3, 4, 0, "the chapter's first wall", _laid(2, 6, shift_y=(1, 3))),
        one=(1, 1, 0, "a tile of one pixel", _laid(3, 2)),
        no_border=(5, 7, 0, "the tile itself", _laid(0, 0)),
        grid=(16, 8, 0, "no shift: tiles under tiles", _laid(31, 17)),
        small=(48, 32, 0, "the published bricks, less", _laid(100, 200, shift_y=(10, 48))),
        rgb_small=(48, 32, 3, "bytes", _BYTES, _laid(33, 65, shift_y=(10, 48))),
        columns=(12, 9, 0, "columns of bricks", _laid(40, 50, shift_x=(9, 5))),
        skewed=(6, 4, 0, "a lattice that hides its rows", _SKEWED),
        primes=(31, 101, 0, "no word divides them", _laid(37, 211, shift_y=(-7, 31))),
        bytes=(7, 5, 0, "rows of a word less", _BYTES, _laid(3, 1, shift_y=(2, 7))),
        wide=(2, 3, 0, "many bricks a row", _laid(1, 3000, shift_y=(1, 2))),
        tall=(3, 2, 0, "far from the origin", _laid(3000, 1, shift_y=(1, 3))),
        brain_float=(8, 8, 3, "a dtype Taichi lacks", {"dtype": "bfloat16"}, _laid(9, 9)),
        double=(8, 6, 0, "a word each", {"dtype": "float64"}, _laid(9, 9, shift_y=(1, 8))),
        long_ints=(8, 6, 2, "all 64 bits", {"dtype": "uint64"}, _laid(9, 9, shift_y=(1, 8))),
        nonfinite=(9, 9, 0, "NaN moves", {"values": "nonfinite"}, _laid(20, 20, shift_y=(4, 9))),
    ),
)
