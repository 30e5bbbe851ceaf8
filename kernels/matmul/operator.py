"""Matrix multiplication: of dense, of quantised and of block-sparse matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines import checks
from kernels.machines.tpu.plan import sublanes
from kernels.matmul.blocks import BlockSizes
from kernels.matmul.quantized import check_groups
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.backends.nki import NKI
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import OWN_BLOCKS, Implementation, Operator

DTYPES = ("float32", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2")
STORED = ("int8", "float8_e4m3fn", "float8_e5m2")  # weights, and as int8 also pairs of int4
LONGEST = 2**31 // 128**2 - 1  # products of int8 that int32 can add up, even if all are (−128)²


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

    Args:
        x: [m, k], float32, bfloat16, int8 or one float8. No dimension may be zero; blocks need not
            divide any.
        y: [k, n], or [n, k] with transpose_rhs; x's dtype.
        implementation: "xla", "pallas" (TPU), "nki" (AWS Neuron; float32 and bfloat16, only
            multiplies), "mosaic_gpu" (Hopper GPUs; bfloat16, no prologue), or one of the levels of
            the chapter on pipelining, "v0" to "v5", which only multiply too.
        block: of "pallas"; by the tuner's records if None.
        prologue: an elementwise JAX function of x, taken in float32 and rounded to x's dtype as x
            is read; floats only.
        activation: an elementwise JAX function of the float32 (or int32) sums.
        transpose_rhs: whether y is stored by its columns.
        interpret: None interprets where there is no TPU.

    Returns:
        [m, n]: float32 and bfloat16 keep their dtype and are added up in float32; int8 gives int32,
        exactly; float8 gives float32. "pallas", "xla" and "mosaic_gpu" are differentiable for
        float32 and bfloat16, the first two under jax.vmap too.

    Raises:
        ValueError: for another rank, dtype, size, block or implementation, for blocks that VMEM
            cannot hold, and for int8 with k above 131,071, whose sums may not fit into int32.
    """
    chosen = MATMUL[implementation]
    checks.array("x", x, rank=2, dtypes=DTYPES)
    checks.array("y", y, rank=2, dtypes=DTYPES, like=("x", x))
    checks.one_of("transpose_rhs", transpose_rhs, (False, True))
    _check_k(x, y, 1 if transpose_rhs else 0)
    _function("prologue", prologue)
    _function("activation", activation)
    if prologue is not None and str(x.dtype) == "int8":
        checks.fail("prologue", prologue, "None for int8")
    checks.instance("block", block, BlockSizes)
    options = {"prologue": prologue, "activation": activation, "transpose_rhs": transpose_rhs}
    return chosen(x, y, block=block, interpret=interpret, **options)


