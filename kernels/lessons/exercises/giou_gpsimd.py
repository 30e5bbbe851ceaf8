"""Exercises of the chapter "GIOU in GpSimd C++"."""

import functools

import numpy as np

from kernels.giou import reference, workloads
from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.lessons.exercises.bars import Bar, at
from kernels.lessons.exercises.exercise import Exercise
from kernels.machines.neuron import gpsimd
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.ladder import Refused
from kernels.proof.workload import cases

MOST_PAIRS = 512  # of a part: TCM has 16 KiB, and eight coordinates take 32 bytes
COPIES = 27  # of a core with 4,096 pairs; 24 would take the pool's last byte
ANCHOR_BYTES = 260_000  # to TCM; the predicted boxes alone are 256,000


def _kernel(answer, preds, targets, *, interpret):
    return gpsimd.call((PRELUDE + answer(), SHAPE), "giou", preds, targets, interpret=interpret)


def _dealt(answer, preds, targets, *, interpret):
    """The loss, by parts that are dealt to the cores in turn."""
    if isinstance(interpret, gpsimd.GpSimdParams):
        writer = gpsimd.run((PRELUDE + answer(), SHAPE), "giou", preds, targets).writer.ravel()
        ends = np.flatnonzero(np.diff(writer, prepend=-1, append=-1))
        if (longest := np.diff(ends).max()) > MOST_PAIRS:
            raise Refused(f"a core writes {longest:,} pairs in a row; a part has {MOST_PAIRS}")
    return _kernel(answer, preds, targets, interpret=interpret)


def _shares(*prime):
    """Problems that are dealt to eight cores, from the smallest to the largest."""
    return cases(
        "b n",
        one=(1, 1, "seven cores have nothing to do"),
        prime=prime,
        long=(3, 4099, "more than the TCM of all cores"),
    )


def _smoothed(preds, targets, giou=reference.giou):
    """Each score averaged with the one before it, in one row of all pairs; or each magnitude."""
    scores = giou(preds, targets).ravel()
    return ((scores + np.append(scores[:1], scores[:-1])) / 2).reshape(preds.shape[:2])


def _anchored(preds, targets, giou=reference.giou):
    """Each predicted box of a sample against the sample's first true one."""
    return giou(preds, np.broadcast_to(targets[:, :1], targets.shape))


def _traffic(tried):
    """What each core copies to TCM and from it."""
    return gpsimd.run((PRELUDE + tried.answer(), SHAPE), "giou", *tried.arguments).traffic


_gpsimd = functools.partial(Exercise, make=workloads.giou.make, call=_kernel, backend=GPSIMD)

EXERCISES = (
    _gpsimd(
        "giou_loss",
        lambda preds, targets: 1 - reference.giou(preds, targets),
        call=_dealt,
        problems=_shares(131, 101, "no part divides it")
        + cases("b n", values="degenerate", degenerate=(33, 128)),
        magnitude=lambda preds, targets: 1 + reference.giou_magnitude(preds, targets),
    ),
    _gpsimd(
        "giou_smoothed",
        _smoothed,
        problems=cases(
            "b n",
            one=(1, 1, "nothing is before it"),
            prime=(13, 101, "shares end anywhere"),
            long=(3, 1409, "more parts than one for a core"),
        ),
        magnitude=functools.partial(_smoothed, giou=reference.giou_magnitude),
    ),
    _gpsimd(
        "gpsimd_in_place",
        reference.giou,
        problems=_shares(131, 101, "no part divides it"),
        bar=Bar(
            "copies of the busiest core",
            lambda tried: max(core.loads + core.stores for core in _traffic(tried)),
            *(COPIES, 27, ",.0f", at(b=128, n=256)),
        ),
        magnitude=reference.giou_magnitude,
    ),
    _gpsimd(
        "gpsimd_anchor",
        _anchored,
        problems=_shares(13, 101, "shares end inside of a sample"),
        bar=Bar(
            "bytes to TCM",
            lambda tried: sum(core.loaded_bytes for core in _traffic(tried)),
            *(ANCHOR_BYTES, 256_256, ",.0f", at(b=16, n=1000)),
        ),
        magnitude=functools.partial(_anchored, giou=reference.giou_magnitude),
    ),
)
