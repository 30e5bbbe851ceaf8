"""tokamax, whose kernels are called at blocks that its public functions do not take.

The only file of this folder that names what is private to it; seen in 0.0.12. Its kernels for GPUs
ask the device of this machine for its SMs; there is none, so a stand-in answers.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any


def _module(name: str) -> Any:
    return importlib.import_module(f"tokamax._src.ops.{name}")


# --- for TPUs -------------------------------------------------------------------------------------


def flash_attention(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Its flash attention for a TPU.

    Args:
        config: the fields of its Config, as its autotuning cache has them.

    Returns:
        A function of q, k and v, [batch, tokens, heads, features].
    """
    kernel = _module("attention.pallas_mosaic_tpu")
    layout = _module("experimental.tpu.splash_attention.splash_attention_kernel").QKVLayout
    known = {n: layout(v) if n.endswith("layout") else v for n, v in config.items()}
    return _called(kernel.PallasMosaicTpuFlashAttention(config=kernel.Config(**known)))


def ragged_dot(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Its ragged product for a TPU.

    Args:
        config: the fields of its Config, as its autotuning cache has them.

    Returns:
        A function of the left and the right operand, with group_sizes=.
    """
    kernel = _module("ragged_dot.pallas_mosaic_tpu")
    return _called(kernel.PallasMosaicTpuRaggedDot(config=kernel.Config(**config)))


def flash_attention_tunings(q: Any, k: Any, v: Any) -> list[dict[str, Any]]:
    """The configs that its search on the hardware tries for an attention.

    Args:
        q, k, v: shapes, [batch, tokens, heads, features].
    """
    op = _module("attention.pallas_mosaic_tpu").PallasMosaicTpuFlashAttention()
    return _tunings(op, q, k, v)


def ragged_dot_tunings(left: Any, right: Any, **more: Any) -> list[dict[str, Any]]:
    """The configs that its search on the hardware tries for a ragged product.

    Args:
        left, right: shapes of the operands.
        more: as its kernel takes them, group_sizes= among them.
    """
    op = _module("ragged_dot.pallas_mosaic_tpu").PallasMosaicTpuRaggedDot()
    return _tunings(op, left, right, **more)


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


# --- for GPUs -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _as_if(device: Any) -> Iterator[None]:
    """Within it, tokamax takes `device` for the machine's."""
    import jax
    from jax.extend import backend

    kept = backend.get_default_device, jax.devices
    backend.get_default_device = lambda: device  # type: ignore[assignment]
    jax.devices = lambda *_: [device]  # type: ignore[assignment]
    try:
        yield
    finally:
        backend.get_default_device, jax.devices = kept


def call_as_if(device: Mapping[str, Any], op: Any, *arrays: Any, **more: Any) -> Any:
    """Call an op at its configuration, as if on a GPU.

    Args:
        device: device_kind, core_count and compute_capability, as JAX's devices say them.
        op: of `gpu_op`.
        arrays, more: what the op takes.
    """
    with _as_if(SimpleNamespace(platform="gpu", **device)):
        return _called(op)(*arrays, **more)


# (operator, route) → the module of the op, that of its Config, and the op; else plain JAX.
_ROUTES = {
    ("attention", "pallas_triton"): (
        "attention.pallas_triton",
        "attention.pallas_triton",
        "PallasTritonFlashAttention",
    ),
    ("attention", "pallas_mosaic_gpu"): (
        "attention.pallas_mosaic_gpu",
        "attention.pallas_mosaic_gpu_kernel_sm90",
        "PallasMosaicGpuFlashAttention",
    ),
    ("gated_linear_unit", "pallas_triton"): (
        "gated_linear_unit.pallas_triton",
        "gated_linear_unit.pallas_triton",
        "PallasTritonGatedLinearUnit",
    ),
    ("normalization", "pallas_triton"): (
        "normalization.pallas_triton",
        "normalization.pallas_triton_config",
        "PallasTritonNormalization",
    ),
}
_PLAIN = {
    "attention": "DotProductAttention",
    "gated_linear_unit": "GatedLinearUnit",
    "normalization": "Normalization",
}


def gpu_op(operator: str, route: str, config: Mapping[str, Any]) -> Any:
    """An op for a GPU.

    Args:
        operator: "attention", "gated_linear_unit" or "normalization".
        route: "pallas_triton", for attention also "pallas_mosaic_gpu", or "xla" for plain JAX.
        config: the fields of its Config; none for "xla".
    """
    if (operator, route) not in _ROUTES:
        return getattr(_module(f"{operator}.base"), _PLAIN[operator])()
    module, configs, op = _ROUTES[operator, route]
    return getattr(_module(module), op)(config=_module(configs).Config(**config))


def mask(array: Any, causal: bool) -> Any:
    """What attention takes for a mask.

    Args:
        array: bool; None for none.
        causal: whether a query sees no later key.
    """
    return _module("attention.base").Mask(array, is_causal=causal)
