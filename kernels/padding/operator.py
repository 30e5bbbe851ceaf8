"""Brick padding: a border of bricks around an image, written in four frameworks.

brick_pad(tile): [h, w] or [h, w, C] → [h + 2 rows, w + 2 cols(, C)]
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.machines import checks
from kernels.padding import arrays
from kernels.padding.lattice import BrickPlan, plan
from kernels.proof.backends.numpy import NUMPY
from kernels.proof.backends.taichi import TAICHI
from kernels.proof.backends.torch import TORCH
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import Implementation, Operator
from kernels.proof.workload import Workload

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = (*INTEGERS, "float16", "bfloat16", "float32", "float64")


def brick_pad(
    tile: Any,
    *,
    border: tuple[int, int],
    shift_x: tuple[int, int] | None = None,
    shift_y: tuple[int, int] | None = None,
    out: Any = None,
    implementation: str = "taichi",
) -> Any:
    """Surround a tile with copies of itself, laid like bricks.

    The plane is tiled with copies of the tile moved by whole multiples of shift_x = (dx, dy) and
    shift_y: x to the right, y up. So shift_y = (10, h) moves each row of bricks 10 pixels to the
    right of the one below.

    Args:
        tile: [h, w] or [h, w, C], of any integer or float dtype, but not bool; a NumPy array, a
            torch tensor on the CPU or the first GPU, or a JAX array.
        border: (rows, cols) to add on either side, 0 or more.
        shift_x: two whole numbers; None is (w, 0).
        shift_y: two whole numbers; None is (0, h).
        out: a contiguous array of the result's kind, shape and dtype to write to; None makes one.
        implementation: "numpy", "torch" (a gather), "torch_rows" (slices), "jax" or "taichi";
            "torch_table" is the torch version in the published way, "v0" to "v4" are the levels of
            the chapter on the way to "taichi".

    Returns:
        [h + 2 rows, w + 2 cols(, C)], the same kind of array, with the tile in its centre. All
        implementations give the same bits. No gradient is defined, and a tensor that requires one
        is refused.

    Raises:
        ValueError: for what is not described here, and for shifts with which copies of the tile
            overlap or leave gaps.

    Source:
        "Accelerate PyTorch with Taichi", Taichi documentation, 1.3.
    """
    chosen = BRICK_PAD[implementation]
    kind = arrays.check(tile, DTYPES)
    _pair("border", border, least=0)
    h, w, *channels = tile.shape
    shift_x, shift_y = shift_x or (w, 0), shift_y or (0, h)
    _pair("shift_x", shift_x)
    _pair("shift_y", shift_y)
    shape = (h + 2 * border[0], w + 2 * border[1], *channels)
    if out is not None:
        arrays.check_out(out, tile, kind, shape, implementation)

    def planned(parts: int) -> BrickPlan:
        """For a tile whose elements are cut into so many."""
        return plan((h, w, *channels, parts), border, shift_x, shift_y)

    if chosen.backend is XLA:
        return arrays.through_jax(tile, kind, shape, planned)
    works_on = {NUMPY: "numpy", TORCH: "torch"}.get(chosen.backend, "either")  # see arrays.py
    return arrays.through_bits(tile, kind, shape, planned(1), out, chosen.function, works_on)


def floor(workload: Workload, device: str = "cpu") -> Callable[[], Any]:
    """A call that writes the memory of the workload's result once, with PyTorch's ``fill_``.

    No way of padding can be faster; time it in the same run.

    Args:
        workload: one of the operator's.
        device: "cpu" or "cuda".

    Returns:
        A function without arguments.
    """
    from kernels.padding import workloads

    return workloads.limit(workload, device)[1]


def _pair(argument: str, value: Any, least: int | None = None) -> None:
    """Check two whole numbers, which may have to be at least `least`."""
    whole = "two whole numbers" + ("" if least is None else f" of at least {least}")
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        checks.fail(argument, repr(value), whole)
    for number in value:
        integer = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        if not integer or (least is not None and number < least):
            checks.fail(argument, repr(value), whole)


BRICK_PAD = Operator(
    brick_pad,
    summary="an image's border, laid with copies of it like bricks",
    chapter="brick_padding",
    plain="numpy",
    implementations=(
        Implementation("numpy", NUMPY, "numpy:brick_pad"),
        Implementation("torch", TORCH, "torch:brick_pad"),
        Implementation("torch_rows", TORCH, "torch:rows"),
        Implementation("torch_table", TORCH, "torch:table"),
        Implementation("jax", XLA, "jax:brick_pad"),
        Implementation("taichi", TAICHI, "taichi:brick_pad"),
        *(Implementation(level, TAICHI, f"levels:{level}") for level in ("v0", "v1", "v2", "v3")),
        Implementation("v4", TAICHI, "taichi:of_8_bytes"),
    ),
)
