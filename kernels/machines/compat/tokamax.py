"""tokamax, whose kernels are called at blocks that its public functions do not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from kernels.machines import optional


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


def splash_attention(
    n: int, m: int, *, causal: bool, interpret: bool, **blocks: Any
) -> Callable[..., Any]:
    """Its splash attention by itself, with a gradient; seen in 0.0.12.

    Args:
        n, m: queries and keys, multiples of 128.
        causal: query i sees the keys 0 to i.
        interpret: by Pallas's plain interpreter.
        blocks: fields of its SplashConfig; a layout is "HEAD_DIM_MINOR" or "SEQ_MINOR".

    Returns:
        A function of q [H, N, D], k and v [H, M, D], which scales nothing.

    Raises:
        MissingPackage: where tokamax is not installed.
    """
    optional.require("tokamax", "tokamax's attention")
    from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel as kernel
    from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_mask as masks

    fields = {
        name: kernel.QKVLayout[value] if name.endswith("layout") else value
        for name, value in blocks.items()
    }
    mask = (masks.CausalMask if causal else masks.FullMask)((n, m))
    config = kernel.SplashConfig(**fields, interpret=interpret)
    return kernel.make_splash_mha_single_device(mask, config=config)


def ragged_dot(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Its ragged product for a TPU; seen in 0.0.12.

    Args:
        config: the fields of its Config, as its autotuning cache has them.

    Returns:
        A function of the left and the right operand, with group_sizes=.
    """
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as kernel

    return _called(kernel.PallasMosaicTpuRaggedDot(config=kernel.Config(**config)))


def flash_attention_tunings(q: Any, k: Any, v: Any) -> list[dict[str, Any]]:
    """The configs that its search on the hardware tries for an attention; seen in 0.0.12.

    Args:
        q, k, v: shapes, [batch, tokens, heads, features].
    """
    from tokamax._src.ops.attention import pallas_mosaic_tpu as kernel

    return _tunings(kernel.PallasMosaicTpuFlashAttention(), q, k, v)


def ragged_dot_tunings(left: Any, right: Any, **more: Any) -> list[dict[str, Any]]:
    """The configs that its search on the hardware tries for a ragged product; seen in 0.0.12.

    Args:
        left, right: shapes of the operands.
        more: as its kernel takes them, group_sizes= among them.
    """
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as kernel

    return _tunings(kernel.PallasMosaicTpuRaggedDot(), left, right, **more)


def _tunings(op: Any, *arrays: Any, **more: Any) -> list[dict[str, Any]]:
    """The configs of an op's search, as fields and plain values."""
    plain = lambda value: getattr(value, "value", value)  # a layout is a number
    return [
        {field.name: plain(getattr(config, field.name)) for field in fields(config)}
        for config in op._get_autotuning_configs(op.bind(*arrays, **more))
    ]


def _called(op: Any) -> Callable[..., Any]:
    """An op as a function that does not ask which device this is: it is compiled for another."""

    def call(*arrays: Any, return_residuals: bool = False, **more: Any) -> Any:
        bound = op.bind(*arrays, return_residuals=return_residuals, **more)
        out, residuals = op._fwd(*bound.args, config=op.config, **bound.kwargs)
        return (out, residuals) if return_residuals else out

    return call
