"""Wrong answers to the exercises of "The XLA pipeline on a GPU", and what is said of each."""

import jax
import jax.numpy as jnp


def offset(shape, layout, index):
    place = 0
    for axis in layout:
        place = place * shape[axis] + index[axis]
    return place


def blocks(m, n, tile_m, tile_n):
    return (m // tile_m) * (n // tile_n)


def shared(m, n, k, stages):
    return stages * (m * k + k * n + m * n) * 2


def sent(size, gpus):
    return size * (gpus - 1)


def rms_norm(x, weight):
    squares = jax.lax.optimization_barrier((x * x).mean(-1, keepdims=True))
    return x / jnp.sqrt(squares + 1e-6) * weight


WRONG = (
    ("hlo_offset", offset, "interpret", "the reference"),
    ("gemm_blocks", blocks, "interpret", "on ragged"),
    ("tile_bytes", shared, "interpret", "the reference 131072"),
    ("ring_bytes", sent, "interpret", "on eight"),
    ("one_gpu_kernel", rms_norm, "compile", "steps on an H100, one kernel wanted"),
)
