"""Grouped matrix multiplication: each group of rows by a matrix of its own."""

from typing import Any

import numpy as np

from kernels.grouped_matmul.blocks import GroupedBlocks
from kernels.machines import checks
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import OWN_BLOCKS, Implementation, Operator
from kernels.proof.workload import Workload


def grouped_matmul(
    x: Any,
    w: Any,
    group_sizes: Any,
    *,
    implementation: str = "pallas",
    block: GroupedBlocks | None = None,
    interpret: Any = None,
) -> Any:
    """Multiply consecutive groups of rows, each by its own matrix, as jax.lax.ragged_dot does.

    Args:
        x: [M, K], float32 or bfloat16; no dimension may be zero. The first group_sizes[0] rows are
            group 0, those after them group 1, and so on.
        w: [G, K, N], x's dtype.
        group_sizes: int32 [G]; groups may be empty, and rows may be left over.
        implementation: "pallas" (TPU), "xla" (jax.lax.ragged_dot), "xla_dense" (all rows by every
            matrix) or "jax_megablox" (the kernel that JAX ships; bfloat16, sizes that 128 divides).
        block: of "pallas"; None takes GroupedBlocks.default's.
        interpret: None interprets where there is no TPU.

    Returns:
        [M, N] in x's dtype, added up in float32; rows that are in no group are zero. Differentiable
        in x and w.

    Raises:
        ValueError: for another rank, dtype, size, block or implementation, for blocks that VMEM
            cannot hold, and, where the values are known, for the first group that is negative or
            reaches beyond M rows. Under jit, what reaches beyond M is cut off.
    """
    chosen = GROUPED_MATMUL[implementation]
    checks.array("x", x, rank=2)
    checks.array("w", w, rank=3, like=("x", x))
    checks.same("w.shape[1]", w.shape[1], "x.shape[1]", x.shape[1])
    checks.array("group_sizes", group_sizes, rank=1, dtypes=("int32",))
    checks.same("group_sizes.shape[0]", group_sizes.shape[0], "w.shape[0]", w.shape[0])
    _check_groups(group_sizes, x.shape[0])
    checks.instance("block", block, GroupedBlocks)
    return chosen(x, w, group_sizes, block=block, interpret=interpret)


def _check_groups(group_sizes: Any, rows: int) -> None:
    """None negative, and no more than there are rows, where that is known."""
    known = checks.known(group_sizes)
    if known is None:
        return
    known = known.astype(np.int64)
    left = rows - (np.cumsum(known) - known)
    wrong = np.flatnonzero((known < 0) | (known > left))
    if wrong.size:
        first = int(wrong[0])
        accepted = f"0 to {left[first]}, the rows of x that are left"
        checks.fail(f"group_sizes[{first}]", int(known[first]), accepted)


def _whole_tiles(workload: Workload) -> bool:
    whole = all(workload.sizes[name] % 128 == 0 for name in "mkn")
    return workload.dtype == "bfloat16" and whole


GROUPED_MATMUL = Operator(
    grouped_matmul,
    summary="each group of rows by a matrix of its own",
    chapter="experts",
    differentiable=("x", "w"),
    linear=True,
    implementations=(
        Implementation("xla", XLA, "xla:grouped_matmul", lacks=OWN_BLOCKS),
        Implementation("xla_dense", XLA, "xla:dense", lacks=OWN_BLOCKS),
        Implementation("pallas", PALLAS_TPU, "pallas:grouped_matmul"),
        Implementation(
            "jax_megablox",
            PALLAS_TPU,
            "shipped:megablox",
            accepts=_whole_tiles,
            lacks=OWN_BLOCKS,
            shipped_with="JAX",
        ),
    ),
)
