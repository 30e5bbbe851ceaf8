"""The first kernels: add two vectors, and count.

add_vectors(x, y): [n], [n] → [n]          iota(n) → int32 [n], 0 … n - 1
"""

from typing import Any

from kernels import checks

DTYPES = ("float32", "bfloat16", "int32")
ADD_VECTORS = ("xla", "pallas", "triton")
MAX_INT32 = 2**31 - 1
IOTA = ("xla", "pallas", "triton")

__all__ = ["add_vectors", "iota"]


def add_vectors(x: Any, y: Any, *, implementation: str = "pallas", interpret: Any = None) -> Any:
    """Add two vectors.

    x, y: [n], n ≥ 1, float32, bfloat16 or int32, both the same. Returns x + y, [n], same dtype.
    implementation: "xla", "pallas" (TPU) or "triton" (GPU, written in Pallas too).
    interpret: None interprets where the kernel's device is missing. Differentiable.
    Raises ValueError for another rank, dtype, length or implementation.
    """
    checks.implementation(implementation, ADD_VECTORS)
    checks.array("x", x, rank=1, dtypes=DTYPES)
    checks.array("y", y, rank=1, dtypes=DTYPES)
    checks.same("y.shape", tuple(y.shape), "x", tuple(x.shape))
    checks.same("y.dtype", str(y.dtype), "x", str(x.dtype))
    if implementation == "xla":
        from kernels.vector import xla

        return xla.add_vectors(x, y)
    from kernels.vector import pallas, triton

    module = {"pallas": pallas, "triton": triton}[implementation]
    return module.add_vectors(x, y, interpret=interpret)


def iota(n: int, *, implementation: str = "pallas", interpret: Any = None) -> Any:
    """Count from 0 to n - 1, one program for each number.

    n: at least 1; at most 2¹⁷ for "pallas", whose result lives in a TPU's scalar memory.
    Returns int32 [n]. implementation and interpret: as for add_vectors.
    Raises ValueError for another n or implementation.
    """
    checks.implementation(implementation, IOTA)
    checks.positive_int("n", n)
    if n > MAX_INT32:
        checks.fail("n", n, f"at most {MAX_INT32}, the largest int32")
    if implementation == "xla":
        from kernels.vector import xla

        return xla.iota(n)
    from kernels.vector import pallas, triton

    return {"pallas": pallas, "triton": triton}[implementation].iota(n, interpret=interpret)