def quantized_matmul(
    x: Any,
    y: Any,
    x_scale: Any,
    y_scale: Any,
    bias: Any,
    *,
    weights: str | None = None,
    implementation: str = "pallas",
    block: BlockSizes | None = None,
    activation: Callable[[Any], Any] | None = None,
    out_dtype: str | None = None,
    interpret: Any = None,
) -> Any:
    """A linear layer on narrow numbers: act(x̂ ŷ + bias), of numbers times scales, in one kernel.

    Of int8 by int8, the products are added up in int32, exactly, and scaled at the end. Of floats
    by narrow weights, the weights are widened in the kernel and added up in float32. `quantize` and
    `quantize_weights` make the narrow numbers and the scales.

    Args:
        x: [m, k]: int8, with k at most 131,071, or bfloat16 or float32.
        y: [k, n]: int8; for an x of floats also float8_e4m3fn, float8_e5m2, or int4, which is int8
            [groups · ⌈k / groups / 2⌉, n]: rows 2i and 2i + 1 of a group share a byte, the even one
            in its low four bits.
        x_scale: float32 [m], of the rows of an x of int8; None for floats.
        y_scale: float32 [n]; for an x of floats also [groups, n], of as many groups of k / groups
            rows each.
        bias: float32 [n].
        weights: what y holds: "int4", or y's dtype, which None stands for.
        implementation: "xla" or "pallas" (TPU).
        block, activation, interpret: as matmul has them; a block for an x of floats has all of k.
        out_dtype: of an x of int8 "float32", which None stands for, or "bfloat16"; of floats x's.

    Returns:
        [m, n] in out_dtype. Differentiable in an x of floats; the weights, their scales and the
        bias are frozen, and their gradients in "pallas" are zero.

    Raises:
        ValueError: for anything else, groups that do not divide k, and blocks that VMEM cannot
            hold.

    Source:
        Scales of groups: GPTQ, Frantar et al. 2022, arXiv:2210.17323. float8: Micikevicius et al.
        2022, arXiv:2209.05433.
    """
    chosen = QUANTIZED_MATMUL[implementation]
    checks.array("x", x, rank=2, dtypes=("int8", "bfloat16", "float32"))
    floats = str(x.dtype) != "int8"
    checks.array("y", y, rank=2, dtypes=STORED if floats else STORED[:1])
    checks.array("bias", bias, rank=1, dtypes=("float32",))
    if floats:
        _check_weights(x, y, x_scale, y_scale, weights)
    else:
        checks.one_of("weights", weights, (None, "int8"))
        _check_k(x, y, 0)
        checks.array("x_scale", x_scale, rank=1, dtypes=("float32",))
        checks.array("y_scale", y_scale, rank=1, dtypes=("float32",))
        _check_size("x_scale", x_scale, x.shape[0], "row of x")
        _check_size("y_scale", y_scale, y.shape[1], "column of y")
    _check_size("bias", bias, y.shape[1], "column of y")
    kept = (str(x.dtype),) if floats else ("float32", "bfloat16")
    checks.one_of("out_dtype", out_dtype or kept[0], kept)
    _function("activation", activation)
    checks.instance("block", block, BlockSizes)
    options = {"weights": weights, "activation": activation, "out_dtype": out_dtype or kept[0]}
    return chosen(x, y, x_scale, y_scale, bias, block=block, interpret=interpret, **options)


def _check_size(name: str, value: Any, size: int, of_what: str) -> None:
    if value.shape[-1] != size:
        checks.fail(f"{name}.shape", tuple(value.shape), f"({size},), one for each {of_what}")


