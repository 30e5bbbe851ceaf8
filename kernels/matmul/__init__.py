"""Matrix multiplication: matmul(x, y), [m, k] × [k, n] → [m, n]."""

from collections.abc import Callable
from typing import Any

from kernels import checks
from kernels.matmul.blocks import BlockSizes

DTYPES = ("float32", "bfloat16", "int8")
IMPLEMENTATIONS = ("xla", "pallas")

__all__ = ["BlockSizes", "matmul"]


def matmul(
    x: Any,
    y: Any,
    *,
    implementation: str = "pallas",
    block: BlockSizes | None = None,
    activation: Callable[[Any], Any] | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> Any:
    """Multiply two matrices, and apply `activation` to the sums before they are rounded.

    x: [m, k]; y: [k, n], or [n, k] with transpose_rhs. Both float32, bfloat16 or int8.
    Returns [m, n]: float32 and bfloat16 keep their dtype and are added up in float32; int8 gives
    int32, exactly. No dimension may be zero; blocks need not divide any of them.
    implementation: "xla" or "pallas" (TPU). block: of "pallas", chosen by VMEM arithmetic if None.
    activation: an elementwise JAX function of the float32 (or int32) sums.
    interpret: None interprets where there is no TPU. Differentiable for the float dtypes; works
    under jax.vmap. Raises ValueError for another rank, dtype, size, block or implementation.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    checks.array("x", x, rank=2, dtypes=DTYPES)
    checks.array("y", y, rank=2, dtypes=DTYPES)
    checks.same("y.dtype", str(y.dtype), "x", str(x.dtype))
    inner = 1 if transpose_rhs else 0
    if y.shape[inner] != x.shape[1]:
        checks.fail(
            "y.shape",
            tuple(y.shape),
            f"{x.shape[1]} in dimension {inner}, to match x of shape {tuple(x.shape)}",
        )
    if activation is not None and not callable(activation):
        checks.fail("activation", repr(activation), "None or a function of one array")
    if block is not None and not isinstance(block, BlockSizes):
        checks.fail("block", repr(block), "None or BlockSizes(bm, bk, bn)")
    if implementation == "xla":
        if block is not None:
            checks.fail("block", block, 'None, since "xla" chooses its own')
        from kernels.matmul import xla

        return xla.matmul(x, y, activation=activation, transpose_rhs=transpose_rhs)
    from kernels.matmul import pallas

    return pallas.matmul(
        x,
        y,
        block=block,
        activation=activation,
        transpose_rhs=transpose_rhs,
        interpret=interpret,
    )
