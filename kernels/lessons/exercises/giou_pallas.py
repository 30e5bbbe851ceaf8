"""Exercises of the chapter "GIOU in Pallas"."""

import functools

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.giou import reference, workloads
from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn, launch
from kernels.proof.backends.python import PYTHON
from kernels.proof.workload import cases

LANES = 128
SMALLEST = 1e-5
TALL = 64  # rows of planes in a block
SCORE_BUNDLES, SCORE_OURS = 155, 137  # of a step: the bar, and our own


def _planes(workload, rng):
    planes = (np.moveaxis(boxes, -1, 0) for boxes in workloads.giou.make(workload, rng))
    return tuple(map(np.ascontiguousarray, planes))


def _iou_areas(preds, targets):
    p, t = preds, targets
    sides = np.minimum(p[2:], t[2:]) - np.maximum(p[:2], t[:2])
    inter = np.maximum(sides, 0).prod(0)
    return inter, *((b[2] - b[0]) * (b[3] - b[1]) for b in (p, t))


def _iou(preds, targets):
    inter, of_p, of_t = _iou_areas(preds, targets)
    return inter / np.maximum(of_p + of_t - inter, SMALLEST)


def _iou_magnitude(preds, targets):
    inter, of_p, of_t = _iou_areas(preds, targets)
    union = np.maximum(of_p + of_t - inter, SMALLEST)
    return inter / union * (1 + (abs(of_p) + abs(of_t) + inter) / union)


def _by_planes(kernel, preds, targets, *, interpret):
    _, b, n = preds.shape
    planes = pl.BlockSpec((4, 8, LANES), lambda i, j: (0, i, j))
    scores = pl.BlockSpec((8, LANES), lambda i, j: (i, j))
    grid, blocks = (pl.cdiv(b, 8), pl.cdiv(n, LANES)), (planes, planes, scores)
    return launch(
        kernel, preds, targets, shape=(b, n), grid=grid, blocks=blocks, interpret=interpret
    )


def _in_tall_blocks(shape, out, kernel, preds, targets, *, interpret):
    planes = pl.BlockSpec((4, TALL, LANES), lambda i: (0, i, 0))
    grid, blocks = (pl.cdiv(preds.shape[1], TALL),), (planes, planes, out)
    options = {"shape": shape or preds.shape[1:], "grid": grid, "name": "scores"}
    return launch(kernel, preds, targets, blocks=blocks, interpret=interpret, **options)


_tall = functools.partial(_in_tall_blocks, None, pl.BlockSpec((TALL, LANES), lambda i: (i, 0)))
_total = functools.partial(_in_tall_blocks, (1, 1), pl.BlockSpec(memory_space=pltpu.SMEM))


def _of_planes(function):
    return lambda preds, targets: function(np.moveaxis(preds, 0, -1), np.moveaxis(targets, 0, -1))


def _nested(workload, rng):
    """True boxes, and predicted ones strictly inside of them."""
    shape = workload.sizes["b"], workload.sizes["n"]
    corner = rng.integers(0, 90, (*shape, 2))
    side = rng.integers(8, 100, (*shape, 2))
    targets = np.concatenate([corner, corner + side], -1).astype(np.float32)
    cut = rng.integers(1, 4, (*shape, 4)) * [1, 1, -1, -1]
    return (targets + cut).astype(np.float32), targets


def _pull(preds, targets):
    @jax.jit  # one compilation instead of one for each operation
    @jax.grad
    def pulls(preds, targets):
        return reference.giou(preds, targets).sum()

    return np.asarray(pulls(preds, targets))[..., 0]


EXERCISES = (
    Exercise(
        "giou_points",
        lambda preds, targets: ((preds - targets) ** 2).sum(-1),
        drawn("b n 2", "b n 2"),
        cases("b n", two=(16, 256), one=(8, 128, "a single part of 128 points"), long=(8, 512)),
        judge=judges.both(judges.kernels(1), judges.no_relayout),
        magnitude=lambda preds, targets: ((abs(preds) + abs(targets)) ** 2).sum(-1),
    ),
    Exercise(
        "giou_iou",
        _iou,
        _planes,
        cases("b n", ragged=(5, 130, "no block divides it"))
        + cases("b n", values="degenerate", degenerate=(16, 128, "U may be 0"))
        + cases("b n", values="wide", wide=(16, 128, "areas near 1e-5")),
        call=_by_planes,
        magnitude=_iou_magnitude,
    ),
    Exercise("giou_pull", _pull, _nested, cases("b n", tiny=(1, 4), many=(7, 64)), backend=PYTHON),
    Exercise(
        "giou_total",
        lambda preds, targets: (1 - _of_planes(reference.giou)(preds, targets)).sum().reshape(1, 1),
        _planes,
        cases("b n", three=(192, 128), one=(64, 128, "the first program is the last")),
        call=_total,
        judge=judges.fetches(preds=3, targets=3),
        magnitude=lambda preds, targets: (
            (1 + _of_planes(reference.giou_magnitude)(preds, targets)).sum().reshape(1, 1)
        ),
    ),
    Exercise(
        "giou_fast",
        _of_planes(reference.giou),
        _planes,
        cases("b n", ragged=(70, 128, "no block divides it"))
        + cases("b n", values="degenerate", degenerate=(64, 128, "U may be 0")),
        call=_tall,
        rungs=("interpret",),
        bar=bars.bundles("scores", SCORE_BUNDLES, SCORE_OURS, workload=bars.at(b=256, n=128)),
        magnitude=_of_planes(reference.giou_magnitude),
    ),
)
