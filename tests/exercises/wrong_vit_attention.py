"""Wrong answers to the exercises of this chapter, and what is said of each."""


def vit_traffic(pictures, tokens, heads):
    return 2 * pictures * tokens * 4 * heads * 64


def every_head_padded(pictures, tokens, heads):
    return 2 * vit_traffic(pictures, tokens, heads)


def vit_halves(qkv, heads, kinds=("torch", "pallas")):
    import torch

    from kernels.attention.torch import vit_attention

    parts = zip(qkv.chunk(2), kinds, strict=True)
    return torch.cat([vit_attention(part, heads, implementation=kind) for part, kind in parts])


def all_natively(qkv, heads):
    return vit_halves(qkv, heads, kinds=("torch", "torch"))


def nothing(qkv, heads):
    return 0 * vit_halves(qkv, heads)


WRONG = (
    ("vit_traffic", every_head_padded, "interpret", "integers are exact"),
    ("vit_traffic", lambda *sizes: 0, "interpret", "every element is zero"),
    ("vit_ridge", lambda flops, rate: flops / rate, "interpret", "the result is 240"),
    (
        "vit_halves",
        all_natively,
        "interpret",
        "had none",
    ),
    ("vit_halves", nothing, "interpret", "every element is zero"),
    ("vit_halves", lambda qkv, heads: qkv, "interpret", "and not the second half"),
)
