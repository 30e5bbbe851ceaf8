"""Attention: softmax(scale q kᵀ) v, forward and backward, without the probabilities in HBM.

attention(q, k, v): [B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D]
vit_attention(qkv, num_heads): [B, N, 3·H·D] → [B, N, H·D]
"""

from typing import Any

import numpy as np

from kernels import checks
from kernels.attention.arguments import check_heads, check_packed
from kernels.attention.blocks import BlockSizes
from kernels.attention.blocks import plan as plan_blocks
from kernels.attention.layout import pack, unpack

DTYPES = ("float32", "bfloat16")
IMPLEMENTATIONS = ("xla", "sdpa", "pallas", "jax_flash")

__all__ = ["BlockSizes", "attention", "block_sparse_attention", "vit_attention"]


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    implementation: str = "pallas",
    causal: bool = False,
    scale: float | None = None,
    block: BlockSizes | None = None,
    interpret: Any = None,
) -> Any:
    """Scaled dot-product attention: softmax(scale q kᵀ) v for each head.

    q: [B, H, N, D]; k, v: [B, H, M, D] with D at most 256; all float32 or bfloat16. Returns
    [B, H, N, D] in their dtype; sums are float32. No dimension may be zero.
    implementation: "xla" (the formula), "sdpa" (jax.nn.dot_product_attention), "pallas" (ours, for
    a TPU) or "jax_flash" (the kernel that ships with JAX, for the lengths that it takes).
    causal: query i sees the keys 0 to i. scale: of the products; None is D ** -0.5.
    block: of "pallas"; None lets it choose. interpret: None interprets a kernel where there is no
    TPU. Differentiable in q, k and v.
    Raises ValueError for another rank, dtype, size, scale, block or implementation.

    The algorithm is that of FlashAttention-2 (Dao, 2023), with the softmax along sublanes.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    scale = check_heads(q, k, v, scale, DTYPES)
    checks.one_of("causal", causal, (False, True))
    options = {"causal": bool(causal), "scale": scale}
    if implementation != "pallas" and block is not None:
        checks.fail("block", block, f'None, since "{implementation}" chooses its own')
    if implementation in ("xla", "sdpa"):
        from kernels.attention import sdpa, xla

        return {"xla": xla, "sdpa": sdpa}[implementation].attention(q, k, v, **options)
    if implementation == "jax_flash":
        from kernels.attention import shipped

        return shipped.attention(q, k, v, interpret=interpret, **options)
    if block is not None and not isinstance(block, BlockSizes):
        checks.fail("block", repr(block), "None or BlockSizes(tokens, tq, tk, heads)")
    from kernels.attention import pallas

    return pallas.attention(q, k, v, block=block, interpret=interpret, **options)


def block_sparse_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    *,
    scale: float | None = None,
    block: BlockSizes | None = None,
    interpret: Any = None,
) -> Any:
    """Attention in which a block of queries sees only the blocks of keys that `mask` keeps.

    q, k, v, scale, interpret: as for attention, and so is the result. mask: a NumPy bool array
    [ceil(N / tokens), ceil(M / tokens)] with at least one True in each row; tokens is that of
    block, 1024 by default. Time and traffic grow with the number of blocks that are kept.
    Forward only: differentiating it raises NotImplementedError. Raises ValueError as attention
    does, and for another mask.
    """
    scale = check_heads(q, k, v, scale, DTYPES)
    if block is not None and not isinstance(block, BlockSizes):
        checks.fail("block", repr(block), "None or BlockSizes(tokens, tq, tk, heads)")
    (b, h, n, d), m = q.shape, k.shape[2]
    plan = plan_blocks(n, m, b * h, d, q.dtype, block=block)
    wanted = tuple(-(-size // min(plan.block.tokens, size)) for size in (n, m))
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != wanted:
        checks.fail("mask", f"{mask.dtype} {mask.shape}", f"bool {wanted}, a block an element")
    if not mask.any(axis=1).all():
        row = int(np.argmin(mask.any(axis=1)))
        checks.fail(f"mask[{row}]", "empty", "at least one block of keys for these queries")
    import jax.numpy as jnp

    from kernels.attention import sparse
    from kernels.pallas import interprets

    together = (jnp.asarray(x).reshape(b * h, x.shape[2], d) for x in (q, k, v))
    interpret = interprets(interpret, "tpu")
    o = sparse.attention(*together, mask, scale=scale, plan=plan, interpret=interpret)
    return o.reshape(b, h, n, d)


def vit_attention(
    qkv: Any,
    num_heads: int,
    *,
    implementation: str = "pallas",
    scale: float | None = None,
    interpret: Any = None,
) -> Any:
    """Self-attention between the two Linears of a vision transformer's block, with no relayout.

    qkv: [B, N, 3·H·D], float32 or bfloat16: q, k and v of each token, each H heads × D, as timm's
    qkv Linear gives them. num_heads: H. Returns [B, N, H·D] in the same dtype; sums are float32.
    D is at most 256. No dimension may be zero.
    implementation: "xla" (the formula), "sdpa" (jax.nn.dot_product_attention), "pallas" (ours, for
    a TPU) or "jax_flash" (the kernel that ships with JAX, for N that 128 divides); all but "pallas"
    unpack the heads first. "pallas" keeps whole sequences in VMEM: on a v5e some 2,000 tokens of
    768 features. A longer one is unpacked, and goes to attention. scale: of the products; None is
    D ** -0.5. interpret: None interprets a kernel where there is no TPU. Differentiable in qkv.
    Raises ValueError for another rank, dtype, size, number of heads, scale or implementation.
    """
    checks.implementation(implementation, IMPLEMENTATIONS)
    scale = check_packed(qkv, num_heads, scale, DTYPES)
    if implementation == "pallas":
        from kernels.attention import packed

        return packed.vit_attention(qkv, num_heads, scale=scale, interpret=interpret)
    heads = unpack(qkv, num_heads)
    return pack(attention(*heads, implementation=implementation, scale=scale, interpret=interpret))
