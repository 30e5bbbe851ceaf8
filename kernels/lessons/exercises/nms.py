"""Exercises of the chapter "Sequential algorithms on a sequential machine: NMS"."""

import functools

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.lessons.exercises import bars
from kernels.lessons.exercises.exercise import Exercise, jitted, launch
from kernels.nms import reference, workloads
from kernels.proof.backends.python import PYTHON
from kernels.proof.backends.xla import XLA
from kernels.proof.workload import Workload, cases

THRESHOLD = 0.5
BLOCK = 128
DROP_BUNDLES = 470  # of a step of the kernel; with a division and without the MXU 695


def _pairs(workload, rng):
    """drops [128, 128]: a chain, a stack of equal boxes, pairs at random; and who is alive."""
    chain, stack, gone, percent = workload.sizes.values()
    drops = np.zeros((BLOCK, BLOCK), np.float32)
    for i in range(chain - 1):
        drops[i, i + 1] = 1
    both = slice(chain, chain + stack)
    drops[both, both] = np.triu(np.ones((stack, stack)), 1)
    drops[np.triu(rng.random(drops.shape) < percent / 100, 1)] = 1
    alive = np.ones((1, BLOCK), np.float32)
    alive[0, rng.permutation(BLOCK)[:gone]] = 0
    return drops, alive


def _dropped_by(drops, alive):
    """One box after another: the first that is kept and drops it, or -1."""
    by, kept = np.full(alive.shape, -1, drops.dtype), []
    for i in np.flatnonzero(alive[0] > 0):
        by[0, i] = next((j for j in kept if drops[j, i] > 0), -1)
        if by[0, i] < 0:
            kept.append(i)
    return by


def _drawn(n, rng):
    return workloads.nms.make(Workload("drawn", {"n": n}), rng)


def _classed(workload, rng):
    """Boxes, scores and classes; among the small boxes of "scales" lies a very large one."""
    n = workload.sizes["n"]
    boxes, scores = _drawn(n, rng)
    if workload.name == "scales":
        boxes = boxes / np.float32(1000)
        boxes[0] = (0, 0, 1e6, 1e6)
    return boxes, scores, rng.integers(0, workload.sizes["classes"], n).astype(np.int32)


def _by_class(boxes, scores, classes):
    keep = np.zeros(len(boxes), bool)
    for number in np.unique(classes):
        mine = classes == number
        keep[mine] = reference.nms(boxes[mine], scores[mine], iou_threshold=THRESHOLD)
    return keep


def _table(workload, rng):
    """[5, n], the best score first: left, top, right, bottom, area; and how many to keep."""
    boxes, scores = _drawn(workload.sizes["n"], rng)
    left, top, right, bottom = boxes[np.argsort(-scores, kind="stable")].T
    area = (right - left) * (bottom - top)
    return np.stack([left, top, right, bottom, area]), workload.sizes["most"]


def _best(table, most):
    scores = -np.arange(table.shape[1])
    keep = reference.nms(table[:4].T, scores, iou_threshold=THRESHOLD)
    return (keep & (np.cumsum(keep) <= most)).astype(np.float64)


def _at_most(kernel, table, most, *, interpret):
    n = table.shape[1]
    smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    return launch(
        functools.partial(kernel, most=most),
        table,
        table,
        shape=(n,),
        dtype=jnp.float32,
        grid=(n,),
        blocks=(smem, pl.BlockSpec((5, n), lambda i: (0, 0)), smem),
        scratch_shapes=[pltpu.VMEM((1, n), jnp.float32), pltpu.SMEM((1,), jnp.int32)],
        interpret=interpret,
    )


def _first(workload, rng):
    """[128, 4] columns of the kept boxes' corners, float32 [1, 128], and [4, n] rows of others."""
    boxes, _ = _drawn(BLOCK + workload.sizes["n"], rng)
    kept = (rng.random((1, BLOCK)) < workload.sizes["kept"] / 100).astype(np.float32)
    return boxes[:BLOCK], kept, np.ascontiguousarray(boxes[BLOCK:].T)


def _dropped(first, kept, others):
    one = np.split(first, 4, 1)
    sides = [
        np.maximum(np.minimum(one[i + 2], others[i + 2]) - np.maximum(one[i], others[i]), 0)
        for i in (0, 1)
    ]
    area = (one[2] - one[0]) * (one[3] - one[1])
    areas = (others[2] - others[0]) * (others[3] - others[1])
    inter = sides[0] * sides[1]
    overlap = inter > THRESHOLD * (area + areas - inter)
    return (overlap & (kept.T > 0)).any(0, keepdims=True).astype(np.float32)


def _drop(kernel, first, kept, others, *, interpret):
    n = others.shape[1]
    blocks = (
        pl.BlockSpec((BLOCK, 4), lambda i: (0, 0)),
        pl.BlockSpec((1, BLOCK), lambda i: (0, 0)),
        pl.BlockSpec((4, 4 * BLOCK), lambda i: (0, i)),
        pl.BlockSpec((1, 4 * BLOCK), lambda i: (0, i)),
    )
    options = {"grid": (n // (4 * BLOCK),), "name": "drop", "interpret": interpret}
    return launch(kernel, first, kept, others, shape=(1, n), blocks=blocks, **options)


def _kept(workload, rng):
    """Which boxes are kept, in input order, and the scores; "late" keeps those of the first few."""
    n = workload.sizes["n"]
    scores = rng.random(n).astype(np.float32)
    keep = rng.random(n) < 0.02
    if workload.name == "late":
        keep = scores > np.sort(scores)[-100]
    return keep, scores


def _busy(keep, scores):
    in_order = keep[np.argsort(-scores, kind="stable")]
    blocks = -(-len(keep) // BLOCK)
    busy = [b for b in range(blocks) if in_order[BLOCK * b : BLOCK * (b + 1)].any()]
    return np.array(busy + [busy[-1]] * (blocks - len(busy)), np.int32)


EXERCISES = (
    Exercise(
        "nms_dropped_by",
        _dropped_by,
        _pairs,
        cases(
            "chain stack gone percent",
            chain=(9, 0, 0, 0),
            stack=(0, 40, 0, 0),
            several=(0, 0, 0, 4, "more than one kept box may drop a box"),
            gone=(20, 9, 30, 4, "some were dropped before"),
            longest=(BLOCK, 0, 1, 0),
        ),
        call=functools.partial(launch, name="settle"),
    ),
    Exercise(
        "nms_classes",
        _by_class,
        _classed,
        cases(
            "n classes",
            three=(60, 3),
            one=(40, 1, "a class without boxes"),
            scales=(60, 3, "an offset leaves the boxes no bits"),
        ),
        backend=PYTHON,
    ),
    Exercise(
        "nms_at_most", _best, _table, cases("n most", two=(24, 2), none=(8, 0)), call=_at_most
    ),
    Exercise(
        "nms_busy",
        _busy,
        _kept,
        cases("n", sparse=2000, late=(1000, "the best are kept, and no others")),
        call=jitted,
        backend=XLA,
    ),
    Exercise(
        "nms_fast",
        _dropped,
        _first,
        cases("n kept", few=(1024, 10), all=(512, 100), none=(512, 0)),
        call=_drop,
        rungs=("interpret",),
        bar=bars.bundles("drop", DROP_BUNDLES, (("0.0.42.1", 418), ("0.0.50.1", 414))),
    ),
)
