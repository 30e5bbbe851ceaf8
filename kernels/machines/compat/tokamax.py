"""tokamax, whose splash attention is called at blocks that its public functions do not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.machines import optional


def splash_attention(
    n: int, m: int, *, reach: tuple[int | None, int | None], interpret: bool, **blocks: Any
) -> Callable[..., Any]:
    """Its splash attention by itself, with a gradient; seen in 0.0.12.

    Args:
        n, m: queries and keys, multiples of 128.
        reach: how many keys before and after its own place a query sees; None for all.
        interpret: by Pallas's plain interpreter.
        blocks: fields of its SplashConfig; a layout is "HEAD_DIM_MINOR" or "SEQ_MINOR".

    Returns:
        A function of q [H, N, D], k and v [Hkv, M, D], which scales nothing.

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
    mask = masks.LocalMask((n, m), reach, 0)
    if reach[0] is None:
        mask = (masks.FullMask if reach[1] is None else masks.CausalMask)((n, m))
    config = kernel.SplashConfig(**fields, interpret=interpret)
    return kernel.make_splash_mha_single_device(mask, config=config)
