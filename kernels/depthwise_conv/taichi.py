"""The convolution in Taichi, forward and backward, for arrays and for tensors with gradients.

The kernels hold a tile of sums in registers. All three read both operands forwards in their
innermost loop, so that the compiler can make vectors of it. On a GPU the tile of a block lies in
shared memory: see shared.py.
"""

import functools

import numpy as np

from kernels.depthwise_conv.levels import (
    ROWS,
    STEPS,
    Batch,
    Weights,
    element,
    padded,
    plain,
    run,
    tiled,
)
from kernels.machines import taichi as machine
from kernels.machines.gpu.chips import chip as chip_of
from kernels.machines.gpu.kernel import GpuKernel, alone
from kernels.machines.taichi.ptx import ptx

ti = machine.module()

LAGS = 8  # that a thread of the gradient of w sums up


@functools.cache
def gradient_of_k(dtype):
    """kernel(gk, lags, g) for lags [C, T], which are w reversed, and g and gk [B, C, T].

    The gradient of the input, gk[b, c, u] = Σ_{t ≥ u} lags[c, t-u] · g[b, c, t]: what the forward
    kernel does, backwards in time.
    """

    @ti.kernel
    def kernel(gk: Batch, lags: Weights, g: Batch):
        B, C, T = g.shape[0], g.shape[1], g.shape[2]
        for c, group, tile in ti.ndrange(C, (B + ROWS - 1) // ROWS, (T + STEPS - 1) // STEPS):
            b0, u0 = group * ROWS, tile * STEPS
            s = ti.Matrix([[ti.cast(0, dtype)] * STEPS for _ in range(ROWS)])
            for j in ti.static(range(STEPS)):
                if u0 + j < T:
                    for b in ti.static(range(ROWS)):
                        x = g[ti.min(b0 + b, B - 1), c, u0 + j]
                        for i in ti.static(range(j + 1)):
                            s[b, i] += lags[c, j - i] * x
            for t in range(u0 + STEPS, T):
                for b in ti.static(range(ROWS)):
                    x = g[ti.min(b0 + b, B - 1), c, t]
                    for i in ti.static(range(STEPS)):
                        s[b, i] += lags[c, t - (u0 + i)] * x
            for b, i in ti.static(ti.ndrange(ROWS, STEPS)):
                if b0 + b < B and u0 + i < T:
                    gk[b0 + b, c, u0 + i] = s[b, i]

    return kernel


@functools.cache
def gradient_of_w(dtype):
    """kernel(gw, g, k) for g and k [B, C, T], and gw [C, T].

    The gradient of the weights, gw[c, (T-1) - d] = Σ_b Σ_{t ≥ d} g[b, c, t] · k[b, c, t-d].
    A thread has a channel and LAGS lags d, and sums over all rows.
    """

    @ti.kernel
    def kernel(gw: Weights, g: Batch, k: Batch):
        B, C, T = k.shape[0], k.shape[1], k.shape[2]
        for c, tile in ti.ndrange(C, (T + LAGS - 1) // LAGS):
            d0 = tile * LAGS
            s = ti.Vector([ti.cast(0, dtype)] * LAGS)
            for b in range(B):
                for j in ti.static(range(LAGS)):
                    if d0 + j < T:
                        for i in ti.static(range(j + 1)):
                            s[i] += g[b, c, d0 + j] * k[b, c, j - i]
                for t in range(d0 + LAGS, T):
                    x = g[b, c, t]
                    for i in ti.static(range(LAGS)):
                        s[i] += k[b, c, t - (d0 + i)] * x
            for i in ti.static(range(LAGS)):
                if d0 + i < T:
                    gw[c, (T - 1) - (d0 + i)] = s[i]

    return kernel


def _forward(w, k, eps):
    if not isinstance(k, np.ndarray) and k.is_cuda:
        from kernels.depthwise_conv import shared

        return shared.depthwise_conv(w, k, eps)
    return run(tiled(element(k)), k.shape, padded(w), k, eps)


def _backward_k(w, g):
    if g.is_cuda:
        from kernels.depthwise_conv import shared

        return shared.depthwise_conv(w, g.flip(2), 0.0).flip(2)
    return run(gradient_of_k(element(g)), g.shape, w.flip(1), g)


def _differentiable_gradients(w, k, g, needed):
    import torch

    from kernels.depthwise_conv.torch import depthwise_conv as plain

    wanted = [x for x, need in zip((w, k), needed, strict=False) if need]
    gradients = iter(torch.autograd.grad(plain(w, k, 0.0), wanted, g, create_graph=True))
    return [next(gradients) if need else None for need in needed[:2]]


@functools.cache
def _autograd():
    import torch

    class DepthwiseConv(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, k, eps):
            ctx.save_for_backward(w, k)
            return _forward(w, k, eps)

        @staticmethod
        def backward(ctx, g):
            w, k = ctx.saved_tensors
            if torch.is_grad_enabled():  # for a second derivative, which PyTorch's gradient has
                return (*_differentiable_gradients(w, k, g, ctx.needs_input_grad), None)
            g = g.contiguous()  # the gradient of a sum is one number, expanded
            gw = run(gradient_of_w(element(k)), w.shape, g, k) if ctx.needs_input_grad[0] else None
            gk = _backward_k(w, g) if ctx.needs_input_grad[1] else None
            return gw, gk, None

    return DepthwiseConv


def depthwise_conv(w, k, eps):
    """Arrays or tensors [C, T], [B, C, T] → [B, C, T]; tensors on the CPU or the first GPU."""
    if isinstance(k, np.ndarray):
        return _forward(w, k, eps)
    return _autograd().apply(w, k, eps)


def every(out, w, k):
    """v0, the tile of shared.py and the gradient of the weights, on whatever Taichi runs on."""
    from kernels.depthwise_conv import shared

    plain(ti.f32)(out, w, k, 0.0)
    shared.tiled(ti.f32)(out, w, k, 0.0)
    gradient_of_w(ti.f32)(w, out, k)


def compiled(*, chip: str = "rtx3090") -> dict[str, GpuKernel]:
    """The kernels of `every`, as Taichi compiles them for a GPU that is not there.

    Args:
        chip: one of kernels.gpu.CHIPS.

    Returns:
        "v0", "tile" and "gradient of w"; Taichi's grid depends on the chip alone.
    """
    from kernels.depthwise_conv.shared import BLOCK

    target = chip_of(chip)
    k = np.zeros((ROWS, 1, BLOCK), np.float32)
    launches = ptx(every, k, k[0], k, capability=target.capability, sms=target.sms)
    tasks = [task for task in launches if task.grid != (1, 1, 1)]  # one thread prepares each
    return {
        name: GpuKernel(t.name, chip, alone(t.ptx, t.name), t.grid, t.threads, t.shared_bytes)
        for name, t in zip(("v0", "tile", "gradient of w"), tasks, strict=True)
    }
