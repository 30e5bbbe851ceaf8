"""A vision transformer from timm, with one of our attentions in every block."""

from collections.abc import Callable
from typing import Any

from kernels.attention.torch import VIT_ATTENTION, vit_attention
from kernels.machines import checks
from kernels.machines.compat.torch import import_torchvision
from kernels.machines.optional import require

import_torchvision()  # which timm imports
require("timm", "a vision transformer")
from timm.layers import Attention  # noqa: E402
from timm.models.vision_transformer import VisionTransformer  # noqa: E402

__all__ = ["vision_transformer"]
IMAGE, PATCH = 256, 16  # pixels: 256 tokens, whole blocks of every kernel

# qkv [B, N, 3·H·D] and the number of heads → [B, N, H·D]
Attend = Callable[[Any, int], Any]


def vision_transformer(attention: str | Attend, **options: Any) -> Any:
    """A timm VisionTransformer for images of 256 pixels, whose blocks attend with `attention`.

    Args:
        attention: an implementation of vit_attention, such as "pallas"; or a function of qkv
            [B, N, 3·H·D] and the number of heads that returns [B, N, H·D].
        options: as VisionTransformer takes them; without any it is ViT-B/16 without a class token
            and with average pooling, so that images [B, 3, 256, 256] become 256 tokens and [B,
            1000] logits.

    Returns:
        The VisionTransformer.

    Raises:
        ValueError: for an unknown name.
        MissingPackage: without timm.
    """
    if isinstance(attention, str):
        checks.one_of("attention", attention, VIT_ATTENTION)
    elif not callable(attention):
        names = ", ".join(VIT_ATTENTION)
        checks.fail("attention", repr(attention), f"{names}, or a function")

    class Layer(Attention):
        """timm's attention layer between its qkv and its proj Linear."""

        def forward(self, x: Any, attn_mask: Any = None, is_causal: bool = False) -> Any:
            if attn_mask is not None or is_causal:
                checks.fail("attn_mask or is_causal", "set", "neither")
            qkv = self.qkv(x)
            if callable(attention):
                o = attention(qkv, self.num_heads)
            else:
                o = vit_attention(qkv, self.num_heads, implementation=attention)
            return self.proj(o)

    fixed = dict(img_size=IMAGE, patch_size=PATCH, class_token=False, global_pool="avg")
    return VisionTransformer(**{**fixed, **options, "attn_layer": Layer})
