"""Exercises of the chapter "GIOU in GpSimd C++"."""

import numpy as np

from kernels.backends.gpsimd import GPSIMD
from kernels.exercises.bars import Bar
from kernels.exercises.exercise import Exercise, prediction, problems
from kernels.giou import reference, workloads
from kernels.giou.gpsimd import PRELUDE, SHAPE, SOURCES
from kernels.neuron import gpsimd
from kernels.workload import Workload

ANCHOR_BYTES = 260_000  # to TCM; the predicted boxes alone are 256,000


def _kernel(answer, preds, targets, *, interpret):
    return gpsimd.call((PRELUDE + answer(), SHAPE), "giou", preds, targets, interpret=interpret)


def _smoothed(preds, targets):
    """Each score averaged with the one before it, in one row of all pairs."""
    scores = reference.giou(preds, targets).ravel()
    return ((scores + np.append(scores[:1], scores[:-1])) / 2).reshape(preds.shape[:2])


def _smoothed_magnitude(preds, targets):
    sizes = reference.giou_magnitude(preds, targets).ravel()
    return (sizes + np.append(sizes[:1], sizes[:-1])).reshape(preds.shape[:2])


def _copies(samples, boxes, part, cores):
    """[cores, 2]: copies to TCM and from it, as the emulator counts them."""
    code = SOURCES[0].read_text(encoding="utf-8").replace("part = 448", f"part = {part}")
    preds, targets = np.zeros((2, samples, boxes, 4), np.float32)
    found = gpsimd.run([code, SHAPE], "giou", preds, targets, cores=cores)
    return np.array([(each.loads, each.stores) for each in found.traffic])


def _anchored(preds, targets):
    """Each predicted box of a sample against the sample's first true one."""
    return reference.giou(preds, np.broadcast_to(targets[:, :1], targets.shape))


def _anchored_magnitude(preds, targets):
    return reference.giou_magnitude(preds, np.broadcast_to(targets[:, :1], targets.shape))


def _loaded(tried):
    """Bytes that all cores together copy to TCM."""
    sources = PRELUDE + tried.answer(), SHAPE
    traffic = gpsimd.run(sources, "giou", *tried.arguments).traffic
    return sum(each.loaded_bytes for each in traffic)


EXERCISES = (
    Exercise(
        "giou_loss",
        "Write giou_loss(), which returns the C++ of torch::Tensor giou(const torch::Tensor& "
        "preds, const torch::Tensor& targets): the loss 1 - GIOU, parts dealt to cores in turn.",
        lambda preds, targets: 1 - reference.giou(preds, targets),
        _kernel,
        problems(
            workloads.giou.make,
            Workload("one", {"b": 1, "n": 1}, why="seven cores have nothing to do"),
            Workload("prime", {"b": 131, "n": 101}, why="no part divides it"),
            Workload("long", {"b": 3, "n": 4099}, why="more than the TCM of all cores"),
            Workload("degenerate", {"b": 33, "n": 128}, values="degenerate"),
        ),
        backend=GPSIMD,
        magnitude=lambda preds, targets: 1 + reference.giou_magnitude(preds, targets),
        hint="Core c takes the parts c, c + cores, c + 2 cores, …; score() and Tcm are there.",
    ),
    Exercise(
        "giou_smoothed",
        "Write smoothed(), which returns the C++ of torch::Tensor giou(const torch::Tensor& "
        "preds, const torch::Tensor& targets): each score averaged with that of the pair before "
        "it, all pairs in one row; the first keeps its own.",
        _smoothed,
        _kernel,
        problems(
            workloads.giou.make,
            Workload("one", {"b": 1, "n": 1}, why="nothing is before it"),
            Workload("prime", {"b": 13, "n": 101}, why="shares end anywhere"),
            Workload("long", {"b": 3, "n": 1409}, why="more parts than one for a core"),
        ),
        backend=GPSIMD,
        magnitude=_smoothed_magnitude,
        hint="A core must not read what another writes. Its inputs everybody may read.",
    ),
    prediction(
        "gpsimd_copies",
        "Write copies(samples, boxes, part, cores): for each core in turn how often giou.cpp "
        "copies to TCM and how often from it, with parts of so many pairs; a list of pairs.",
        _copies,
        Workload("published", {"samples": 1024, "boxes": 256, "part": 448, "cores": 8}),
        Workload("uneven", {"samples": 131, "boxes": 101, "part": 448, "cores": 8}),
        Workload("idle", {"samples": 1, "boxes": 5, "part": 448, "cores": 8}, why="idle cores"),
        hint="The first cores get one pair more. A core with n pairs has ceil(n / part) parts.",
    ),
    Exercise(
        "gpsimd_anchor",
        "Write anchored(), which returns the C++ of torch::Tensor giou(const torch::Tensor& "
        "preds, const torch::Tensor& targets): the scores of each sample's predicted boxes against "
        "the first true box of that sample; for 16 samples of 1,000 boxes the cores together copy "
        f"at most {ANCHOR_BYTES:,} bytes to TCM.",
        _anchored,
        _kernel,
        problems(
            workloads.giou.make,
            Workload("one", {"b": 1, "n": 1}, why="seven cores have nothing to do"),
            Workload("prime", {"b": 13, "n": 101}, why="shares end inside of a sample"),
            Workload("long", {"b": 3, "n": 4099}, why="more than the TCM of all cores"),
        ),
        backend=GPSIMD,
        bar=Bar(
            "bytes to TCM",
            _loaded,
            bar=ANCHOR_BYTES,
            ours=256_256,
            workload=Workload("bar", {"b": 16, "n": 1000}),
        ),
        magnitude=_anchored_magnitude,
        hint="Which of the true boxes does a core need, and how often?",
    ),
)
