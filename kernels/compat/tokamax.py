"""tokamax, whose kernels are called at blocks that its public functions do not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def flash_attention(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Its flash attention for a TPU; seen in 0.0.12.

    Args:
        config: the fields of its Config, as its autotuning cache has them.

    Returns:
        A function of q, k and v, [batch, tokens, heads, features].
    """
    from tokamax._src.ops.attention import pallas_mosaic_tpu as kernel
    from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel

    layouts = {
        name: splash_attention_kernel.QKVLayout(value) if name.endswith("layout") else value
        for name, value in config.items()
    }
    return _called(kernel.PallasMosaicTpuFlashAttention(config=kernel.Config(**layouts)))


def ragged_dot(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Its ragged product for a TPU; seen in 0.0.12.

    Args:
        config: the fields of its Config, as its autotuning cache has them.

    Returns:
        A function of the left and the right operand, with group_sizes=.
    """
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as kernel

    return _called(kernel.PallasMosaicTpuRaggedDot(config=kernel.Config(**config)))


def _called(op: Any) -> Callable[..., Any]:
    """An op as a function that does not ask which device this is: it is compiled for another."""

    def call(*arrays: Any, return_residuals: bool = False, **more: Any) -> Any:
        bound = op.bind(*arrays, return_residuals=return_residuals, **more)
        out, residuals = op._fwd(*bound.args, config=op.config, **bound.kwargs)
        return (out, residuals) if return_residuals else out

    return call
