"""Exercises of the chapter "The same operator on every machine, and when not to write a kernel"."""

import numpy as np

from kernels.backends.pallas_gpu import PALLAS_GPU
from kernels.backends.python import PYTHON
from kernels.catalog import OPERATORS
from kernels.exercises.exercise import Exercise, call, call_kernel, prediction, problems
from kernels.giou.reference import giou
from kernels.tpu import CHIPS
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
    surely = ours * (1 + our_band) < theirs * (1 - their_band)
    hardly = theirs * (1 + their_band) < ours * (1 - our_band)
    return surely.astype(np.int64) - hardly.astype(np.int64)


def _estimates(workload, rng):
    n = workload.sizes["n"]
    ours, theirs = 1e-3 * rng.lognormal(0, 0.5, (2, n))
    bands = rng.choice([0.06, 0.25, 0.45], (2, n))
    if workload.name == "measured":
        return ours, theirs, 0 * bands[0], 0 * bands[1]
    return ours, theirs, *bands


def _linears_at_peak(blocks, rows, width):
    weights = width * (3 * width) + width * width + 2 * width * (4 * width)
    products = 3 * blocks  # forward, and one for each of the two gradients
    return 1e3 * products * 2 * rows * weights / CHIPS["v5e"].bf16_flops


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
        "time than theirs, -1 where it surely takes more, 0 where nobody can tell. A time t with "
        "the band b is somewhere from t (1 - b) to t (1 + b). All are arrays of one shape.",
        _ahead,
        call,
        problems(
            _estimates,
            Workload("estimated", {"n": 200}, "float64"),
            Workload("measured", {"n": 200}, "float64", why="bands of zero: the order itself"),
        ),
        rungs=("interpret",),
        backend=PYTHON,
        hint="Surely less: even our slowest is faster than their fastest.",
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
    prediction(
        "linears_at_peak",
        "Write linears_at_peak(blocks, rows, width): the milliseconds that the Linear layers of a "
        "transformer's training step take on a v5e, in bfloat16 and at its peak.",
        _linears_at_peak,
        Workload("vit_b16", {"blocks": 12, "rows": 128 * 256, "width": 768}, ""),
        Workload("vit_l16", {"blocks": 24, "rows": 64 * 197, "width": 1024}, ""),
        hint="A multiply-add is two operations; forward there is one product, backward two.",
    ),
)
