"""Cross-entropy of a linear layer: −log softmax(x w)[label], without the logits in memory.

linear_cross_entropy(x, w, labels): [T, D], [D, V], int32 [T] → float32 [T]
"""

from typing import Any

import numpy as np

from kernels.cross_entropy.blocks import CrossEntropyBlocks
from kernels.machines import checks
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Implementation, Operator


def linear_cross_entropy(
    x: Any,
    w: Any,
    labels: Any,
    *,
    implementation: str = "pallas",
    block: CrossEntropyBlocks | None = None,
    interpret: Any = None,
) -> Any:
    """The loss of each token of a language model: log Σ exp(x w) − (x w)[label].

    A label that is none of 0 to V − 1 is refused. Where its value is not known yet, under jax.jit,
    the token's loss is NaN instead, and so are the gradients that come from it: its row of x's, and
    all of w's. To leave tokens out of a mean, give them any label, and their loss the weight 0.

    Pseudocode of "pallas"::

        for a block of tokens:                              # the loss
            for a block of the vocabulary:
                s = x w                                     # [tokens, vocab], float32
                largest, before = max(largest, s), largest
                total = total exp(before − largest) + Σ exp(s − largest)
                own = s[label] where the label is in this block
            lse = largest + log total;  loss = lse − own
        for the same blocks again, once for dx and once, the vocabulary outside, for dw:
            ds = do (exp(x w − lse) − 1 at the label)       # rounded to x's dtype
            dx += ds wᵀ;  dw += xᵀ ds                       # float32, rounded at the end

    Args:
        x: [T, D], float32 or bfloat16. No dimension may be zero; blocks need not divide any.
        w: [D, V], the same dtype.
        labels: int32 [T].
        implementation: "xla" (all logits in memory), "xla_chunked" (online over chunks of the
            vocabulary in plain JAX) or "pallas" (TPU).
        block: of all kernels of "pallas"; None lets each of them choose.
        interpret: None interprets where there is no TPU.

    Returns:
        float32 [T]; products of float32 are of the highest precision, and sums are float32.
        Differentiable in x and w.

    Raises:
        ValueError: for another rank, dtype, size, block or implementation, for a label out of
            range, and, by "pallas", for a D of which VMEM does not hold 128 rows and columns: some
            20,000 of bfloat16 on a v7x, with gradients.

    Source:
        The online softmax of Milakov and Gimelshein, 2018, arXiv:1805.02867; over the vocabulary
        with recomputed logits, Wijmans et al., 2024, arXiv:2411.09009.
    """
    chosen = LINEAR_CROSS_ENTROPY[implementation]
    checks.array("x", x, rank=2)
    checks.array("w", w, rank=2, like=("x", x))
    checks.array("labels", labels, rank=1, dtypes=("int32",))
    checks.same("w.shape[0]", w.shape[0], "x.shape[1]", x.shape[1])
    checks.same("labels.shape", tuple(labels.shape), "x.shape[:1]", tuple(x.shape[:1]))
    checks.instance("block", block, CrossEntropyBlocks)
    known = _check_labels(labels, w.shape[1])
    loss = chosen(x, w, labels, block=block, interpret=interpret)
    if known:
        return loss
    import jax.numpy as jnp

    return loss * jnp.where((labels >= 0) & (labels < w.shape[1]), np.float32(1), np.float32("nan"))


def _check_labels(labels: Any, v: int) -> bool:
    """Whether the labels have values; ValueError names the first one out of range."""
    values = checks.known(labels)
    if values is None:
        return False
    wrong = np.flatnonzero((values < 0) | (values >= v))
    if wrong.size:
        checks.fail(f"labels[{wrong[0]}]", values[wrong[0]], f"0 to {v - 1}, columns of w")
    return True


LINEAR_CROSS_ENTROPY = Operator(
    linear_cross_entropy,
    summary="−log softmax(x w) at each label, without the logits in memory",
    chapter="softmax_norms",
    differentiable=("x", "w"),
    implementations=(
        Implementation("xla", XLA, "xla:linear_cross_entropy", lacks={"block": "has no blocks"}),
        Implementation("xla_chunked", XLA, "xla:chunked", lacks={"block": "takes 4096 columns"}),
        Implementation("pallas", PALLAS_TPU, "pallas:linear_cross_entropy"),
    ),
)
