"""Softmax along the last axis."""

from typing import Any

from kernels.machines import checks
from kernels.machines.gpu.chips import LONGEST_ROW
from kernels.machines.tpu.rows import RowBlocks
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.backends.nki import NKI
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import OWN_BLOCKS, Implementation, Operator


def softmax(
    x: Any, *, implementation: str = "pallas", block: RowBlocks | None = None, interpret: Any = None
) -> Any:
    """exp(x) over its sum along the last axis: numbers from 0 to 1 that add up to 1.

    Args:
        x: [..., n], float32 or bfloat16, any rank of at least 1, no dimension of zero.
        implementation: "xla", "pallas" (TPU), "mosaic_gpu" (Hopper GPUs, rows of at most 32 KiB;
            its gradient is XLA's) or "nki" (AWS Neuron; takes PyTorch's tensors too).
        block: of "pallas"; None lets it choose. Its gradient always chooses.
        interpret: None interprets "pallas" where there is no TPU, and simulates "mosaic_gpu" and
            "nki" where there is no such device; True and False force either. "xla" ignores it.

    Returns:
        As x. The sums are taken in float32, of numbers from which the row's largest was subtracted.
        A row with a NaN or an infinity of either sign follows NumPy: +inf and NaN spoil it.
        All but "nki" are differentiable.

    Raises:
        ValueError: for another rank, size, dtype, block or implementation, for blocks that
            VMEM cannot hold, and for rows that "mosaic_gpu" does not take, before anything runs.

    Source:
        Where rows are read in parts, the online normalizer of Milakov and Gimelshein (2018).
    """
    chosen = SOFTMAX[implementation]
    rank = len(getattr(x, "shape", ())) or 1
    checks.array(
        "x", x, rank=rank, dtypes=checks.FLOATS + checks.TENSORS * (implementation == "nki")
    )
    checks.instance("block", block, RowBlocks)
    return chosen(x, block=block, interpret=interpret)


SOFTMAX = Operator(
    softmax,
    summary="exp(x) over its sum along the last axis",
    chapter="softmax_norms",
    differentiable=("x",),
    implementations=(
        Implementation("xla", XLA, "xla:softmax", lacks=OWN_BLOCKS),
        Implementation("pallas", PALLAS_TPU, "pallas:softmax"),
        Implementation(
            "mosaic_gpu",
            MOSAIC_GPU,
            "mosaic_gpu:softmax",
            accepts=lambda w: w.sizes["n"] * w.itemsize <= LONGEST_ROW,
            lacks=OWN_BLOCKS,
            chapter="matmul_on_hopper",
        ),
        Implementation(
            "nki",
            NKI,
            "nki:softmax",
            lacks=OWN_BLOCKS,
            differentiable=False,
            chapter="matmul_softmax_nki",
        ),
    ),
)
