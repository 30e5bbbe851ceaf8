"""Softmax along the last axis."""

from typing import Any

from kernels.machines import checks
from kernels.proof.backends.nki import NKI
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Implementation, Operator

DTYPES = ("float32", "bfloat16", "torch.float32", "torch.bfloat16")


def softmax(x: Any, *, implementation: str = "xla", interpret: Any = None) -> Any:
    """exp(x) over its sum along the last axis: numbers from 0 to 1 that add up to 1.

    Args:
        x: [..., n], float32 or bfloat16, any rank of at least 1, no dimension of zero.
        implementation: "xla", or "nki" (AWS Neuron).
        interpret: None simulates "nki" where there is no Neuron device; True and False force
            either. "xla" ignores it.

    Returns:
        As x. The sums are taken in float32, of numbers from which the row's largest was subtracted.
        A row with a NaN or an infinity of either sign follows NumPy: +inf and NaN spoil it.

    Raises:
        ValueError: for another rank, size, dtype or implementation, before anything runs.
    """
    chosen = SOFTMAX[implementation]
    rank = len(getattr(x, "shape", ())) or 1
    checks.array("x", x, rank=rank, dtypes=DTYPES)
    return chosen(x, interpret=interpret)


SOFTMAX = Operator(
    softmax,
    summary="exp(x) over its sum along the last axis",
    chapter="matmul_softmax_nki",
    implementations=(
        Implementation("xla", XLA, "xla:softmax"),
        Implementation("nki", NKI, "nki:softmax", differentiable=False),
    ),
)