def _check_weights(x: Any, y: Any, x_scale: Any, y_scale: Any, weights: str | None) -> None:
    """Floats by narrow weights: what y holds, its rows, and the groups of its scales."""
    if x_scale is not None:
        checks.fail("x_scale", "an array", f"None, since x is {x.dtype}")
    dtype = str(y.dtype)
    checks.one_of("weights", weights, (None, dtype, *(("int4",) if dtype == "int8" else ())))
    rank = 1 if getattr(y_scale, "ndim", None) == 1 else 2
    checks.array("y_scale", y_scale, rank=rank, dtypes=("float32",))
    k, groups = x.shape[1], y_scale.shape[0] if rank == 2 else 1
    check_groups("y_scale.shape[0]", groups, k)
    _check_size("y_scale", y_scale, y.shape[1], "column of y")
    rows = groups * -(-k // groups // 2) if weights == "int4" else k
    if y.shape[0] != rows:
        checks.fail("y.shape[0]", y.shape[0], f"{rows}, for {k} rows of {weights or dtype}")


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

    Args:
        blocks: [number, bm, bk], float32, bfloat16 or int8. bm and bk are multiples of 8, 16 or 32
            for elements of 4, 2 or 1 bytes. There may be no block at all. What a block holds beyond
            x is ignored; no two stand in the same place.
        y: [k, n], the same dtype. m, k and n need not be multiples of anything.
        rows, columns: int32 [number], where each block stands in x [m, k], counted in blocks; rows
            ascend. Under jax.jit they have no values yet and are not checked.
        m: None for a square x.
        implementation: "xla" (fills in the zeros) or "pallas" (TPU), whose work grows with the
            number of blocks, not with the size of x.
        bn: columns of y in a block of "pallas"; as many as fit into VMEM if None.
        interpret: None interprets where there is no TPU.

    Returns:
        x y, [m, n]: float32 and bfloat16 keep their dtype and are added up in float32; int8 gives
        int32, exactly. Differentiable in blocks and y.

    Raises:
        ValueError: for another rank, dtype, size or implementation, for rows that do not ascend, a
            place named twice, indices beyond x, and more blocks than a TPU's scalar memory can
            list.

    Source:
        "Scalar Prefetch and Block-Sparse Computation", JAX's documentation. BlockSparse makes the
        three arrays from a dense matrix.
    """
    chosen = BLOCK_SPARSE_MATMUL[implementation]
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
    return chosen(blocks, y, rows, columns, m=m, bn=bn, interpret=interpret)


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
    places = []
    for name, value, end in (("rows", rows, shape[0]), ("columns", columns, shape[1])):
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            checks.fail(name, f"a {type(value).__name__}", "an array of rank 1")
        checks.same(f"{name}.shape", tuple(value.shape), "blocks", (number,))
        checks.one_of(f"{name}.dtype", str(value.dtype), ("int32",))
        if (known := checks.known(value)) is not None:
            wrong = known[(known < 0) | (known >= end)]
            if wrong.size:
                checks.fail(name, f"one with {wrong[0]}", f"0 to {end - 1}, counted in blocks")
            places.append(known)
    if len(places) < 2:
        return
    if (np.diff(places[0]) < 0).any():
        checks.fail("rows", "one that descends", "rows that ascend")
    if len(np.unique(np.stack(places), axis=1).T) < number:
        checks.fail("columns", "one with two blocks in the same place", "one block in each place")


_ONLY = dict.fromkeys(("prologue", "activation", "transpose_rhs"), "only multiplies") | OWN_BLOCKS

MATMUL = Operator(
    matmul,
    summary="x y for matrices of any shape, with a fused activation",
    chapter="blockspec_matmul",
    differentiable=("x", "y"),
    implementations=(
        Implementation("xla", XLA, "xla:matmul", lacks=OWN_BLOCKS),
        Implementation("pallas", PALLAS_TPU, "pallas:matmul"),
        *(
            Implementation(
                level,
                PALLAS_TPU,
                f"levels:{level}",
                accepts=lambda workload: not workload.options,
                lacks=_ONLY,
                differentiable=False,
                chapter="pipelined_matmul",
            )
            for level in ("v0", "v1", "v2", "v3", "v4", "v5")
        ),
        Implementation(
            "nki",
            NKI,
            "nki:matmul",
            accepts=lambda workload: (
                {*workload.options} <= {"transpose_rhs"}
                and workload.dtype in ("float32", "bfloat16")
            ),
            lacks={name: why for name, why in _ONLY.items() if name != "transpose_rhs"},
            differentiable=False,
            chapter="matmul_softmax_nki",
        ),
        Implementation(
            "mosaic_gpu",
            MOSAIC_GPU,
            "mosaic_gpu:matmul",
            accepts=lambda w: w.dtype == "bfloat16" and "prologue" not in w.options,
            lacks={"prologue": "reads x straight into its tensor cores"} | OWN_BLOCKS,
            chapter="matmul_on_hopper",
        ),
    ),
)

QUANTIZED_MATMUL = Operator(
    quantized_matmul,
    summary="a linear layer on int8, int4 or float8, scaled back in the kernel",
    chapter="int8_matmul",
    differentiable=("x",),
    implementations=(
        Implementation("xla", XLA, "xla:quantized_matmul", lacks=OWN_BLOCKS),
        Implementation("pallas", PALLAS_TPU, "pallas:quantized_matmul"),
    ),
)

BLOCK_SPARSE_MATMUL = Operator(
    block_sparse_matmul,
    summary="x y where only some blocks of x are stored",
    chapter="pipelined_matmul",
    differentiable=("blocks", "y"),
    linear=True,
    implementations=(
        Implementation("xla", XLA, "xla:block_sparse_matmul", lacks={"bn": "chooses its own"}),
        Implementation("pallas", PALLAS_TPU, "block_sparse:block_sparse_matmul"),
    ),
)
