"""Matrix multiplication: of dense, of quantised and of block-sparse matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import checks
from kernels.matmul.blocks import BlockSizes, sublanes
from kernels.matmul.quantized import quantize

DTYPES = ("float32", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2")
LEVELS = ("v0", "v1", "v2", "v3", "v4", "v5")
PLAIN = ("xla", "pallas")
IMPLEMENTATIONS = (*PLAIN, *LEVELS, "nki")
LONGEST = 2**31 // 128**2 - 1  # products of int8 that int32 can add up, even if all are (−128)²

__all__ = [
    "BlockSizes",
    "BlockSparse",
    "block_sparse_matmul",
    "matmul",
    "quantize",
    "quantized_matmul",
]


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
    prologue: Callable[[Any], Any] | None = None,
    activation: Callable[[Any], Any] | None = None,
    transpose_rhs: bool = False,
    interpret: Any = None,
) -> Any:
    """Multiply two matrices, and apply `activation` to the sums before they are rounded.

    x: [m, k]; y: [k, n], or [n, k] with transpose_rhs. Both float32, bfloat16, int8 or one float8.
    Returns [m, n]: float32 and bfloat16 keep their dtype and are added up in float32; int8 gives
    int32, exactly; float8 gives float32. No dimension may be zero; blocks need not divide any.
    implementation: "xla", "pallas" (TPU), "nki" (AWS Neuron; float32 and bfloat16, only
    multiplies), or one of chapter 7's levels, "v0" to "v5", which only multiply too. block: of
    "pallas"; by the tuner's records if None. prologue: an elementwise JAX function of x, taken in
    float32 and rounded to x's dtype as x is read; floats only. activation: an elementwise JAX
    function of the float32 (or int32) sums.
    interpret: None interprets where there is no TPU. "pallas" and "xla" are differentiable for
    float32 and bfloat16, and work under jax.vmap. Raises ValueError for another rank, dtype, size,
    block or implementation, for blocks that VMEM cannot hold, and for int8 with k above 131,071,
    whose sums may not fit into int32.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    checks.array("x", x, rank=2, dtypes=DTYPES)
    checks.array("y", y, rank=2, dtypes=DTYPES)
    checks.same("y.dtype", str(y.dtype), "x", str(x.dtype))
    _check_k(x, y, 1 if transpose_rhs else 0)
    _function("prologue", prologue)
    _function("activation", activation)
    if prologue is not None and str(x.dtype) == "int8":
        checks.fail("prologue", prologue, "None for int8")
    _block(block, implementation)
    if implementation in LEVELS:
        for name, value in (("prologue", prologue), ("activation", activation)):
            if value is not None:
                checks.fail(name, value, f'None, since "{implementation}" only multiplies')
        if transpose_rhs:
            checks.fail("transpose_rhs", True, f'False, since "{implementation}" only multiplies')
        from kernels.matmul import levels

        return getattr(levels, implementation)(x, y, interpret=interpret)
    if implementation == "nki":
        for name, value in (("prologue", prologue), ("activation", activation)):
            if value is not None:
                checks.fail(name, value, 'None, since "nki" only multiplies')
        checks.one_of("x.dtype", str(x.dtype), DTYPES[:2])
        from kernels.matmul import nki

        return nki.matmul(x, y, transpose_rhs=transpose_rhs, interpret=interpret)
    options = {"prologue": prologue, "activation": activation, "transpose_rhs": transpose_rhs}
    if implementation == "xla":
        from kernels.matmul import xla

        return xla.matmul(x, y, **options)
    from kernels.matmul import pallas

    return pallas.matmul(x, y, block=block, interpret=interpret, **options)


def quantized_matmul(
    x: Any,
    y: Any,
    x_scale: Any,
    y_scale: Any,
    bias: Any,
    *,
    implementation: str = "pallas",
    block: BlockSizes | None = None,
    activation: Callable[[Any], Any] | None = None,
    out_dtype: str = "float32",
    interpret: Any = None,
) -> Any:
    """A linear layer on int8 matrices: act((x y) · x_scale · y_scale + bias), in one kernel.

    x: int8 [m, k]; y: int8 [k, n]; x_scale: float32 [m], of the rows of x; y_scale and bias:
    float32 [n]. `quantize` makes the integers and the scales. The products are added up in int32,
    exactly; scales, bias and activation are applied before anything leaves the kernel.
    Returns [m, n] in out_dtype, "float32" or "bfloat16". implementation: "xla" or "pallas" (TPU).
    block, activation, interpret: as matmul has them. k is at most 131,071, as there. Raises
    ValueError for anything else.
    """
    checks.implementation(implementation, PLAIN)
    checks.array("x", x, rank=2, dtypes=("int8",))
    checks.array("y", y, rank=2, dtypes=("int8",))
    _check_k(x, y, 0)
    for name, value, other, size in (
        ("x_scale", x_scale, "x", x.shape[0]),
        ("y_scale", y_scale, "y", y.shape[1]),
        ("bias", bias, "y", y.shape[1]),
    ):
        checks.array(name, value, rank=1, dtypes=("float32",))
        side = "row" if other == "x" else "column"
        if value.shape[0] != size:
            checks.fail(
                f"{name}.shape", tuple(value.shape), f"({size},), one for each {side} of {other}"
            )
    checks.one_of("out_dtype", out_dtype, ("float32", "bfloat16"))
    _function("activation", activation)
    _block(block, implementation)
    options = {"activation": activation, "out_dtype": out_dtype}
    if implementation == "xla":
        from kernels.matmul import xla

        return xla.quantized_matmul(x, y, x_scale, y_scale, bias, **options)
    from kernels.matmul import pallas

    return pallas.quantized_matmul(
        x, y, x_scale, y_scale, bias, block=block, interpret=interpret, **options
    )


def _check_k(x: Any, y: Any, inner: int) -> None:
    k = x.shape[1]
    if y.shape[inner] != k:
        checks.fail(
            "y.shape",
            tuple(y.shape),
            f"{k} in dimension {inner}, to match x of shape {tuple(x.shape)}",
        )
    if str(x.dtype) == "int8" and k > LONGEST:
        checks.fail("k", k, f"at most {LONGEST} for int8, so that no sum overflows int32")


def _function(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        checks.fail(name, repr(value), "None or a function of one array")


def _block(block: Any, implementation: str) -> None:
    if block is not None and not isinstance(block, BlockSizes):
        checks.fail("block", repr(block), "None or BlockSizes(bm, bk, bn)")
    if block is not None and implementation != "pallas":
        checks.fail("block", block, f'None, since "{implementation}" chooses its own')


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
    checks.implementation(implementation, PLAIN)
    checks.array("y", y, rank=2, dtypes=DTYPES[:3])
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
