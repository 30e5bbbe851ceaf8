"""tokamax's kernels for GPUs, at the configurations of its autotuning cache; seen in 0.0.12.

They ask the device of this machine for its SMs; there is none, so a stand-in answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any


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


def call(op: Any, device: Mapping[str, Any], *arrays: Any, **more: Any) -> Any:
    """Call an op at its configuration, as if on a device.

    Args:
        op: as the functions below make it.
        device: platform, device_kind, core_count and compute_capability, as JAX's devices say them.
        arrays, more: what the op takes.
    """
    with _as_if(SimpleNamespace(platform="gpu", **device)):
        bound = op.bind(*arrays, **more)
        out, residuals = op._fwd(*bound.args, config=op.config, **bound.kwargs)
    return (out, residuals) if more.get("return_residuals") else out


def attention(route: str, config: Mapping[str, Any]) -> Any:
    """Its attention.

    Args:
        route: "pallas_triton", "pallas_mosaic_gpu", or "xla" for plain JAX.
        config: the fields of its Config; none for "xla".
    """
    if route == "pallas_triton":
        from tokamax._src.ops.attention import pallas_triton as triton

        return triton.PallasTritonFlashAttention(config=triton.Config(**config))
    if route == "pallas_mosaic_gpu":
        from tokamax._src.ops.attention import pallas_mosaic_gpu as mosaic
        from tokamax._src.ops.attention import pallas_mosaic_gpu_kernel_sm90 as sm90

        return mosaic.PallasMosaicGpuFlashAttention(config=sm90.Config(**config))
    from tokamax._src.ops.attention import base

    return base.DotProductAttention()


def mask(array: Any, causal: bool) -> Any:
    """What attention takes for a mask.

    Args:
        array: bool; None for none.
        causal: whether a query sees no later key.
    """
    from tokamax._src.ops.attention import base

    return base.Mask(array, is_causal=causal)


def gated_linear_unit(route: str, config: Mapping[str, Any]) -> Any:
    """Its gated linear unit.

    Args:
        route: "pallas_triton", or "xla" for plain JAX.
        config: the fields of its Config; none for "xla".
    """
    if route == "pallas_triton":
        from tokamax._src.ops.gated_linear_unit import pallas_triton as triton

        return triton.PallasTritonGatedLinearUnit(config=triton.Config(**config))
    from tokamax._src.ops.gated_linear_unit import base

    return base.GatedLinearUnit()


def normalization(route: str, config: Mapping[str, Any]) -> Any:
    """Its normalisation.

    Args:
        route: "pallas_triton", or "xla" for plain JAX.
        config: the fields of its Config; none for "xla".
    """
    if route == "pallas_triton":
        from tokamax._src.ops.normalization import pallas_triton as triton
        from tokamax._src.ops.normalization import pallas_triton_config as configs

        return triton.PallasTritonNormalization(config=configs.Config(**config))
    from tokamax._src.ops.normalization import base

    return base.Normalization()
