"""Exercises of the chapter "Brick padding in Taichi"."""

import itertools

import numpy as np

from kernels import taichi
from kernels.backends.taichi import TAICHI
from kernels.exercises.exercise import Exercise, prediction, problems
from kernels.padding import reference
from kernels.padding.lattice import normal_form
from kernels.workload import Workload, values


def _tile(workload, rng):
    h, w, rows, cols, climb = workload.sizes.values()
    return values("normal", (h, w), "float32", rng), rows, cols, climb


def _columns(tile, rows, cols, climb):
    border = rows, cols
    return reference.brick_pad(tile, border=border, shift_x=(tile.shape[1], climb))


def _launch(kernel, tile, rows, cols, climb):
    shape = tile.shape[0] + 2 * rows, tile.shape[1] + 2 * cols
    out = np.full(shape, np.nan, tile.dtype)  # what nobody writes is seen
    taichi.launch(kernel.made(), out, tile, rows, cols, climb)
    return out


def _period(h, w, step):
    """Rows of pixels until a wall of rows of bricks repeats, found in the wall itself."""
    tile = np.arange(h * w).reshape(h, w)
    rows = h * w
    wall = reference.brick_pad(tile, border=(rows, w), shift_y=(step, h))
    return next(p for p in range(1, rows + 1) if np.array_equal(wall[p:], wall[:-p]))


def _walls(h, w):
    """Different lattices among all pairs of vectors that are near."""
    near, found = range(-2 * max(h, w), 2 * max(h, w) + 1), set()
    for a, b, c, d in itertools.product(near, repeat=4):
        if abs(a * d - b * c) == h * w:
            try:
                found.add(normal_form(h, w, (a, b), (c, d)))
            except ValueError:
                continue
    return len(found)


def _phases(period, word, shift):
    return len({-shift * v % period % word for v in range(period)})


EXERCISES = (
    prediction(
        "brick_period",
        "Write period(h, w, step): after how many rows of pixels the wall repeats, if a brick is "
        "h pixels high and w wide, and each row of bricks is moved by `step` pixels.",
        _period,
        Workload("small", {"h": 3, "w": 8, "step": 2}),
        Workload("prime", {"h": 2, "w": 7, "step": 3}),
        Workload("straight", {"h": 4, "w": 5, "step": 0}, why="rows that are not moved"),
        Workload("back", {"h": 3, "w": 6, "step": -4}),
        hint="After how many rows of bricks is the shift a multiple of w?",
    ),
    prediction(
        "brick_walls",
        "Write walls(h, w): how many different walls can be laid with a tile of h × w pixels.",
        _walls,
        Workload("oblong", {"h": 2, "w": 3}),
        Workload("pixel", {"h": 1, "w": 1}),
        Workload("line", {"h": 1, "w": 4}),
        Workload("square", {"h": 3, "w": 3}),
        hint="Walls of rows have shifts 0 to w - 1. Which of them is a wall of columns too?",
    ),
    prediction(
        "brick_phases",
        "Write phases(period, word, shift): in how many phases a row of bricks can begin, all in "
        "bytes: its period is a multiple of the word, and each row is moved by `shift`.",
        _phases,
        Workload("chapter", {"period": 96, "word": 32, "shift": 30}),
        Workload("whole", {"period": 96, "word": 32, "shift": 32}),
        Workload("odd", {"period": 64, "word": 32, "shift": 5}),
        Workload("narrow", {"period": 96, "word": 8, "shift": 12}),
        hint="A row begins at a multiple of gcd(period, shift).",
    ),
    Exercise(
        "brick_columns",
        "Write the Taichi kernel columns(out, tile, rows, cols, climb) of a wall of columns of "
        "bricks, as level 2 has it: each column lies `climb` pixels higher than the one to its "
        "left, `rows` and `cols` are the border; it sees its arguments and ti, no more.",
        _columns,
        _launch,
        problems(
            _tile,
            Workload("chapter", {"h": 6, "w": 10, "rows": 9, "cols": 14, "climb": 3}),
            Workload("none", {"h": 5, "w": 4, "rows": 0, "cols": 0, "climb": 2}, why="no border"),
            Workload("down", {"h": 7, "w": 3, "rows": 4, "cols": 11, "climb": -2}),
            Workload("pixel", {"h": 1, "w": 1, "rows": 3, "cols": 2, "climb": 0}),
        ),
        rungs=("interpret", "simulate"),
        backend=TAICHI,
        hint="In the image's first row, which row of the tile is that? Rows count down, climb up.",
    ),
)
