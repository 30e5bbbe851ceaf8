"""Brick padding in Taichi: the bricks as words of many elements, and a store for each word.

A word of the image begins at a multiple of its size, and the place that it copies from may begin
anywhere. So the bricks are kept once for each phase: in phase q each word begins q elements later.
"""

import functools
import math

import numpy as np

from kernels.machines import taichi
from kernels.padding import levels

__all__ = ["widened"]
ti = taichi.module()

LANES = 4  # of 8 bytes in a word: four stores, and one place to find for all of them
PIECE = 2048  # bytes that the inner loop copies at a time, or a little more
TABLE = 2**22  # bytes of phases; more would not stay in a cache


@functools.cache
def widened(lanes: int):
    """The kernel for words of `lanes` times 8 bytes."""
    word = ti.types.vector(lanes, ti.i64)

    @ti.kernel
    def pad(
        out: ti.types.ndarray(ndim=1),  # [height · width] elements
        words: ti.types.ndarray(dtype=word, ndim=1),  # the same memory, as far as words go
        bricks: ti.types.ndarray(ndim=2),  # [h, period] elements
        phases: ti.types.ndarray(dtype=word, ndim=3),  # [k, h, …] words
        height: ti.i32,
        width: ti.i32,
        up: ti.i32,
        left: ti.i32,
        step: ti.i32,
        n: ti.i32,  # words in a piece
    ):
        k, h, period = phases.shape[0], bricks.shape[0], bricks.shape[1]
        for row in range(height):
            y = height - 1 - row - up
            v = y // h
            source = h - 1 - (y - v * h)
            j = (left - v * step) % period
            start = row * width
            head = ti.min((k - start % k) % k, width)  # elements before the first whole word
            for c in range(head):
                out[start + c] = bricks[source, (j + c) % period]
            first, count = (start + head) // k, (width - head) // k
            for piece in range((count + n - 1) // n):
                at = (j + head + piece * n * k) % period
                phase, begin = at % k, at // k
                for c in range(ti.min(n, count - piece * n)):
                    words[first + piece * n + c] = phases[phase, source, begin + c]
            for c in range(head + count * k, width):
                out[start + c] = bricks[source, (j + c) % period]

    return pad


def in_phases(bricks, k, n):
    """[h, period] → [k, h, …]: phase q has n words of the row from each word of k on."""
    period = bricks.shape[1]
    length = ((period - 1) // k + n) * k
    long = np.take(bricks, np.arange(length + k) % period, axis=1)
    return np.stack([long[:, q : q + length] for q in range(k)])


def brick_pad(tile, plan, out, lanes=LANES):
    """[h, w] → out [height, width], by words of `lanes` times 8 bytes.

    On a GPU, and where words do not fit, by the kernels of levels.py: rows shorter than a word,
    memory that begins between two, bricks beyond a cache.
    """
    if not isinstance(out, np.ndarray):
        return levels.brick_pad(tile, plan, out, 1)  # a thread for each pixel
    bricks, size = plan.laid(tile), out.itemsize
    k = 8 * lanes // size
    whole = math.lcm(plan.period, k) // k  # words until place and phase are the same again
    n = PIECE // (8 * lanes)
    n = -(-n // whole) * whole if whole <= n else n
    table = k * plan.h * (plan.period + n * k) * size
    if plan.width < k or out.ctypes.data % 8 or table > TABLE:
        return levels.brick_pad(tile, plan, out, 3)

    def as_words(elements):
        return elements.view(np.int64).reshape(*elements.shape[:-1], -1, lanes)

    flat = out.reshape(-1)
    words, phases = as_words(flat[: flat.size // k * k]), as_words(in_phases(bricks, k, n))
    numbers = plan.height, plan.width, plan.up, plan.left, plan.step, n
    taichi.launch(widened(lanes), flat, words, bricks, phases, *numbers)
    return out


of_8_bytes = functools.partial(brick_pad, lanes=1)  # level 4: a store of one number
