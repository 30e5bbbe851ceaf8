"""The problems that brick padding is proven on."""

import functools

from kernels.machines.optional import require
from kernels.proof.workload import Workload, Workloads, size, values

SHORT = ("uint8", "int16", "int32", "int64", "uint16", "float16", "bfloat16", "float32", "float64")


def _shape(workload):
    """[h, w], or [h, w, C] where C is not 0."""
    h, w, c = (workload.sizes[name] for name in "hwc")
    return (h, w, c) if c else (h, w)


def _make(workload, rng):
    return (values(workload.values, _shape(workload), workload.dtype, rng),)


def _problem(name, h, w, c=0, dtype="float32", why="", values="normal", **options):
    return Workload(name, {"h": h, "w": w, "c": c}, dtype, values, options, why=why)


def basis(h, w, step, across, mixing):
    """Two vectors of the lattice of bricks: rows that move by `step`, or columns if `across`.

    Args:
        h, w: rows and columns of a brick.
        step: how far each row, or column, moves against the one before.
        across: whether columns move.
        mixing: whole numbers; each adds so many times one vector to the other, in turn.

    Returns:
        Two vectors (x, y).
    """
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
    options = {"border": border, "shift_x": shift_x, "shift_y": shift_y}
    return _problem("random", h, w, int(rng.choice([0, 1, 3])), str(rng.choice(SHORT)), **options)


def limit(workload, device="cpu"):
    """Writing the result's memory once, PyTorch's ``fill_``: no padding can be faster.

    Args:
        workload: one of the operator's.
        device: "cpu" or "cuda".

    Returns:
        Its name, the call, and 1: that many of it.

    Raises:
        MissingPackage: without PyTorch.
    """
    torch = require("torch", "the time that writing the memory takes")
    h, w, *channels = _shape(workload)
    rows, cols = workload.options["border"]
    shape = (h + 2 * rows, w + 2 * cols, *channels)
    out = torch.empty(shape, dtype=getattr(torch, workload.dtype), device=device)
    return "fill_", functools.partial(out.fill_, 1), 1.0


PUBLISHED = {"border": (2048, 4096), "shift_y": (10, 48)}

brick_pad = Workloads(
    make=_make,
    draw=_draw,
    limit=limit,
    figures=(
        _problem("published", 48, 32, why="the published size: 4144 × 8224 pixels", **PUBLISHED),
        _problem("rgb", 48, 32, 3, "uint8", why="the same in colour", **PUBLISHED),
    ),
    named=(
        _problem("tiny", 3, 4, border=(2, 6), shift_y=(1, 3), why="the chapter's first wall"),
        _problem("one", 1, 1, border=(3, 2), why="a tile of one pixel"),
        _problem("no_border", 5, 7, border=(0, 0), why="the tile itself"),
        _problem("grid", 16, 8, border=(31, 17), why="no shift: tiles under tiles"),
        _problem(
            "small", 48, 32, border=(100, 200), shift_y=(10, 48), why="the published bricks, less"
        ),
        _problem("rgb_small", 48, 32, 3, "uint8", border=(33, 65), shift_y=(10, 48), why="bytes"),
        _problem("columns", 12, 9, border=(40, 50), shift_x=(9, 5), why="columns of bricks"),
        _problem(
            "skewed",
            6,
            4,
            border=(20, 30),
            shift_x=(5, 6),
            shift_y=(1, 6),
            why="a lattice that hides its rows",
        ),
        _problem("primes", 31, 101, border=(37, 211), shift_y=(-7, 31), why="no word divides them"),
        _problem(
            "bytes", 7, 5, 0, "uint8", border=(3, 1), shift_y=(2, 7), why="rows of a word less"
        ),
        _problem("wide", 2, 3, border=(1, 3000), shift_y=(1, 2), why="many bricks a row"),
        _problem("tall", 3, 2, border=(3000, 1), shift_y=(1, 3), why="far from the origin"),
        _problem("brain_float", 8, 8, 3, "bfloat16", border=(9, 9), why="a dtype Taichi lacks"),
        _problem("double", 8, 6, 0, "float64", border=(9, 9), shift_y=(1, 8), why="a word each"),
        _problem("long_ints", 8, 6, 2, "uint64", border=(9, 9), shift_y=(1, 8), why="all 64 bits"),
        _problem(
            "nonfinite", 9, 9, border=(20, 20), shift_y=(4, 9), values="nonfinite", why="NaN moves"
        ),
    ),
)
