"""Wrong answers to the exercises of this chapter, and what is said of each."""

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


WRONG = (
    ("brick_period", lambda h, w, step: h * w, "interpret", "the result is 24, the reference 12"),
    ("brick_phases", lambda period, word, shift: word, "interpret", "is 32, the reference 16"),
    ("brick_columns", zeros, "interpret", "every element is zero"),
    ("brick_columns", falls, "interpret", "on down"),
    ("brick_columns", reads_beyond, "simulate", "Out of bound access to ndarray"),
    ("brick_fast", divides_for_each_pixel, "speed", "2 divisions a pixel; the bar is 0.1"),
    ("brick_fast", falls, "interpret", "element ["),
)
