"""Exercises of the chapter "The XLA pipeline on a GPU"."""

import math

import numpy as np

from kernels.backends.python import PYTHON
from kernels.backends.xla import XLA
from kernels.exercises import judges
from kernels.exercises.exercise import Exercise, call, problems
from kernels.workload import Workload, values


def _sizes(workload, rng):
    return tuple(workload.sizes.values())


def _tile_bytes(m, n, k, stages):
    return stages * (m * k + k * n) * 2


def _gemm_blocks(m, n, tile_m, tile_n):
    return math.ceil(m / tile_m) * math.ceil(n / tile_n)


def _ring_bytes(size, gpus):
    return 2 * (gpus - 1) / gpus * size


def _offset(shape, layout, index):
    place = 0
    for axis in reversed(layout):  # the last named changes most slowly
        place = place * shape[axis] + index[axis]
    return place


def _layouts(workload, rng):
    rank = workload.sizes["rank"]
    shape = tuple(int(n) for n in rng.integers(2, 9, rank))
    layout = tuple(int(n) for n in rng.permutation(rank))
    return shape, layout, tuple(int(rng.integers(n)) for n in shape)


def _rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def _activations(workload, rng):
    rows, width = workload.sizes.values()
    return values("normal", (rows, width), "float32", rng), values("normal", width, "float32", rng)


def one_kernel(programs):
    """The program compiled for an H100 may be one kernel, and nothing else."""
    from kernels import gpu

    function, arrays = programs[0]
    steps = gpu.compile(function, *arrays, passes=False).thunks
    if len(steps) > 1:
        raise judges.Refused(f"{len(steps)} steps on an H100, one kernel wanted")
    return "one kernel on an H100"


EXERCISES = (
    Exercise(
        "hlo_offset",
        "Write offset(shape, layout, index): where element index of an array lies, counted in "
        "elements, if its layout in HLO is such as (1, 0): the axis named first changes fastest.",
        _offset,
        call,
        problems(
            _layouts,
            Workload("two", {"rank": 2}, "int64"),
            Workload("three", {"rank": 3}, "int64"),
            Workload("four", {"rank": 4}, "int64"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="Begin with the axis that is named last: it changes most slowly.",
    ),
    Exercise(
        "gemm_blocks",
        "Write blocks(m, n, tile_m, tile_n): how many blocks a product of m × n has whose blocks "
        "make a tile each.",
        _gemm_blocks,
        call,
        problems(
            _sizes,
            Workload("seed", {"m": 1024, "n": 2048, "tile_m": 64, "tile_n": 64}, "int64"),
            Workload("ragged", {"m": 1000, "n": 130, "tile_m": 128, "tile_n": 64}, "int64"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="A tile that is only partly inside is a tile.",
    ),
    Exercise(
        "tile_bytes",
        "Write shared(m, n, k, stages): the bytes of shared memory that a block takes for the "
        "tiles of both bfloat16 operands, m × k and k × n, with so many stages in flight.",
        _tile_bytes,
        call,
        problems(
            _sizes,
            Workload("usual", {"m": 128, "n": 128, "k": 64, "stages": 4}, "int64"),
            Workload("wide", {"m": 64, "n": 256, "k": 32, "stages": 3}, "int64"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="bfloat16 takes two bytes; the result stays in registers.",
    ),
    Exercise(
        "ring_bytes",
        "Write sent(size, gpus): the bytes that each of so many GPUs sends in an all-reduce of an "
        "array of `size` bytes around a ring.",
        _ring_bytes,
        call,
        problems(
            _sizes,
            Workload("two", {"size": 4096, "gpus": 2}, "float64"),
            Workload("eight", {"size": 1 << 20, "gpus": 8}, "float64"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="A reduce-scatter, then an all-gather; each sends gpus - 1 pieces of size / gpus.",
    ),
    Exercise(
        "one_gpu_kernel",
        "Write rms_norm(x, weight), x / sqrt(mean(x²) + 1e-6) weight over the last axis, [M, N] "
        "and [N] float32, so that XLA makes one kernel of it on an H100.",
        _rms_norm,
        call,
        problems(
            _activations,
            Workload("rows", {"m": 64, "n": 1024}),
            Workload("one", {"m": 1, "n": 256}),
        ),
        rungs=("interpret",),
        backend=XLA,
        magnitude=lambda x, weight: np.abs(_rms_norm(x, weight)),
        judge=one_kernel,
        hint="Write the formula, and put nothing between its parts.",
    ),
)
