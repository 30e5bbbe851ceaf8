"""Exercises of the chapter "The same operator on every machine, and when not to write a kernel"."""

import jax
import jax.numpy as jnp
import numpy as np

from kernels.backends.pallas_gpu import PALLAS_GPU
from kernels.backends.python import PYTHON
from kernels.catalog import OPERATORS
from kernels.exercises.exercise import Exercise, call, call_kernel, problems
from kernels.giou.reference import giou
from kernels.workload import Workload


def _needed_speedup(share, wanted):
    left = 1 / wanted - (1 - share)  # of the step's time, for the part that is to be faster
    return np.where(left > 0, share / np.where(left > 0, left, 1), np.inf)


def _shares(workload, rng):
    n = workload.sizes["n"]
    share = rng.uniform(0.05, 0.95, n)
    best = 1 / (1 - share)  # what the step gains if the part takes no time at all
    reach = rng.uniform(0.05, 0.9, n)
    if workload.name == "out_of_reach":
        return share, best * (1 + reach)
    return share, 1 + (best - 1) * reach


def _ahead(ours, theirs, our_band, their_band):
    def least_and_most(times, band):
        low, high = band  # of the estimates, relative to what was measured
        return times / (1 + high), times / (1 + low)

    our_least, our_most = least_and_most(ours, our_band)
    their_least, their_most = least_and_most(theirs, their_band)
    return (our_most < their_least).astype(np.int64) - (their_most < our_least)


def _estimates(workload, rng):
    n = workload.sizes["n"]
    ours, theirs = 1e-3 * rng.lognormal(0, 0.5, (2, n))
    low, high = -rng.uniform(0, 0.4, (2, n)), rng.uniform(0, 0.8, (2, n))
    if workload.name == "measured":
        theirs[::10] = ours[::10]
        low, high = 0 * low, 0 * high
    return ours, theirs, *np.stack([low, high], 1)


def _linear(x, w):
    return jnp.tanh(x @ w).sum()


def _attend(q, k):
    return jnp.einsum("bqd,bkd->bqk", q, k)


def _repeated(x, w):
    """Five turns of a loop, of one product each."""
    return jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, length=5)[0]


# Programs, the shapes of their arguments, and how many products of which size they are made of.
PROGRAMS = {
    "linear": (_linear, ((6, 8), (8, 10)), 1, 6 * 8 * 10),
    "gradients": (jax.grad(_linear, (0, 1)), ((6, 8), (8, 10)), 3, 6 * 8 * 10),
    "batched": (jax.jit(_attend), ((2, 5, 4), (2, 7, 4)), 1, 2 * 5 * 7 * 4),
    "loop": (_repeated, ((6, 8), (8, 8)), 5, 6 * 8 * 8),
}


def _program(workload, rng):
    function, shapes, *_ = PROGRAMS[workload.name]
    return function, *(np.ones(shape, np.float32) for shape in shapes)


def _product_flops(function, *arguments):
    (found,) = (each for each in PROGRAMS.values() if each[0] is function)
    return np.int64(2 * found[2] * found[3])


EXERCISES = (
    Exercise(
        "needed_speedup",
        "Write needed_speedup(share, wanted): a part takes `share` of a step; how many times as "
        "fast must it become, so that the step becomes `wanted` times as fast? Infinity where no "
        "kernel can. Both are arrays of one shape.",
        _needed_speedup,
        call,
        problems(
            _shares,
            Workload("reachable", {"n": 50}, "float64"),
            Workload("out_of_reach", {"n": 50}, "float64", why="the rest alone takes longer"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="The rest of the step takes 1 - share, whatever you do. What is left for the part?",
    ),
    Exercise(
        "ahead",
        "Write ahead(ours, theirs, our_band, their_band): 1 where our kernel surely takes less "
        "time than theirs, -1 where it surely takes more, 0 where nobody can tell. The times are "
        "arrays of one shape [n]. A band is [2, n]: the least and the greatest relative error of "
        "such estimates, (estimated - measured) / measured.",
        _ahead,
        call,
        problems(
            _estimates,
            Workload("estimated", {"n": 200}, "float64"),
            Workload("measured", {"n": 200}, "float64", why="bands of zero, and ties"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="An estimate that is 25 % too high stands for t / 1.25. Surely less: even our slowest "
        "is faster than their fastest.",
    ),
    Exercise(
        "giou_on_a_gpu",
        "Write giou(preds, targets, *, interpret) → [B, N] for a GPU: one pl.pallas_call for "
        "Triton, with compiler_params=plgpu.CompilerParams(), that loads [B, N, 4] where it lies.",
        giou,
        call_kernel,
        problems(
            OPERATORS["giou"].workloads.make,
            *(OPERATORS["giou"].workloads[name] for name in ("one", "ragged", "degenerate")),
        ),
        rungs=("interpret", "compile"),
        backend=PALLAS_GPU,
        hint="Coordinate c of pair i is element 4 i + c of the flat array; blocks are powers of 2.",
    ),
    Exercise(
        "product_flops",
        "Write product_flops(function, *arguments): the operations of all matrix products in a "
        "JAX function's trace, two for a multiply-add; those inside jax.jit and jax.lax.scan are "
        "among them, each turn of a scan by itself.",
        _product_flops,
        call,
        problems(
            _program,
            Workload("linear", {"products": 1}),
            Workload("gradients", {"products": 3}, why="the trace of a gradient"),
            Workload("batched", {"products": 1}, why="a batch, and a jit around it"),
            Workload("loop", {"products": 5}, why="a scan of five turns"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="A dot_general has dimension_numbers among its params: what it sums over, and its "
        "batch. An equation's params may hold a jaxpr of its own, and a scan's its length.",
    ),
)
