"""Exercises of the chapter "Matmul on Hopper"."""

import math

import numpy as np

from kernels.backends.mosaic_gpu import MOSAIC_GPU
from kernels.exercises import judges
from kernels.exercises.exercise import Exercise, prediction, problems
from kernels.exercises.gpu_without_a_gpu import one_matrix, two_matrices
from kernels.workload import Workload

REGISTERS = 168  # of a thread of the fast product
BLOCKS = 2  # of it that an SM keeps
WIDE = "HGMMA.64x128x16"


# The backend gives interpret= to those whose signature names it.
def _called(answer, *arguments, interpret):
    return answer(*arguments, interpret=interpret)


def _stage_bytes(bm, bn, bk, stages):
    return 2 * (stages * (bm + bn) * bk + bm * bn)


def _sum_registers(bm, bn, warpgroups):
    return bm * bn / (128 * warpgroups)


def _copied(m, k, n, bm, bn):
    return 2 * k * math.ceil(m / bm) * math.ceil(n / bn) * (bm + bn)


def _wide(programs):
    """The kernel multiplies 64 × 128 at a time, spills nothing, and leaves room for another."""
    from kernels import gpu

    function, arrays = programs[0]
    kernel = gpu.compile(function, *arrays, passes=False).kernel()
    products = {i.name for i in kernel.instructions if i.operation == "HGMMA"}
    if narrow := sorted(name for name in products if not name.startswith(WIDE)):
        raise judges.Refused(f"{narrow[0]} in its machine code, {WIDE} wanted")
    return judges.on_gpu(registers=REGISTERS, blocks=BLOCKS, uses="HGMMA")(programs)


EXERCISES = (
    prediction(
        "hopper_bytes",
        "Write shared(bm, bn, bk, stages): bytes of shared memory that a block needs for so many "
        "stages of its tiles of x and y, and for its tile of the result, all bfloat16.",
        _stage_bytes,
        Workload("step_3", {"bm": 128, "bn": 128, "bk": 64, "stages": 4}, "int64"),
        Workload("step_4", {"bm": 128, "bn": 256, "bk": 64, "stages": 3}, "int64"),
        Workload("one", {"bm": 64, "bn": 128, "bk": 128, "stages": 1}, "int64"),
        hint="A stage holds bm × bk and bk × bn numbers of two bytes; the result is there once.",
    ),
    prediction(
        "hopper_registers",
        "Write registers(bm, bn, warpgroups): registers of a thread that hold the float32 sums of "
        "a tile which so many warpgroups share.",
        _sum_registers,
        Workload("one", {"bm": 128, "bn": 128, "warpgroups": 1}, "float64"),
        Workload("two", {"bm": 128, "bn": 256, "warpgroups": 2}, "float64"),
        Workload("most", {"bm": 256, "bn": 256, "warpgroups": 2}, "float64", why="255 there are"),
        hint="A warpgroup is 128 threads, and a sum takes one register.",
    ),
    prediction(
        "hopper_copied",
        "Write copied(m, k, n, bm, bn): bytes that all blocks together copy into shared memory "
        "for x [m, k] and y [k, n] in bfloat16, a tile of the result bm × bn each.",
        _copied,
        Workload("square", {"m": 4096, "k": 4096, "n": 4096, "bm": 128, "bn": 128}, "int64"),
        Workload("wide", {"m": 4096, "k": 4096, "n": 4096, "bm": 128, "bn": 256}, "int64"),
        Workload("ragged", {"m": 300, "k": 64, "n": 500, "bm": 128, "bn": 256}, "int64"),
        hint="Each block copies bm rows of x and bn columns of y, k long; how many blocks?",
    ),
    Exercise(
        "hopper_turns",
        "Write turns(x, *, interpret) for a Hopper GPU: [M, 64] float32 → 2 x, M a multiple of 64, "
        "a block for each 64 rows, which TMA copies into shared memory and out of it.",
        lambda x: 2 * x,
        _called,
        problems(
            one_matrix,
            Workload("one", {"m": 64, "n": 64}),
            Workload("several", {"m": 192, "n": 64}),
        ),
        rungs=("interpret", "simulate"),
        backend=MOSAIC_GPU,
        hint="copy_gmem_to_smem and barrier_wait; then commit_smem, copy_smem_to_gmem and "
        "wait_smem_to_gmem.",
    ),
    Exercise(
        "hopper_handover",
        "Write handover(x, *, interpret) for a Hopper GPU: [64, N] float32 → 3 x + 1, N a multiple "
        "of 64, with two warpgroups: the first puts 3 x into shared memory, the second adds 1 on "
        "the way out.",
        lambda x: 3 * x + 1,
        _called,
        problems(
            one_matrix,
            Workload("tile", {"m": 64, "n": 128}),
            Workload("narrow", {"m": 64, "n": 64}),
        ),
        rungs=("interpret", "simulate"),
        backend=MOSAIC_GPU,
        magnitude=lambda x: np.abs(3 * x) + 1,
        hint="num_threads=2, and a plgpu.Barrier that one arrives at and the other waits for.",
    ),
    Exercise(
        "hopper_product",
        "Write product(x, y, *, interpret) for a Hopper GPU: [M, K], [K, N] bfloat16 → [M, N] "
        "bfloat16, sizes multiples of 256, by TMA and wgmma. Compiled for an H100 it multiplies by "
        f"{WIDE}, spills nothing, has at most {REGISTERS} registers a thread, and {BLOCKS} blocks "
        "fit into an SM.",
        lambda x, y: x @ y,
        _called,
        problems(
            two_matrices,
            Workload("cube", {"m": 256, "k": 256, "n": 256}, "bfloat16"),
            Workload("flat", {"m": 256, "k": 512, "n": 256}, "bfloat16"),
        ),
        rungs=("interpret", "simulate"),
        backend=MOSAIC_GPU,
        magnitude=lambda x, y: np.abs(x) @ np.abs(y),
        judge=_wide,
        hint="An SM has 228 KiB of shared memory: count the stages and the tile of the result.",
    ),
)
