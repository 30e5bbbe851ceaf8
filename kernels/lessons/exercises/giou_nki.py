"""Exercises of the chapter "GIOU in NKI"."""

import functools

import numpy as np

from kernels.giou import nki as published
from kernels.giou import reference, workloads
from kernels.lessons.exercises import bars, judges
from kernels.lessons.exercises.exercise import Exercise, drawn
from kernels.machines import neuron
from kernels.proof.backends.nki import NKI
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases

GIOU_MICROSECONDS = 22  # of a tile of 256 boxes a sample; the published kernel takes 24.6


def _drawn(workload, rng):
    b, n = (workload.sizes[name] for name in "bn")
    corners = rng.uniform(0, 100, (b, n, 2))
    boxes = [corners, corners + rng.uniform(1, 50, (b, n, 2))]
    return (np.concatenate(boxes, -1, dtype=np.float32),)


def _shares(boxes):
    areas = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return areas / areas.max(1, keepdims=True)


def _more_than_once(cost, boxes):
    least = boxes.size // 4 * 5 * 4  # four numbers in and one out
    moved = cost.dma_bytes
    return moved > least and f"its copies move {moved:,} bytes, where {least:,} are enough"


def _no_shorter(cost, preds, targets):
    """Both are counted: the answer's instructions, and those of the chapter's kernel."""
    ours, theirs = (
        estimate.engines["Vector"].instructions
        for estimate in (neuron.estimate(published.giou_kernel, preds, targets), cost)
    )
    words = f"the Vector engine has {theirs} instructions for a tile, not {ours - 1}"
    return theirs >= ours and words


def _carried(kernel, boxes, *, interpret):
    modes = (neuron.InterpretParams(limits=False, order=order) for order in (None, 0))
    result, backwards = (np.asarray(neuron.run(kernel, boxes, interpret=mode)) for mode in modes)
    if np.array_equal(result, backwards):
        raise Refused("in another order it gives the same: no turn needs the one before")
    return result


_nki = functools.partial(Exercise, backend=NKI, call=judges.on_neuron())

EXERCISES = (
    _nki(
        "nki_shorter",
        reference.giou,
        workloads.giou.make,
        cases("b n", tile=(128, 64), part=(5, 101, "not all partitions"))
        + cases("b n", values="degenerate", degenerate=(33, 64)),
        call=judges.on_neuron(_no_shorter),
        magnitude=reference.giou_magnitude,
    ),
    _nki(
        "nki_sum",
        lambda x: x.sum(0),
        drawn("t b n"),
        cases(
            "t b n",
            tile=(3, 128, 16),
            one=(1, 1, 1),
            ragged=(5, 131, 33, "three rows beyond a tile"),
            wide=(4, 7, 64, {"values": "wide"}),
        ),
        magnitude=lambda x: abs(x).sum(0),
    ),
    _nki(
        "nki_carried",
        lambda x: 4 * x + 1,
        drawn("b n"),
        cases("b n", small=(2, 8), tile=(128, 32)),
        call=_carried,
        rungs=("interpret",),
        magnitude=lambda x: 4 * abs(x) + 1,
    ),
    _nki(
        "nki_fast",
        reference.giou,
        workloads.giou.make,
        cases("b n", tile=(128, 64)) + cases("b n", values="degenerate", degenerate=(33, 64)),
        bar=bars.nki_microseconds(GIOU_MICROSECONDS, 19.9, workload=bars.at(b=128, n=256)),
        magnitude=reference.giou_magnitude,
    ),
    _nki(
        "nki_once",
        _shares,
        _drawn,
        cases("b n", tile=(128, 256), ragged=(131, 33, "three samples beyond a tile"), one=(1, 1)),
        call=judges.on_neuron(_more_than_once),
    ),
)
