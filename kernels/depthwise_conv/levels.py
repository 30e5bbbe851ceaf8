"""The chapter's levels: forward kernels in Taichi, one change each. The last is the tile of
taichi.py.

v0: a thread for each element. v1: four steps a thread, so that a k is read once for four products.
v2: zeros before the weights, so that no index has to be bounded. v3: four rows a thread, so that a
weight is read once for four products too.

Each factory takes Taichi's dtype and gives kernel(out, w, k, eps) for w [C, T] or, from v2 on,
[C, STEPS + T], and k and out [B, C, T].
"""

import functools

import numpy as np

from kernels.machines import taichi as machine

__all__ = ["every", "flipped", "plain", "steps", "tiled"]
ti = machine.module()
Weights = ti.types.ndarray(ndim=2)  # [C, T]
Batch = ti.types.ndarray(ndim=3)  # [B, C, T]

STEPS, ROWS = 4, 4  # of a tile; a larger one loses: its sums no longer fit into the registers


@functools.cache
def plain(dtype):
    """v0."""

    @ti.kernel
    def kernel(out: Batch, w: Weights, k: Batch, eps: dtype):
        T = k.shape[2]
        for b, c, t in ti.ndrange(k.shape[0], k.shape[1], T):
            s = eps
            for u in range(t + 1):
                s += w[c, (T - 1) - (t - u)] * k[b, c, u]
            out[b, c, t] = s

    return kernel


@functools.cache
def steps(dtype):
    """v1."""

    @ti.kernel
    def kernel(out: Batch, w: Weights, k: Batch, eps: dtype):
        T = k.shape[2]
        for b, c, tile in ti.ndrange(k.shape[0], k.shape[1], (T + STEPS - 1) // STEPS):
            t0 = tile * STEPS
            s = ti.Vector([eps] * STEPS)
            for u in range(t0):  # the past of all four
                for i in ti.static(range(STEPS)):  # a step too many has a lag too many
                    s[i] += w[c, ti.max((T - 1) - (t0 + i - u), 0)] * k[b, c, u]
            for j in ti.static(range(STEPS)):  # each other's past
                if t0 + j < T:
                    for i in ti.static(range(j, STEPS)):
                        s[i] += w[c, ti.max((T - 1) - (i - j), 0)] * k[b, c, t0 + j]
            for i in ti.static(range(STEPS)):
                if t0 + i < T:
                    out[b, c, t0 + i] = s[i]

    return kernel


@functools.cache
def tiled(dtype, rows=ROWS, flipped=False):
    """v2 with one row, v3 with four.

    Args:
        dtype: Taichi's.
        rows: of a tile.
        flipped: for weights that lie the other way round, lag 0 first and the zeros last. It looks
            tidier, and is slower.

    Returns:
        kernel(out, w, k, eps).
    """

    @ti.func
    def place(lag, last):
        return lag if ti.static(flipped) else last - lag

    @ti.kernel
    def kernel(out: Batch, w: Weights, k: Batch, eps: dtype):
        B, C, T = k.shape[0], k.shape[1], k.shape[2]
        last = STEPS + T - 1  # where the weight of lag 0 lies, behind the zeros
        for c, group, tile in ti.ndrange(C, (B + rows - 1) // rows, (T + STEPS - 1) // STEPS):
            b0, t0 = group * rows, tile * STEPS
            s = ti.Matrix([[eps] * STEPS for _ in range(rows)])
            for u in range(t0):
                for b in ti.static(range(rows)):
                    x = k[ti.min(b0 + b, B - 1), c, u]  # a row too many repeats the last one
                    for i in ti.static(range(STEPS)):
                        s[b, i] += w[c, place(t0 + i - u, last)] * x
            for j in ti.static(range(STEPS)):
                if t0 + j < T:
                    for b in ti.static(range(rows)):
                        x = k[ti.min(b0 + b, B - 1), c, t0 + j]
                        for i in ti.static(range(j, STEPS)):
                            s[b, i] += w[c, place(i - j, last)] * x
            for b, i in ti.static(ti.ndrange(rows, STEPS)):
                if b0 + b < B and t0 + i < T:
                    out[b0 + b, c, t0 + i] = s[b, i]

    return kernel


def element(k):
    """Taichi's dtype of an array's elements."""
    return {"float32": ti.f32, "float64": ti.f64}[str(k.dtype).removeprefix("torch.")]


def padded(w, front=STEPS, back=0):
    """[C, T] → [C, front + T + back]: zeros for lags that only steps beyond the end have."""
    if isinstance(w, np.ndarray):
        return np.pad(w, ((0, 0), (front, back)))
    import torch

    return torch.nn.functional.pad(w, (front, back))


def run(kernel, shape, *arguments):
    """What kernel(out, *arguments) writes to a new array of that shape, like the first argument."""
    out = machine.empty(shape, arguments[0])
    machine.launch(kernel, out, *arguments)
    return out


def depthwise_conv(w, k, eps, level):
    """Arrays or tensors [C, T], [B, C, T] → [B, C, T], at one of the four levels."""
    dtype = element(k)
    kernel = (plain(dtype), steps(dtype), tiled(dtype, 1), tiled(dtype))[level]
    return run(kernel, k.shape, w if level < 2 else padded(w), k, eps)


def flipped(w, k, eps):
    """v3 with its weights the other way round."""
    reverse = np.flip(w, 1) if isinstance(w, np.ndarray) else w.flip(1)
    return run(tiled(element(k), ROWS, True), k.shape, padded(reverse, 0, STEPS), k, eps)


def every(w, k, eps=0.0):
    """The results of v0 to v3 and of `flipped`; five kernels to compare what is made of them."""
    return [*(depthwise_conv(w, k, eps, level) for level in range(4)), flipped(w, k, eps)]


v0, v1, v2, v3 = (functools.partial(depthwise_conv, level=level) for level in range(4))
