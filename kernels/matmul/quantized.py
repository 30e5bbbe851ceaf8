"""From floats to int8 and back: one scale for each row or column, symmetric around zero."""

from dataclasses import dataclass
from typing import Any

from kernels.machines import checks

LARGEST = 127  # −128 is left unused, so that a negated matrix quantises to the negated integers


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


@dataclass(frozen=True)
class Dequantise:
    """The epilogue act(z · x_scale · y_scale + bias) of a block of int32 sums."""

    activation: Any = None

    def __call__(self, z, x_scale, y_scale, bias):
        # z [bm, bn] int32, x_scale [bm, 1], y_scale and bias [1, bn], float32
        z = z.astype(x_scale.dtype) * x_scale * y_scale + bias
        return z if self.activation is None else self.activation(z)
