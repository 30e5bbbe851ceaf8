"""Wrong answers to the exercises of this chapter, and what is said of each."""

import numpy as np
from taichi_if_there import ti


@ti.kernel
def stops_early(
    out: ti.types.ndarray(ndim=3), a: ti.types.ndarray(ndim=1), k: ti.types.ndarray(ndim=3)
):
    for b, c in ti.ndrange(k.shape[0], k.shape[1]):
        state = 0.0
        for t in range(k.shape[2] - 1):
            state = a[c] * state + k[b, c, t]
            out[b, c, t] = state


@ti.kernel
def one_step_late(
    out: ti.types.ndarray(ndim=3), a: ti.types.ndarray(ndim=1), k: ti.types.ndarray(ndim=3)
):
    for b, c in ti.ndrange(k.shape[0], k.shape[1]):
        state = 0.0
        for t in range(k.shape[2]):
            out[b, c, t] = state
            state = a[c] * state + k[b, c, t]


def conv_causal(function, steps=None):
    rng = np.random.default_rng(0)
    w, k = rng.standard_normal((2, 9)), rng.standard_normal((1, 2, 9))
    w, k = w.astype(np.float32), k.astype(np.float32)
    first = function(w, k, 0.5)
    for step in steps or range(1, 9):
        later = k.copy()
        later[..., step:] += 100
        if abs(function(w, later, 0.5) - first)[..., :step].max() > 1e-2:
            return False
    return True


def looks_at_the_end(function):
    return conv_causal(function, steps=[8])


@ti.kernel
def zeros(out: ti.types.ndarray(ndim=3), a: ti.types.ndarray(ndim=1), k: ti.types.ndarray(ndim=3)):
    for b, c, t in ti.ndrange(k.shape[0], k.shape[1], k.shape[2]):
        out[b, c, t] = 0.0


@ti.kernel
def plainest(
    out: ti.types.ndarray(ndim=3), w: ti.types.ndarray(ndim=2), k: ti.types.ndarray(ndim=3)
):
    for b, c, t in ti.ndrange(k.shape[0], k.shape[1], k.shape[2]):
        s = 0.0
        for u in range(t + 1):
            s += w[c, k.shape[2] - 1 - (t - u)] * k[b, c, u]
        out[b, c, t] = s


@ti.kernel
def in_tiles(
    out: ti.types.ndarray(ndim=3), w: ti.types.ndarray(ndim=2), k: ti.types.ndarray(ndim=3)
):
    B, C, T = k.shape[0], k.shape[1], k.shape[2]
    for group, c, tile in ti.ndrange((B + 3) // 4, C, (T + 3) // 4):
        b, t = 4 * group, 4 * tile
        s = ti.Vector([0.0] * 16)
        for u in range(ti.min(t + 4, T)):
            x = ti.Vector([0.0] * 4)
            for row in ti.static(range(4)):
                if b + row < B:
                    x[row] = k[b + row, c, u]
            for i in ti.static(range(4)):
                if u <= t + i and t + i < T:
                    weight = w[c, T - 1 - (t + i - u)]
                    for row in ti.static(range(4)):
                        s[4 * i + row] += weight * x[row]
        for i in ti.static(range(4)):
            for row in ti.static(range(4)):
                if t + i < T and b + row < B:
                    out[b + row, c, t + i] = s[4 * i + row]


@ti.kernel
def of_the_same_step(
    of_k: ti.types.ndarray(ndim=3),
    of_a: ti.types.ndarray(ndim=1),
    a: ti.types.ndarray(ndim=1),
    out: ti.types.ndarray(ndim=3),
    g: ti.types.ndarray(ndim=3),
):
    for c in range(a.shape[0]):
        total = 0.0
        for b in range(g.shape[0]):
            state = 0.0
            for back in range(g.shape[2]):
                t = g.shape[2] - 1 - back
                state = g[b, c, t] + a[c] * state
                of_k[b, c, t] = state
                total += state * out[b, c, t]
        of_a[c] = total


@ti.kernel
def forgets_the_later(
    of_k: ti.types.ndarray(ndim=3),
    of_a: ti.types.ndarray(ndim=1),
    a: ti.types.ndarray(ndim=1),
    out: ti.types.ndarray(ndim=3),
    g: ti.types.ndarray(ndim=3),
):
    for c in range(a.shape[0]):
        of_a[c] = 0.0
        for b in range(g.shape[0]):
            for t in range(g.shape[2]):
                of_k[b, c, t] = g[b, c, t]
                if t > 0:
                    of_a[c] += g[b, c, t] * out[b, c, t - 1]


def contains(function, steps=range(9), rows=2, before_only=True):
    w, k = np.ones((2, 9), np.float32), np.ones((rows, 2, 9), np.float32)
    for step in steps:
        loud = k.copy()
        loud[0, 0, step] = np.inf
        out = function(w, loud, 0.5)
        sees = np.zeros(k.shape, bool)
        sees[0, 0, step:] = True
        if not np.isfinite(out[~sees]).all() or (not before_only and np.isfinite(out[sees]).any()):
            return False
    return True


def where_a_tile_begins(function):
    return contains(function, steps=(0, 4, 8))


def one_row(function):
    return contains(function, rows=1)


def wants_it_later(function):
    return contains(function, before_only=False)


WRONG = (
    ("conv_decay", zeros, "interpret", "every element is zero"),
    ("conv_decay", one_step_late, "interpret", "element [1, 1, 1]"),
    ("conv_decay", stops_early, "interpret", "element [0, 0, 39] is nan"),
    ("conv_causal", lambda function: True, "interpret", "for this one: The end of a row comes"),
    ("conv_causal", looks_at_the_end, "interpret", "True for this one: Causal but for"),
    ("conv_causal", lambda function: 1, "interpret", "True or False is wanted"),
    ("conv_fast", plainest, "speed", "2 loads for each product; the bar is 0.4, 400% away"),
    ("conv_fast", in_tiles, "speed", "0.512 loads for each product; the bar is 0.4, 28% away"),
    ("conv_fast", zeros, "interpret", "every element is zero"),
    ("conv_gradient", of_the_same_step, "interpret", "element [121]"),
    ("conv_gradient", forgets_the_later, "interpret", "element [98]"),
    ("conv_infinity", where_a_tile_begins, "interpret", "for this one: Four steps at a time"),
    ("conv_infinity", one_row, "interpret", "for this one: The mean of all rows"),
    ("conv_infinity", wants_it_later, "interpret", "for this one: What is not finite"),
)
