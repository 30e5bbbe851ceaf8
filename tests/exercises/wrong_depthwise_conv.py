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
def forward_lags(
    grad: ti.types.ndarray(ndim=2), c: ti.types.ndarray(ndim=3), k: ti.types.ndarray(ndim=3)
):
    for h, d in ti.ndrange(k.shape[1], k.shape[2]):
        total = 0.0
        for b in range(k.shape[0]):
            for t in range(d, k.shape[2]):
                total += c[b, h, t] * k[b, h, t - d]
        grad[h, d] = total


def most_rows(steps, blocks):
    return 102400 // blocks // (4 * steps)


WRONG = (
    ("conv_decay", zeros, "interpret", "every element is zero"),
    ("conv_decay", one_step_late, "interpret", "element [1, 1, 1]"),
    ("conv_decay", stops_early, "interpret", "element [0, 0, 39] is nan"),
    ("conv_causal", lambda function: True, "interpret", "for this one: The end of a row comes"),
    ("conv_causal", looks_at_the_end, "interpret", "True for this one: Causal but for"),
    ("conv_causal", lambda function: 1, "interpret", "True or False is wanted"),
    ("conv_fast", plainest, "speed", "2 loads for each product; the bar is 1, 100% away"),
    ("conv_fast", zeros, "interpret", "every element is zero"),
    ("conv_gradient", forward_lags, "interpret", "on small"),
    ("conv_rows", most_rows, "interpret", "on published"),
)
