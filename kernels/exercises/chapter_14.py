"""Exercises of chapter 14."""

from kernels.exercises.exercise import Exercise, problems
from kernels.giou import reference, workloads
from kernels.giou.gpsimd import PRELUDE, SHAPE
from kernels.neuron import gpsimd
from kernels.workload import Workload


def _kernel(answer, preds, targets, *, interpret):
    return gpsimd.call((PRELUDE + answer(), SHAPE), "giou", preds, targets, interpret=interpret)


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
        language="GpSimd C++",
        magnitude=lambda preds, targets: 1 + reference.giou_magnitude(preds, targets),
        hint="Core c takes the parts c, c + cores, c + 2 cores, …; score() and Tcm are there.",
    ),
)
