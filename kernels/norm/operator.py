"""Norms along the last axis.

rms_norm(x, weight): [..., n], [n] → [..., n]
layer_norm(x, weight, bias): [..., n], [n], [n] → [..., n]
"""

from typing import Any

from kernels.machines import checks
from kernels.machines.gpu.chips import LONGEST_ROW
from kernels.machines.tpu.rows import RowBlocks
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import OWN_BLOCKS, Implementation, Operator


def rms_norm(
    x: Any,
    weight: Any,
    *,
    eps: float = 1e-6,
    implementation: str = "pallas",
    block: RowBlocks | None = None,
    interpret: Any = None,
) -> Any:
    """Each row over the root of the mean of its squares, times a weight for each column.

    Args:
        x: [..., n], float32 or bfloat16, any rank of at least 1, no dimension of zero.
        weight: [n], x's dtype.
        eps: added to the mean of the squares; above 0.
        implementation: "xla", "pallas" (TPU) or "mosaic_gpu" (Hopper GPUs, rows of at most 32 KiB;
            float32 is proven on an H100 alone; its gradient is XLA's).
        block: of "pallas"; None lets it choose. Its gradient always chooses.
        interpret: None interprets, or simulates, where there is no such device.

    Returns:
        As x, calculated in float32. Differentiable in x and weight.

    Raises:
        ValueError: for another rank, size, dtype, eps, block or implementation, for blocks that
            VMEM cannot hold, and for rows that "mosaic_gpu" does not take, before anything runs.

    Source:
        Root mean square layer normalization (Zhang and Sennrich, 2019).
    """
    chosen = RMS_NORM[implementation]
    _check(x, {"weight": weight}, eps, block)
    return chosen(x, weight, eps=eps, block=block, interpret=interpret)


def layer_norm(
    x: Any,
    weight: Any,
    bias: Any,
    *,
    eps: float = 1e-5,
    implementation: str = "pallas",
    block: RowBlocks | None = None,
    interpret: Any = None,
) -> Any:
    """Each row less its mean, over its standard deviation, times a weight, plus a bias.

    Args:
        x: [..., n], float32 or bfloat16, any rank of at least 1, no dimension of zero.
        weight, bias: [n], x's dtype.
        eps: added to the variance; above 0.
        implementation, block, interpret: as rms_norm has them.

    Returns:
        As x, calculated in float32; the variance is that of the distances from the mean.
        Differentiable in x, weight and bias.

    Raises:
        ValueError: as rms_norm does.

    Source:
        Layer normalization (Ba, Kiros and Hinton, 2016); rows that are read in parts by the
        parallel variance of Chan, Golub and LeVeque (1979).
    """
    chosen = LAYER_NORM[implementation]
    _check(x, {"weight": weight, "bias": bias}, eps, block)
    return chosen(x, weight, bias, eps=eps, block=block, interpret=interpret)


def _check(x: Any, vectors: dict[str, Any], eps: float, block: Any) -> None:
    checks.array("x", x, rank=len(getattr(x, "shape", ())) or 1)
    for name, vector in vectors.items():
        checks.array(name, vector, rank=1, like=("x", x))
        checks.same(f"{name}.shape", tuple(vector.shape), "the last axis of x", (x.shape[-1],))
    checks.positive("eps", eps)
    checks.instance("block", block, RowBlocks)


def _implementations(name: str) -> tuple[Implementation, ...]:
    return (
        Implementation("xla", XLA, f"xla:{name}", lacks=OWN_BLOCKS),
        Implementation("pallas", PALLAS_TPU, f"pallas:{name}"),
        Implementation(
            "mosaic_gpu",
            MOSAIC_GPU,
            f"mosaic_gpu:{name}",
            # The simulation adds a row up one by one, which float32's budget does not forgive.
            accepts=lambda w: w.dtype == "bfloat16" and w.sizes["n"] * w.itemsize <= LONGEST_ROW,
            lacks=OWN_BLOCKS,
            chapter="matmul_on_hopper",
        ),
    )


RMS_NORM = Operator(
    rms_norm,
    summary="rows over the root of the mean of their squares, weighted",
    chapter="softmax_norms",
    differentiable=("x", "weight"),
    implementations=_implementations("rms_norm"),
)

LAYER_NORM = Operator(
    layer_norm,
    summary="rows less their mean over their standard deviation, weighted and shifted",
    chapter="softmax_norms",
    differentiable=("x", "weight", "bias"),
    implementations=_implementations("layer_norm"),
)
