"""The first kernels: add two vectors, and count.

add_vectors(x, y): [n], [n] → [n]          iota(n) → int32 [n], 0 … n - 1
"""

from typing import Any

from kernels.machines import checks
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.backends.pallas_gpu import PALLAS_GPU
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Implementation, Operator

DTYPES = ("float32", "bfloat16", "int32")
MAX_INT32 = 2**31 - 1


def add_vectors(x: Any, y: Any, *, implementation: str = "pallas", interpret: Any = None) -> Any:
    """Add two vectors.

    Args:
        x, y: [n], n ≥ 1; both float32, bfloat16 or int32.
        implementation: "xla", "pallas" (TPU), or for a GPU and in Pallas too "mosaic_gpu" and
            "triton", of which JAX lets the second go from 0.11 on.
        interpret: None interprets where the kernel's device is missing.

    Returns:
        x + y, [n], same dtype. Differentiable.

    Raises:
        ValueError: for another rank, dtype, length or implementation.
    """
    chosen = ADD_VECTORS[implementation]
    checks.array("x", x, rank=1, dtypes=DTYPES)
    checks.array("y", y, rank=1, dtypes=DTYPES, like=("x", x))
    checks.same("y.shape", tuple(y.shape), "x", tuple(x.shape))
    return chosen(x, y, interpret=interpret)


def iota(n: int, *, implementation: str = "pallas", interpret: Any = None) -> Any:
    """Count from 0 to n - 1, one program for each number.

    Args:
        n: at least 1; at most 2¹⁷ for "pallas", whose result lives in a TPU's scalar memory.
        implementation, interpret: as for add_vectors; there is no "mosaic_gpu".

    Returns:
        int32 [n].

    Raises:
        ValueError: for another n or implementation.
    """
    chosen = IOTA[implementation]
    checks.positive_int("n", n)
    if n > MAX_INT32:
        checks.fail("n", n, f"at most {MAX_INT32}, the largest int32")
    return chosen(n, interpret=interpret)


ADD_VECTORS = Operator(
    add_vectors,
    summary="x + y for vectors of any length",
    chapter="hello_pallas",
    differentiable=("x", "y"),
    implementations=(
        Implementation("xla", XLA, "xla:add_vectors"),
        Implementation("pallas", PALLAS_TPU, "pallas:add_vectors"),
        Implementation("triton", PALLAS_GPU, "triton:add_vectors"),
        Implementation("mosaic_gpu", MOSAIC_GPU, "mosaic_gpu:add_vectors"),
    ),
)

IOTA = Operator(
    iota,
    summary="0, 1, … n - 1, a program for each number",
    chapter="grids_and_memory",
    implementations=(
        Implementation("xla", XLA, "xla:iota"),
        Implementation("pallas", PALLAS_TPU, "pallas:iota"),
        Implementation("triton", PALLAS_GPU, "triton:iota"),
    ),
)
