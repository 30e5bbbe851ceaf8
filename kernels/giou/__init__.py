"""Generalised intersection over union of boxes, written for every machine of the book.

giou(preds, targets): [B, N, 4], [B, N, 4] → [B, N]
"""

import importlib
from typing import Any

from kernels import checks

LEVELS = ("v0", "v1", "v2", "v3")  # chapter 11 on the way to "pallas"
SIMULATED = ("pallas", "nki", "neuronxcc", "gpsimd")  # that know a machine of their own
IMPLEMENTATIONS = ("numpy", "xla", "torch", *SIMULATED, *LEVELS)

__all__ = ["giou"]


def giou(preds: Any, targets: Any, *, implementation: str = "pallas", interpret: Any = None) -> Any:
    """Score pairs of boxes: 1 where they are equal, towards -1 the further they are apart.

    preds, targets: [B, N, 4] float32, each box left, top, right, bottom; B, N ≥ 1. Returns [B, N]
    float32: intersection / union - (enclosing - union) / enclosing, where union and enclosing are
    areas of at least 1e-5, so that boxes without an area have a score too. Nobody checks that left
    is left of right: an inverted box counts with the product of its negative sides.
    implementation: "numpy" (computed in float64), "xla", "pallas" (TPU), "torch", "nki" and
    "neuronxcc" (AWS Neuron, in both generations of NKI) or "gpsimd" (Neuron's GpSimd cores, C++);
    "v0" to "v3" are the levels of chapter 11 on the way to "pallas".
    interpret: None simulates the kernel where its machine is missing; True and False force either.
    "xla", "pallas" and "torch" are differentiable; equal coordinates share the derivative of their
    maximum. Raises ValueError for another rank, last dimension, size, dtype or implementation.
    Source: Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    for name, boxes in (("preds", preds), ("targets", targets)):
        checks.array(name, boxes, rank=3, dtypes=("float32", "torch.float32"))
        if boxes.shape[2] != 4:
            checks.fail(f"{name}.shape[2]", boxes.shape[2], "4: left, top, right, bottom")
    checks.same("targets.shape", tuple(targets.shape), "preds", tuple(preds.shape))
    if implementation in LEVELS:
        from kernels.giou import levels

        return levels.giou(preds, targets, LEVELS.index(implementation), interpret=interpret)
    module = importlib.import_module(f"kernels.giou.{implementation}")
    if implementation in SIMULATED:
        return module.giou(preds, targets, interpret=interpret)
    return module.giou(preds, targets)
