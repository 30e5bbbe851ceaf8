"""The convolution in Taichi for a GPU: a block of threads keeps what it shares in shared memory.

A block has a channel, ROWS rows and BLOCK steps, a thread one of these steps. The block walks
through the past in chunks of BLOCK steps. Of each it loads the rows, and the 2 · BLOCK - 1 lags
between its own steps and those; then each thread walks through them once, so that up to BLOCK
threads read each element.
"""

import functools

from kernels.depthwise_conv.levels import ROWS, Batch, Weights, element, run
from kernels.machines import taichi as machine

ti = machine.module()

BLOCK = 128  # threads of a block, and steps of a chunk: 4 KiB of shared memory in float32


@functools.cache
def tiled(dtype):
    """kernel(out, w, k, eps) for w [C, T], k and out [B, C, T]."""

    @ti.kernel
    def kernel(out: Batch, w: Weights, k: Batch, eps: dtype):
        B, C, T = k.shape[0], k.shape[1], k.shape[2]
        groups, tiles = (B + ROWS - 1) // ROWS, (T + BLOCK - 1) // BLOCK
        ti.loop_config(block_dim=BLOCK)
        for thread in range(C * groups * tiles * BLOCK):
            lane, block = thread % BLOCK, thread // BLOCK
            t0, b0 = block % tiles * BLOCK, block // tiles % groups * ROWS
            c = block // (tiles * groups)
            lags = ti.simt.block.SharedArray((2 * BLOCK,), dtype)
            rows = ti.simt.block.SharedArray((ROWS, BLOCK), dtype)
            s = ti.Vector([eps] * ROWS)
            for chunk in range(t0 // BLOCK + 1):
                u0 = chunk * BLOCK
                first = t0 - u0 - BLOCK  # the lag in lags[0]
                for half in ti.static(range(2)):
                    lag = first + half * BLOCK + lane
                    lags[half * BLOCK + lane] = w[c, ti.min(ti.max((T - 1) - lag, 0), T - 1)]
                for b in ti.static(range(ROWS)):
                    rows[b, lane] = k[ti.min(b0 + b, B - 1), c, ti.min(u0 + lane, T - 1)]
                ti.simt.block.sync()
                for u in range(ti.min(BLOCK, t0 + lane - u0 + 1)):  # not the future
                    for b in ti.static(range(ROWS)):
                        s[b] += lags[BLOCK + lane - u] * rows[b, u]
                ti.simt.block.sync()  # before the next chunk overwrites this one
            for b in ti.static(range(ROWS)):
                if b0 + b < B and t0 + lane < T:
                    out[b0 + b, c, t0 + lane] = s[b]

    return kernel


def depthwise_conv(w, k, eps):
    """CUDA tensors [C, T], [B, C, T] → [B, C, T]."""
    return run(tiled(element(k)), k.shape, w, k, eps)
