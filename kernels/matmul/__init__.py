"""Matrix multiplication, [m, k] × [k, n] → [m, n].

matmul(x, y)                                  block_sparse_matmul(blocks, y, rows, columns)
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import checks
from kernels.matmul.blocks import BlockSizes, sublanes

DTYPES = ("float32", "bfloat16", "int8")
IMPLEMENTATIONS = ("xla", "pallas")

__all__ = ["BlockSizes", "BlockSparse", "block_sparse_matmul", "matmul"]


def __getattr__(name: str) -> Any:
    if name == "BlockSparse":  # a JAX pytree: importing this package does not import JAX
        from kernels.matmul.block_sparse import BlockSparse

        return BlockSparse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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


def block_sparse_matmul(
    blocks: Any,
    y: Any,
    rows: Any,
    columns: Any,
    *,
    m: int | None = None,
    implementation: str = "pallas",
    bn: int | None = None,
    interpret: Any = None,
) -> Any:
    """Multiply a matrix of which only some blocks are stored by a dense one.

    blocks: [number, bm, bk], float32, bfloat16 or int8; y: [k, n], the same dtype. rows, columns:
    int32 [number], where each block stands in x [m, k], counted in blocks; rows ascend. There may
    be no block at all. bm and bk are multiples of 8, 16 or 32 for elements of 4, 2 or 1 bytes. What
    a block holds beyond x is ignored; no two stand in the same place. m: None for a square x.
    Returns x y, [m, n]: float32 and bfloat16 keep their dtype and are added up in float32; int8
    gives int32, exactly. m, k and n need not be multiples of anything.
    implementation: "xla" (fills in the zeros) or "pallas" (TPU), whose work grows with the number
    of blocks, not with the size of x. bn: columns of y in a block of "pallas"; as many as fit into
    VMEM if None. interpret: None interprets where there is no TPU. Differentiable in blocks and y.
    Under jax.jit, rows and columns have no values yet and are not checked.
    Raises ValueError for another rank, dtype, size or implementation, for rows that do not ascend,
    a place named twice, indices beyond x, and more blocks than a TPU's scalar memory can list.
    After "Scalar Prefetch and Block-Sparse Computation" of JAX's documentation. BlockSparse makes
    the three arrays from a dense matrix.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    checks.array("y", y, rank=2, dtypes=DTYPES)
    _check_blocks(blocks, y)
    k, n = y.shape
    m = k if m is None else m
    checks.positive_int("m", m)
    _, bm, bk = blocks.shape
    _check_indices(rows, columns, len(blocks), (-(-m // bm), -(-k // bk)))
    if bn is not None:
        checks.positive_int("bn", bn)
        if bn < n and bn % 128:
            checks.fail("bn", bn, f"a multiple of 128, or all {n}")
    if implementation == "xla":
        if bn is not None:
            checks.fail("bn", bn, 'None, since "xla" chooses its own')
        from kernels.matmul import xla

        return xla.block_sparse_matmul(blocks, y, rows, columns, m=m)
    from kernels.matmul import block_sparse

    return block_sparse.block_sparse_matmul(
        blocks, y, rows, columns, m=m, bn=bn, interpret=interpret
    )


def _check_blocks(blocks: Any, y: Any) -> None:
    if getattr(blocks, "ndim", None) != 3 or 0 in blocks.shape[1:]:
        checks.fail("blocks", f"of shape {getattr(blocks, 'shape', None)}", "[number, bm, bk]")
    checks.same("blocks.dtype", str(blocks.dtype), "y", str(y.dtype))
    step = sublanes(np.dtype(blocks.dtype).itemsize)
    if blocks.shape[1] % step or blocks.shape[2] % step:
        checks.fail(
            "blocks.shape", tuple(blocks.shape), f"multiples of {step} in dimensions 1 and 2"
        )


def _check_indices(rows: Any, columns: Any, number: int, shape: tuple[int, int]) -> None:
    """int32 [number] both; within `shape`, ascending rows and no place twice where it is known."""
    from jax.core import Tracer

    for name, value, end in (("rows", rows, shape[0]), ("columns", columns, shape[1])):
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            checks.fail(name, f"a {type(value).__name__}", "an array of rank 1")
        checks.same(f"{name}.shape", tuple(value.shape), "blocks", (number,))
        checks.one_of(f"{name}.dtype", str(value.dtype), ("int32",))
        if not isinstance(value, Tracer) and number:
            known = np.asarray(value)
            wrong = known[(known < 0) | (known >= end)]
            if wrong.size:
                checks.fail(name, f"one with {wrong[0]}", f"0 to {end - 1}, counted in blocks")
    if isinstance(rows, Tracer) or isinstance(columns, Tracer):
        return
    rows, columns = np.asarray(rows), np.asarray(columns)
    if (np.diff(rows) < 0).any():
        checks.fail("rows", "one that descends", "rows that ascend")
    if len(np.unique(np.stack([rows, columns]), axis=1).T) < number:
        checks.fail("columns", "one with two blocks in the same place", "one block in each place")
