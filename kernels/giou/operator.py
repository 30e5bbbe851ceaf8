"""Generalised intersection over union of boxes, written for every machine of the book.

giou(preds, targets): [B, N, 4], [B, N, 4] → [B, N]
"""

from typing import Any

from kernels.machines import checks
from kernels.proof.backends.gpsimd import GPSIMD
from kernels.proof.backends.nki import NKI, NKI_BETA1
from kernels.proof.backends.numpy import NUMPY
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.torch import TORCH
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Implementation, Operator


def giou(preds: Any, targets: Any, *, implementation: str = "pallas", interpret: Any = None) -> Any:
    """Score pairs of boxes: 1 where they are equal, towards -1 the further they are apart.

    The score is intersection / union - (enclosing - union) / enclosing, where union and enclosing
    are areas of at least 1e-5, so that boxes without an area have a score too. Nobody checks that
    left is left of right: an inverted box counts with the product of its negative sides.

    Args:
        preds, targets: [B, N, 4] float32, each box left, top, right, bottom; B, N ≥ 1.
        implementation: "numpy" (in float64), "xla", "xla_planes" (coordinates first), "xla_slices"
            (that in four slices), "pallas" (TPU), "torch", "nki" and "neuronxcc" (both generations
            of NKI), "gpsimd" (GpSimd cores, C++); "v0" to "v3" are levels on the way to "pallas".
        interpret: None simulates the kernel where its machine is missing; True and False force
            either.

    Returns:
        [B, N] float32. "xla", "pallas" and "torch" are differentiable; equal coordinates share the
        derivative of their maximum.

    Raises:
        ValueError: for another rank, last dimension, size, dtype or implementation.

    Source:
        Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019.
    """
    chosen = GIOU[implementation]
    for name, boxes in (("preds", preds), ("targets", targets)):
        checks.array(name, boxes, rank=3, dtypes=("float32", "torch.float32"))
        if boxes.shape[2] != 4:
            checks.fail(f"{name}.shape[2]", boxes.shape[2], "4: left, top, right, bottom")
    checks.same("targets.shape", tuple(targets.shape), "preds", tuple(preds.shape))
    return chosen(preds, targets, interpret=interpret)


def _on_neuron(name: str, backend: Any, source: str, chapter: str) -> Implementation:
    finite = lambda workload: workload.values != "nonfinite"
    return Implementation(
        name, backend, source, accepts=finite, differentiable=False, chapter=chapter
    )


GIOU = Operator(
    giou,
    summary="generalised intersection over union of pairs of boxes",
    chapter="giou_pallas",
    differentiable=("preds", "targets"),
    implementations=(
        Implementation("numpy", NUMPY, "numpy:giou", differentiable=False),
        Implementation("xla", XLA, "xla:giou"),
        *(Implementation(f"xla_{how}", XLA, f"xla:giou_in_{how}") for how in ("planes", "slices")),
        Implementation("pallas", PALLAS_TPU, "pallas:giou"),
        Implementation("torch", TORCH, "torch:giou"),
        _on_neuron("nki", NKI, "nki:giou", "giou_nki"),
        _on_neuron("neuronxcc", NKI_BETA1, "neuronxcc:giou", "giou_nki"),
        _on_neuron("gpsimd", GPSIMD, "gpsimd:giou", "giou_gpsimd"),
        *(
            Implementation(level, PALLAS_TPU, f"levels:{level}", differentiable=False)
            for level in ("v0", "v1", "v2", "v3")
        ),
    ),
)
