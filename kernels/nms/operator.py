"""Greedy non-maximum suppression: of boxes that overlap, the one with the best score stays.

nms(boxes, scores, iou_threshold=t): [n, 4], [n] → bool [n]
"""

from numbers import Real
from typing import Any

from kernels.machines import checks
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Implementation, Operator

DTYPES = ("float32",)


def nms(
    boxes: Any,
    scores: Any,
    *,
    iou_threshold: float,
    implementation: str = "pallas",
    interpret: Any = None,
) -> Any:
    """Visit boxes from the best score down; drop each that overlaps one that was kept before.

    A box is dropped if, with a box that was kept, intersection > t · max(union, 1e-5); there is no
    division. The order: higher scores first; equal scores by index, the lower one first; NaN last,
    by index.

    Every decision is made in float32, each operation rounded by itself and subnormal numbers taken
    as zero, so that all implementations agree on every box, the reference included:
    area = (right - left) · (bottom - top); intersection the same of the common box, 0 unless both
    its sides are positive; union = (area + area) - intersection. An inverted or empty box, and one
    with a NaN, overlaps nothing: it is kept and drops nobody.

    Args:
        boxes: [n, 4] float32, each left, top, right, bottom. n may be 0; for "pallas" it is at most
            131,072.
        scores: [n] float32.
        iou_threshold: t, a number from 0 to 1, rounded to float32.
        implementation: "xla" (a row at a time), "xla_matrix" (all pairs at once), "xla_blocks"
            (blocks of boxes in turn) or "pallas" (TPU).
        interpret: None interprets where there is no TPU.

    Returns:
        bool [n] in input order: which boxes are kept. Works under jax.jit and jax.vmap, with a
        concrete threshold. Not differentiable: the result is a choice.

    Raises:
        ValueError: for another dtype, shape, threshold or implementation.
    """
    chosen = NMS[implementation]
    checks.array("boxes", boxes, rank=2, dtypes=DTYPES, empty=True)
    checks.array("scores", scores, rank=1, dtypes=DTYPES, empty=True)
    n, sides = boxes.shape
    checks.same("boxes.shape[1]", sides, "left, top, right, bottom", 4)
    checks.same("scores.shape", tuple(scores.shape), "boxes", (n,))
    number = isinstance(iou_threshold, Real) and not isinstance(iou_threshold, bool)
    if not (number and 0 <= iou_threshold <= 1):
        checks.fail("iou_threshold", repr(iou_threshold), "a number from 0 to 1")
    return chosen(boxes, scores, threshold=float(iou_threshold), interpret=interpret)


NMS = Operator(
    nms,
    summary="of boxes that overlap, the one with the best score",
    chapter="nms",
    implementations=(
        Implementation("xla", XLA, "xla:nms"),
        Implementation("xla_matrix", XLA, "xla:nms_by_matrix"),
        Implementation("xla_blocks", XLA, "xla:nms_in_blocks"),
        Implementation("pallas", PALLAS_TPU, "pallas:nms"),
    ),
)
