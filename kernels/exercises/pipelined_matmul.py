"""Exercises of the chapter "A pipelined matmul"."""

import functools

import jax
import jax.numpy as jnp

from kernels import tpu
from kernels.exercises import judges
from kernels.exercises.exercise import Exercise, call_kernel, prediction, problems
from kernels.matmul import BlockSizes, matmul
from kernels.pallas import calls
from kernels.workload import Workload, values


def _traced(m, k, n, *block):
    """The matmul with these blocks, in bfloat16."""
    shapes = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((m, k), (k, n)))
    (call,) = calls(functools.partial(matmul, block=BlockSizes(*block)), *shapes)
    return call


def _lost(n, b):
    call = _traced(n, n, n, b, n, b)
    first = sum(operand.block_bytes for operand in call.inputs)
    return first / tpu.CHIPS["v5e"].hbm_bytes_per_cycle + 250 * len(call.programs)


def _vmem(bm, bk, bn):
    return sum(size for _, size in _traced(4 * bm, 4 * bk, 4 * bn, bm, bk, bn).buffers())


def _two(workload, rng):
    m, k, n = (workload.sizes[name] for name in "mkn")
    return tuple(values(workload.values, s, workload.dtype, rng) for s in ((m, k), (k, n)))


EXERCISES = (
    prediction(
        "lost",
        "Write lost(n, b): the cycles that a v5e loses in an n × n × n matmul in bfloat16 with "
        "blocks of b × n and n × b: the first fetch, and 250 for each program.",
        _lost,
        Workload("small", {"n": 1024, "b": 256}, "int64"),
        Workload("middle", {"n": 4096, "b": 512}, "int64"),
        Workload("large", {"n": 8192, "b": 1024}, "int64"),
        hint='tpu.CHIPS["v5e"].hbm_bytes_per_cycle is the bandwidth.',
    ),
    prediction(
        "vmem",
        "Write vmem(bm, bk, bn): the bytes that a matmul keeps in VMEM, with factors and result in "
        "bfloat16, sums in float32, and matrices of many blocks.",
        _vmem,
        Workload("cube", {"bm": 128, "bk": 128, "bn": 128}, "int64"),
        Workload("published", {"bm": 512, "bk": 1024, "bn": 1024}, "int64"),
        Workload("oblong", {"bm": 256, "bk": 512, "bn": 128}, "int64"),
        hint="Which operands have two buffers, and which array has one?",
    ),
    prediction(
        "better_order",
        "Write better_order(m, k, n, bm, bn): the bytes, those of the result too, that the better "
        "order of the grid moves, in bfloat16, with blocks of bm × k and k × bn.",
        lambda m, k, n, bm, bn: _traced(m, k, n, bm, k, bn).traffic,
        Workload("tall", {"m": 4096, "k": 512, "n": 1024, "bm": 512, "bn": 512}, "int64"),
        Workload("wide", {"m": 1024, "k": 512, "n": 4096, "bm": 256, "bn": 1024}, "int64"),
        Workload("square", {"m": 2048, "k": 256, "n": 2048, "bm": 512, "bn": 256}, "int64"),
        hint="The outer operand moves once. How often does the inner one?",
    ),
    Exercise(
        "backward",
        "Write product(x, y, *, interpret) for x y, with both gradients by jax.custom_vjp, each of "
        "them a Pallas kernel too; sizes are multiples of 128.",
        lambda x, y: x @ y,
        call_kernel,
        problems(
            _two,
            Workload("square", {"m": 128, "k": 128, "n": 128}),
            Workload("oblong", {"m": 128, "k": 256, "n": 384}, why="a gradient of another shape"),
            Workload("bfloat16", {"m": 128, "k": 256, "n": 128}, "bfloat16", why="sums of 8 bits"),
        ),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.kernels(3)),
        magnitude=lambda x, y: abs(x) @ abs(y),
        differentiable=("x", "y"),
        hint="If c comes back to z = x y, then c yᵀ goes to x, and xᵀ c to y.",
    ),
)
