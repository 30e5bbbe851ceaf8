"""Brick padding in Taichi: pieces of a doubled row of bricks, eight bytes a store.

A store of eight bytes begins at a multiple of eight, and the row that it copies from may begin
anywhere. So the bricks are kept once for each phase: in phase q the row begins q elements later.
"""

import numpy as np

from kernels import taichi
from kernels.padding.pieces import doubled, laid

ti = taichi.module()
Flat = ti.types.ndarray(ndim=1)
Words = ti.types.ndarray(dtype=ti.i64, ndim=1)
Phases = ti.types.ndarray(dtype=ti.i64, ndim=3)


@ti.kernel
def widened(
    out: Flat,  # [height · width] elements
    words: Words,  # the same memory
    pieces: ti.types.ndarray(ndim=2),  # [h, 2 n + k] elements
    phases: Phases,  # [k, h, 2 n / k] words
    height: ti.i32,
    width: ti.i32,
    up: ti.i32,
    left: ti.i32,
    step: ti.i32,
    period: ti.i32,
    k: ti.i32,  # elements in a word
):
    h, n = phases.shape[1], phases.shape[2] // 2
    for row in range(height):
        y = height - 1 - row - up
        v = y // h
        source = h - 1 - (y - v * h)
        j = (left - v * step) % period
        start = row * width
        head = (k - start % k) % k  # elements before the first whole word
        for c in range(head):
            out[start + c] = pieces[source, j + c]
        phase, first = (j + head) % k, (j + head) // k
        if first >= n:
            first -= n
        word, count = (start + head) // k, (width - head) // k
        whole = count // n
        for piece in range(whole):
            for c in range(n):
                words[word + piece * n + c] = phases[phase, source, first + c]
        for c in range(count - whole * n):
            words[word + whole * n + c] = phases[phase, source, first + c]
        done = head + count * k
        for c in range(width - done):
            out[start + done + c] = pieces[source, (j + done + c) % period]


def brick_pad(tile, plan, out):
    """[h, w] → out [height, width]. On a GPU, and where a row has less than eight bytes or begins
    between two words, by the kernels of levels.py."""
    from kernels.padding import levels

    if not isinstance(out, np.ndarray):
        return levels.brick_pad(tile, plan, out, 1)  # a thread for each pixel, in the row's order
    k = 8 // out.itemsize
    if plan.width < k or out.ctypes.data % 8:
        return levels.brick_pad(tile, plan, out, 3)
    pieces, n = doubled(laid(tile, plan), multiple=k, more=k)
    phases = np.stack([pieces[:, q : q + 2 * n] for q in range(k)]).view(np.int64)
    flat = out.reshape(-1)
    words = flat[: flat.size // k * k].view(np.int64)
    numbers = plan.height, plan.width, plan.up, plan.left, plan.step, plan.period, k
    taichi.launch(widened, flat, words, pieces, phases, *numbers)
    return out
