"""From floats to narrow numbers and back: scales for rows, columns or groups, around zero."""

from dataclasses import dataclass
from typing import Any

from kernels.machines import checks

LARGEST = 127  # −128 is left unused, so that a negated matrix quantises to the negated integers
# What a weight may be stored as → its largest magnitude. Two int4 share a byte.
WEIGHTS = {"int8": LARGEST, "int4": 7, "float8_e4m3fn": 448, "float8_e5m2": 57344}


def quantize(x: Any, axis: int) -> tuple[Any, Any]:
    """Round `x` to int8, with the largest magnitude along `axis` at ±127.

    Args:
        x: [m, n], float32 or bfloat16.
        axis: summed over later: 1 gives a scale for each row, 0 for each column.

    Returns:
        int8 [m, n] and the float32 scales, [m] or [n], so that x ≈ integers × scales. A row of
        zeros gets scale 1.

    Raises:
        ValueError: for another rank, dtype or axis.

    Source:
        Symmetric per-channel quantisation, Krishnamoorthi 2018, arXiv:1806.08342.
    """
    import jax.numpy as jnp

    checks.array("x", x, rank=2, dtypes=("float32", "bfloat16"))
    checks.one_of("axis", axis, (0, 1))
    wide = jnp.asarray(x, jnp.float32)
    largest = jnp.abs(wide).max(axis, keepdims=True)
    scale = jnp.where(largest > 0, largest, LARGEST) / LARGEST
    integers = jnp.clip(jnp.round(wide / scale), -LARGEST, LARGEST).astype(jnp.int8)
    return integers, scale.reshape(-1)


def quantize_weights(w: Any, weights: str, groups: int = 1) -> tuple[Any, Any]:
    """Round `w` to narrow numbers, with a scale for each column of each group of rows.

    Args:
        w: [k, n], float32 or bfloat16.
        weights: "int8", "int4", "float8_e4m3fn" or "float8_e5m2".
        groups: of as many rows each; it divides k.

    Returns:
        [k, n] of that dtype, and the float32 scales [groups, n]; a column of zeros gets scale 1.
        Of int4, int8 [groups · ⌈k / groups / 2⌉, n]: rows 2i and 2i + 1 of a group share a byte,
        the even one in its low four bits.

    Raises:
        ValueError: for another rank, dtype or number of groups.
    """
    import jax.numpy as jnp

    checks.array("w", w, rank=2, dtypes=("float32", "bfloat16"))
    checks.one_of("weights", weights, WEIGHTS)
    k, n = w.shape
    check_groups("groups", groups, k)
    wide = jnp.asarray(w, jnp.float32).reshape(groups, k // groups, n)
    largest = jnp.abs(wide).max(1, keepdims=True)
    scale = jnp.where(largest > 0, largest, WEIGHTS[weights]) / WEIGHTS[weights]
    narrow = wide / scale
    if "int" in weights:
        narrow = jnp.round(narrow).astype(jnp.int8)
    if weights == "int4":
        even = jnp.pad(narrow, ((0, 0), (0, k // groups % 2), (0, 0)))
        narrow = even[:, 1::2] << 4 | even[:, ::2] & 15
    return narrow.reshape(-1, n).astype("int8" if "int" in weights else weights), scale[:, 0]


def check_groups(name: str, groups: Any, k: int) -> None:
    """ValueError unless `groups` are as many rows of k each."""
    checks.positive_int(name, groups)
    if k % groups:
        checks.fail(name, groups, f"a divisor of k, {k}")


@dataclass(frozen=True)
class Dequantise:
    """The epilogue act(z · x_scale · y_scale + bias) of a block of int32 sums."""

    activation: Any = None

    def __call__(self, z, x_scale, y_scale, bias):
        # z [bm, bn] int32, x_scale [bm, 1], y_scale and bias [1, bn], float32
        z = z.astype(x_scale.dtype) * x_scale * y_scale + bias
        return z if self.activation is None else self.activation(z)
