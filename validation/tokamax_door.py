"""tokamax, whose kernels are called at blocks that its public functions do not take.

The only file of this folder that names what is private to it; seen in 0.0.12. Its kernels for GPUs
ask the device of this machine for its SMs; there is none, so a stand-in answers.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any

# (operator, route) → the module of the op, that of its Config where it is another, and the op.
_OPS = {
    ("attention", "tpu"): ("pallas_mosaic_tpu", "", "PallasMosaicTpuFlashAttention"),
    ("attention", "pallas_triton"): ("pallas_triton", "", "PallasTritonFlashAttention"),
    ("attention", "pallas_mosaic_gpu"): (
        *("pallas_mosaic_gpu", "pallas_mosaic_gpu_kernel_sm90", "PallasMosaicGpuFlashAttention"),
    ),
    ("attention", "xla"): ("base", "", "DotProductAttention"),
    ("attention", "xla_chunked"): ("xla_chunked", "", "XlaChunkedDotProductAttention"),
    ("attention backward", "pallas_triton"): (
        *("pallas_triton_vjp", "", "PallasTritonFlashAttentionVjp"),
    ),
    ("attention backward", "pallas_mosaic_gpu"): (
        *("pallas_mosaic_gpu_vjp", "pallas_mosaic_gpu_vjp_kernel_sm90"),
        "PallasMosaicGpuFlashAttentionVjp",
    ),
    ("attention backward", "xla"): ("base", "", "DotProductAttentionVjp"),
    ("attention backward", "tpu"): (
        *("pallas_mosaic_tpu_vjp", "", "PallasMosaicTpuFlashAttentionVjp"),
    ),
    ("ragged_dot", "tpu"): ("pallas_mosaic_tpu", "", "PallasMosaicTpuRaggedDot"),
    ("linear_softmax_cross_entropy_loss", "tpu"): (
        *("pallas_mosaic_tpu", "", "PallasMosaicTpuLinearSoftmaxCrossEntropyLoss"),
    ),
    ("linear_softmax_cross_entropy_loss backward", "tpu"): (
        *("pallas_mosaic_tpu", "", "PallasMosaicTpuLinearSoftmaxCrossEntropyLossVjp"),
    ),
    ("gated_linear_unit", "pallas_triton"): ("pallas_triton", "", "PallasTritonGatedLinearUnit"),
    ("gated_linear_unit", "xla"): ("base", "", "GatedLinearUnit"),
    ("normalization", "pallas_triton"): (
        *("pallas_triton", "pallas_triton_config", "PallasTritonNormalization"),
    ),
    ("normalization", "xla"): ("base", "", "Normalization"),
    ("normalization backward", "xla"): ("base", "", "NormalizationVjp"),
}


def _module(name: str) -> Any:
    return importlib.import_module(f"tokamax._src.ops.{name}")


def op(operator: str, route: str, config: Mapping[str, Any] | None = None) -> Any:
    """An op, with its kernel's configuration.

    Args:
        operator: "attention", "ragged_dot", "gated_linear_unit", "normalization" or
            "linear_softmax_cross_entropy_loss"; " backward" follows where its gradients are meant.
        route: "tpu", "pallas_triton", "pallas_mosaic_gpu", or "xla" and "xla_chunked" for plain
            JAX.
        config: the fields of its Config, as its autotuning cache has them; None for none.
    """
    module, configs, name = _OPS[operator, route]
    folder = operator.removesuffix(" backward")
    kind = getattr(_module(f"{folder}.{module}"), name)
    if config is None or route.startswith("xla"):
        return kind()
    known = dict(config)
    if (operator, route) == ("attention", "tpu"):  # a layout is kept as its number
        layout = _module("experimental.tpu.splash_attention.splash_attention_kernel").QKVLayout
        known |= {n: layout(v) for n, v in config.items() if n.endswith("layout")}
    config_class = _module(f"{folder}.{configs or module}").Config
    # The cache's rows leave out what is None.
    empty = {field.name: None for field in fields(config_class) if field.default is MISSING}
    return kind(config=config_class(**empty | known))


def function(op: Any) -> Callable[..., Any]:
    """An op as a function that does not ask which device this is: it is compiled for another."""

    def run(*arrays: Any, return_residuals: bool = False, **more: Any) -> Any:
        bound = op.bind(*arrays, return_residuals=return_residuals, **more)
        config = op.config_cls() if op.config is None else op.config
        out, residuals = op._fwd(*bound.args, config=config, **bound.kwargs)
        return (out, residuals) if return_residuals else out

    return run


def call(op: Any, *arrays: Any, **more: Any) -> Any:
    """Call an op that is compiled for another device."""
    return function(op)(*arrays, **more)


def tunings(op: Any, *arrays: Any, **more: Any) -> list[dict[str, Any]]:
    """The configs that its search on the hardware tries, as fields and plain values.

    Args:
        op: without a configuration.
        arrays, more: as the op takes them; shapes will do.
    """
    plain = lambda value: getattr(value, "value", value)  # a layout is a number
    return [
        {field.name: plain(getattr(config, field.name)) for field in fields(config)}
        for config in op._get_autotuning_configs(op.bind(*arrays, **more))
    ]


def call_as_if(device: Mapping[str, Any], op: Any, *arrays: Any, **more: Any) -> Any:
    """Call an op as if on a GPU.

    Args:
        device: device_kind, core_count and compute_capability, as JAX's devices say them.
        op: with its configuration.
        arrays, more: what the op takes.
    """
    with _as_if(SimpleNamespace(platform="gpu", **device)):
        return call(op, *arrays, **more)


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


def mask(array: Any, causal: bool) -> Any:
    """What attention takes for a mask.

    Args:
        array: bool; None for none.
        causal: whether a query sees no later key.
    """
    return _module("attention.base").Mask(array, is_causal=causal)
