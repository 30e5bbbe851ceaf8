"""Exercises of the chapter "A GPU without a GPU"."""

import math

import jax.numpy as jnp
import numpy as np

from kernels.backends.pallas_gpu import PALLAS_GPU
from kernels.backends.python import PYTHON
from kernels.exercises import judges
from kernels.exercises.exercise import Exercise, call, call_kernel, problems
from kernels.gpu.occupancy import occupancy
from kernels.workload import Workload, values

REGISTERS = 128  # of a thread of the fast product: two blocks of 256 threads then fit into an SM
BLOCKS = 2


def _sizes(workload, rng):
    return tuple(workload.sizes.values())


def _blocks(threads, registers, shared_bytes):
    return occupancy("h100", threads=threads, registers=registers, shared_bytes=shared_bytes).blocks


def _lines(stride, size):
    return len({stride * i * size // 128 for i in range(32)})


def _busy(blocks, at_once):
    return blocks / (math.ceil(blocks / at_once) * at_once)


def one_matrix(workload, rng):
    """Float32 numbers of the shape that the sizes are."""
    return (values("normal", tuple(workload.sizes.values()), "float32", rng),)


def two_matrices(workload, rng):
    """The operands of a product, [M, K] and [K, N] of bfloat16."""
    m, k, n = workload.sizes.values()
    return tuple(
        values("normal", shape, "float32", rng).astype(jnp.bfloat16) for shape in ((m, k), (k, n))
    )


EXERCISES = (
    Exercise(
        "gpu_blocks",
        "Write blocks(threads, registers, shared_bytes): how many blocks of a kernel an SM of an "
        "H100 keeps at once; registers are those of a thread, the rest is of a block.",
        _blocks,
        call,
        problems(
            _sizes,
            Workload("registers", {"t": 256, "r": 112, "s": 0}, "int64"),
            Workload("shared", {"t": 128, "r": 32, "s": 98304}, "int64"),
            Workload("threads", {"t": 1024, "r": 32, "s": 0}, "int64"),
            Workload("small", {"t": 32, "r": 16, "s": 0}, "int64", why="32 blocks at most"),
            Workload("rounded", {"t": 96, "r": 65, "s": 5000}, "int64", why="65 is given as 72"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="Four limits. A warp is given its registers 256 at a time, each of four schedulers "
        "has 16,384; a block is given shared memory 128 bytes at a time, and 1,024 more.",
    ),
    Exercise(
        "warp_lines",
        "Write lines(stride, size): how many lines of 128 bytes a warp touches whose thread i, of "
        "32, reads element stride * i, of size bytes; element 0 begins a line.",
        _lines,
        call,
        problems(
            _sizes,
            Workload("next", {"stride": 1, "size": 4}, "int64"),
            Workload("same", {"stride": 0, "size": 4}, "int64"),
            Workload("column", {"stride": 4096, "size": 4}, "int64"),
            Workload("third", {"stride": 3, "size": 2}, "int64"),
            Workload("wide", {"stride": 1, "size": 16}, "int64"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="A set of the lines: which line does each thread's first byte lie in?",
    ),
    Exercise(
        "last_wave",
        "Write busy(blocks, at_once): the share of a GPU's places for blocks that are taken, on "
        "average, where a grid of so many blocks runs in waves of at_once and all take as long.",
        _busy,
        call,
        problems(
            _sizes,
            Workload("full", {"blocks": 264, "at_once": 264}, "float64"),
            Workload("one_more", {"blocks": 265, "at_once": 264}, "float64"),
            Workload("many", {"blocks": 4000, "at_once": 132}, "float64"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="The last wave takes as long as the others, however few blocks are in it.",
    ),
    Exercise(
        "gpu_row_sums",
        "Write row_sums(x, *, interpret) for a GPU: [M, N] float32 → [M], a program for each row, "
        "in Pallas for Triton; N may be any number up to 1024.",
        lambda x: x.sum(1),
        call_kernel,
        problems(
            one_matrix,
            Workload("ragged", {"m": 3, "n": 1000}),
            Workload("one", {"m": 1, "n": 1}),
            Workload("whole", {"m": 2, "n": 1024}),
        ),
        rungs=("interpret", "compile"),
        backend=PALLAS_GPU,
        magnitude=lambda x: np.abs(x).sum(1),
        hint="Load 1024 numbers with a mask, and 0 where it is false.",
    ),
    Exercise(
        "gpu_product",
        "Write product(x, y, *, interpret) for a GPU: [M, K], [K, N] bfloat16 → [M, N] float32, "
        "sizes multiples of 256, whose kernel spills nothing on an H100, has at most "
        f"{REGISTERS} registers a thread, at least {BLOCKS} blocks an SM, and uses HGMMA.",
        lambda x, y: x @ y,
        call_kernel,
        problems(
            two_matrices,
            Workload("cube", {"m": 256, "k": 256, "n": 256}, "bfloat16"),
            Workload("flat", {"m": 256, "k": 512, "n": 256}, "bfloat16"),
        ),
        rungs=("interpret",),
        backend=PALLAS_GPU,
        magnitude=lambda x, y: np.abs(x) @ np.abs(y),
        judge=judges.on_gpu(registers=REGISTERS, blocks=BLOCKS, uses="HGMMA"),
        hint="A tile of 128 × 128 float32 is 16,384 numbers: how many threads share them?",
    ),
)
