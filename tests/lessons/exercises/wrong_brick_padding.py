"""Wrong answers to the exercises of this chapter, and what is said of each."""

import numpy as np
from taichi_if_there import ti


@ti.kernel
def falls(
    out: ti.types.ndarray(ndim=2),
    tile: ti.types.ndarray(ndim=2),
    rows: ti.i32,
    cols: ti.i32,
    climb: ti.i32,
):
    h, w = tile.shape[0], tile.shape[1]
    for row, col in ti.ndrange(out.shape[0], out.shape[1]):
        u = (col - cols) // w
        out[row, col] = tile[(row - rows - u * climb) % h, col - cols - u * w]


@ti.kernel
def reads_beyond(
    out: ti.types.ndarray(ndim=2),
    tile: ti.types.ndarray(ndim=2),
    rows: ti.i32,
    cols: ti.i32,
    climb: ti.i32,
):
    h, w = tile.shape[0], tile.shape[1]
    for col in range(out.shape[1]):
        u = (col - cols) // w
        x = col - cols - u * w
        i = (u * climb - rows) % h
        for row in range(out.shape[0]):
            out[row, col] = tile[i, x]
            i += 1
            after = tile[i, x]
            if i == h:
                i = 0
                after = 0.0
            if after > 1e30:
                out[row, col] = after


@ti.kernel
def zeros(
    out: ti.types.ndarray(ndim=2),
    tile: ti.types.ndarray(ndim=2),
    rows: ti.i32,
    cols: ti.i32,
    climb: ti.i32,
):
    for row, col in ti.ndrange(out.shape[0], out.shape[1]):
        out[row, col] = 0.0


@ti.kernel
def divides_for_each_pixel(
    out: ti.types.ndarray(ndim=2),
    tile: ti.types.ndarray(ndim=2),
    rows: ti.i32,
    cols: ti.i32,
    step: ti.i32,
):
    h, w = tile.shape[0], tile.shape[1]
    for row, col in ti.ndrange(out.shape[0], out.shape[1]):
        course = (row - rows) // h
        out[row, col] = tile[row - rows - course * h, (col - cols - course * step) % w]


@ti.kernel
def divides_for_each_row(
    out: ti.types.ndarray(ndim=2),
    tile: ti.types.ndarray(ndim=2),
    rows: ti.i32,
    cols: ti.i32,
    step: ti.i32,
):
    h, w = tile.shape[0], tile.shape[1]
    for row in range(out.shape[0]):
        course = (row - rows) // h
        j = (0 - cols - course * step) % w
        for col in range(out.shape[1]):
            out[row, col] = tile[row - rows - course * h, j]
            j += 1
            if j == w:
                j = 0


def unit(tile, step, courses=None):
    courses = courses or tile.shape[1] // np.gcd(tile.shape[1], step)
    return np.concatenate([np.roll(tile, step * course, 1) for course in range(courses)])


def not_the_smallest(tile, step):
    return unit(tile, step, courses=tile.shape[1])


def to_the_left(tile, step):
    return unit(tile, -step)


def copies(row, word, step, back=-1):
    return np.stack([np.roll(row, back * p) for p in range(0, word, np.gcd(word, step))])


def every_phase(row, word, step):
    return copies(row, word, 1)


def begins_elsewhere(row, word, step):
    return copies(row, word, step, back=1)


WRONG = (
    ("brick_unit", not_the_smallest, "interpret", "shape is (24, 8)"),
    ("brick_unit", to_the_left, "interpret", "element ["),
    ("brick_copies", every_phase, "interpret", "shape is (32, 96)"),
    ("brick_copies", begins_elsewhere, "interpret", "element [1, "),
    ("brick_columns", zeros, "interpret", "every element is zero"),
    ("brick_columns", falls, "interpret", "on down"),
    ("brick_columns", reads_beyond, "simulate", "Out of bound access to ndarray"),
    ("brick_fast", divides_for_each_pixel, "speed", "2 divisions a pixel; the bar is 0.005"),
    ("brick_fast", divides_for_each_row, "speed", "0.025 divisions a pixel; the bar is 0.005"),
    ("brick_fast", falls, "interpret", "element ["),
)
