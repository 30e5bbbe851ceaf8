"""Exercises of the chapter "A matmul in blocks"."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from kernels.exercises import judges
from kernels.exercises.exercise import Exercise, call_kernel, prediction, problems
from kernels.matmul import BlockSizes, matmul
from kernels.pallas import calls
from kernels.workload import Workload, values


def _layer(workload, rng):
    m, k, n = (workload.sizes[name] for name in "mkn")
    return tuple(values("normal", shape, "float32", rng) for shape in ((m, k), (k, n), (n,)))


def _two(workload, rng):
    return _layer(workload, rng)[:2]


def _traffic(n, b):
    square = jax.ShapeDtypeStruct((n, n), jnp.float32)
    (call,) = calls(functools.partial(matmul, block=BlockSizes(b, b, b)), square, square)
    return call.traffic


EXERCISES = (
    Exercise(
        "matmul_bias",
        "Write layer(x, y, b, *, interpret) for relu(x y + b), [m, k], [k, n], [n] → [m, n], with "
        "blocks of 128 × 128 of the result; m and n are multiples of 128, k is any.",
        lambda x, y, b: np.maximum(x @ y + b, 0),
        call_kernel,
        problems(
            _layer,
            Workload("square", {"m": 256, "k": 256, "n": 256}),
            Workload("oblong", {"m": 128, "k": 64, "n": 384}, why="a block map with i for j"),
            Workload("thin", {"m": 256, "k": 1, "n": 128}),
        ),
        magnitude=lambda x, y, b: abs(x) @ abs(y) + abs(b),
        hint="On a TPU a row is a block of (1, 128) of b[None, :].",
    ),
    Exercise(
        "columns_first",
        "Write columns_first(x, y, *, interpret) for x y, [m, k], [k, n] → [m, n], with blocks of "
        "128 × 128 of the result, so that each block of y is fetched once; m and n are multiples "
        "of 128, k is any.",
        lambda x, y: x @ y,
        call_kernel,
        problems(
            _two,
            Workload("square", {"m": 256, "k": 256, "n": 256}),
            Workload("oblong", {"m": 128, "k": 64, "n": 384}, why="a block map with i for j"),
        ),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.fetches(x=4, y=2)),
        magnitude=lambda x, y: abs(x) @ abs(y),
        hint="The last coordinate of the grid runs fastest.",
    ),
    Exercise(
        "input_fusion",
        "Write fused(x, y, *, before, interpret) for before(x) y, [m, k], [k, n] → [m, n], where "
        "before is a function of each element, applied in the kernel; blocks of 128 × 128 of the "
        "result; m and n are multiples of 128, k is any.",
        lambda x, y, before: before(x) @ y,
        call_kernel,
        problems(
            _two,
            Workload("tanh", {"m": 256, "k": 64, "n": 128}, options={"before": jnp.tanh}),
            Workload("cos", {"m": 128, "k": 31, "n": 256}, options={"before": jnp.cos}),
        ),
        rungs=("interpret",),
        judge=judges.both(judges.lowered, judges.only_kernel),
        magnitude=lambda x, y, before: abs(before(x)) @ abs(y),
        hint="A kernel may take a function, by functools.partial.",
    ),
    prediction(
        "traffic",
        "Write traffic(n, b): the bytes that a float32 matmul of n × n matrices moves, with blocks "
        "of b × b × b; b divides n and is smaller.",
        _traffic,
        Workload("small", {"n": 256, "b": 128}, "int64"),
        Workload("eighths", {"n": 1024, "b": 128}, "int64"),
        Workload("halves", {"n": 1024, "b": 512}, "int64"),
        hint="How many programs are there? Each fetches a block of x and one of y.",
    ),
)
