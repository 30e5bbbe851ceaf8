"""Exercises of the chapter "Brick padding in Taichi"."""

import numpy as np

from kernels.lessons.exercises.bars import Bar, at
from kernels.lessons.exercises.counted import counted
from kernels.lessons.exercises.exercise import Exercise
from kernels.machines import taichi
from kernels.padding import reference
from kernels.proof.backends.python import PYTHON
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.workload import cases, values

MOST_DIVISIONS = 0.005  # for each pixel; level 2 has two for each row of pixels, 0.025
WALL = at(h=16, w=20, rows=24, cols=30, step=6)
OURS_DIVISIONS = 7 / (64 * 80)  # one for each row of bricks, and two for how many there are


def _tile(workload, rng):
    h, w, rows, cols, climb = workload.sizes.values()
    return values("normal", (h, w), "float32", rng), rows, cols, climb


def _walls(sizes, **more):
    return cases(
        sizes,
        chapter=(6, 10, 9, 14, 2),
        none=(5, 4, 0, 0, 2, "no border"),
        pixel=(1, 1, 3, 2, 0),
        **more,
    )


def _blank(tile, rows, cols):
    """What nobody writes is seen."""
    return np.full((tile.shape[0] + 2 * rows, tile.shape[1] + 2 * cols), np.nan, tile.dtype)


def _launch(kernel, tile, rows, cols, climb):
    out = _blank(tile, rows, cols)
    taichi.launch(kernel.made(), out, tile, rows, cols, climb)
    return out


def _numbered(workload, rng):
    h, w, step = workload.sizes.values()
    return np.arange(1, h * w + 1, dtype=np.float32).reshape(h, w), step


def _unit(tile, step):
    """The first rows of a wall, from its tile down, up to where it repeats; found in the wall."""
    rows = tile.size
    wall = reference.brick_pad(tile, border=(rows, 0), shift_y=(step, tile.shape[0]))[rows:]
    return wall[: next(p for p in range(1, rows + 1) if np.array_equal(wall[p:], wall[:-p]))]


def _divisions(tried):
    """Divisions and remainders for each pixel of the image."""
    out = _blank(*tried.arguments[:3])
    return counted(tried.answer, out, *tried.arguments).divisions / out.size


EXERCISES = (
    Exercise(
        "brick_unit",
        _unit,
        _numbered,
        cases(
            "h w step",
            small=(3, 8, 2),
            prime=(2, 7, 3),
            straight=(4, 5, 0, "rows that are not moved"),
            back=(3, 6, -4),
        ),
        backend=PYTHON,
    ),
    Exercise(
        "brick_fast",
        lambda tile, rows, cols, step: reference.brick_pad(
            tile, border=(rows, cols), shift_y=(step, tile.shape[0])
        ),
        _tile,
        _walls("h w rows cols step", back=(3, 7, 11, 4, -2)),
        call=_launch,
        backend=TAICHI,
        bar=Bar("divisions a pixel", _divisions, MOST_DIVISIONS, OURS_DIVISIONS, ".2g", WALL),
    ),
    Exercise(
        "brick_columns",
        lambda tile, rows, cols, climb: reference.brick_pad(
            tile, border=(rows, cols), shift_x=(tile.shape[1], climb)
        ),
        _tile,
        _walls("h w rows cols climb", down=(7, 3, 4, 11, -2)),
        call=_launch,
        backend=TAICHI,
    ),
)
