"""Attention: softmax(scale q kᵀ) v, forward and backward, without the probabilities in HBM.

attention(q, k, v): [B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D]
vit_attention(qkv, num_heads): [B, N, 3·H·D] → [B, N, H·D]
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.attention.arguments import (
    check_heads,
    check_packed,
    check_segments,
    check_soft_cap,
    check_window,
)
from kernels.attention.blocks import AttentionBlocks
from kernels.attention.blocks import plan as plan_blocks
from kernels.machines import checks
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.backends.pallas_tpu import PALLAS_TPU
from kernels.proof.backends.torch import TORCH
from kernels.proof.backends.xla import XLA
from kernels.proof.contract import OWN_BLOCKS, Implementation, Operator
from kernels.proof.workload import Workload


def attention(
    q: Any,
    k: Any,
    v: Any,
    segment_ids: Any = None,
    *,
    implementation: str = "pallas",
    causal: bool = False,
    scale: float | None = None,
    window: int | tuple[int, int] | None = None,
    soft_cap: float | None = None,
    block: AttentionBlocks | None = None,
    interpret: Any = None,
) -> Any:
    """Scaled dot-product attention: softmax(scale q kᵀ) v for each head.

    Args:
        q: [B, H, N, D], float32 or bfloat16, D at most 256. No dimension may be zero.
        k, v: [B, Hkv, M, D] in q's dtype. Hkv divides H: head h of q reads head h // (H // Hkv).
        segment_ids: int32 [B, N], of sequences that are packed into one: query i sees only keys
            with its id; or a pair, [B, N] of the queries and [B, M] of the keys, as JAX's
            SegmentIds(q, kv). "pallas" neither fetches nor multiplies a block of keys whose ids all
            lie above or below those of its queries: most, where the ids come in order.
        implementation: "xla" (the formula), "xla_sliced" (some heads at a time, so that XLA keeps
            their scores in VMEM), "sdpa" (jax.nn.dot_product_attention), "pallas" (ours, for a
            TPU), "mosaic_gpu" (ours, for Hopper GPUs: bfloat16, D at most 128; its gradient
            is the formula's), "jax_flash" and "jax_splash" (the kernels that ship with JAX, for the
            lengths that they take), "tokamax" (its splash attention, for the same lengths), "torch"
            (the formula) or "torch_sdpa" (F.scaled_dot_product_attention), the last two on tensors;
            see kernels.attention.torch for our kernels on tensors.
        causal: query i sees the keys 0 to i.
        scale: of the products; None is D ** -0.5.
        window: (left, right): query i sees the keys i - left to i + right, as with JAX's
            local_window_size, and of these a causal one those up to i; one number stands for
            both. A window of the last W keys, its own among them, is (W - 1, 0). The result of a
            query that sees no key, of any reason, is zero.
        soft_cap: the scores s, scaled, become soft_cap · tanh(s / soft_cap).
        block: of "pallas"; None lets it choose.
        interpret: None interprets a kernel where there is no TPU.

    Returns:
        [B, H, N, D] in the arguments' dtype; sums are float32. Differentiable in q, k and v.

    Raises:
        ValueError: for another rank, dtype, size, scale, window, soft cap, block or implementation,
            and for what the chosen implementation does not take.

    Source:
        FlashAttention-2 (Dao, 2023), with the softmax along sublanes.
    """
    chosen = ATTENTION[implementation]
    scale = check_heads(q, k, v, scale, _dtypes(chosen), grouped=True)
    if k.shape[1] != q.shape[1] and implementation not in TAKEN_BY["hkv"]:
        checks.fail(
            "k.shape[1] (heads)",
            k.shape[1],
            f'{q.shape[1]}, as q has, for "{implementation}"; {_taken_by("hkv")} take fewer',
        )
    checks.one_of("causal", causal, (False, True))
    checks.instance("block", block, AttentionBlocks)
    options = {
        "causal": bool(causal),
        "scale": scale,
        "window": check_window(window),
        "soft_cap": check_soft_cap(soft_cap),
        "segment_ids": check_segments(segment_ids, q, k),
        "block": block,
    }
    return chosen(q, k, v, interpret=interpret, **options)


def _dtypes(chosen: Implementation) -> tuple[str, ...]:
    return (*checks.FLOATS, *checks.TENSORS) if chosen.backend is TORCH else checks.FLOATS


def block_sparse_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    *,
    implementation: str = "pallas",
    scale: float | None = None,
    block: AttentionBlocks | None = None,
    interpret: Any = None,
) -> Any:
    """Attention in which a block of queries sees only the blocks of keys that `mask` keeps.

    Args:
        q, k, v, scale, interpret: as for attention.
        mask: a NumPy bool array [ceil(N / tokens), ceil(M / tokens)] with at least one True in each
            row; tokens is that of block, 1024 by default.
        implementation: "xla" (hides the scores of other blocks) or "pallas" (TPU), whose time and
            traffic grow with the number of blocks that are kept.
        block: the mask's tokens, and the tiles of "pallas".

    Returns:
        [B, H, N, D], as attention does, and differentiable as it is.

    Raises:
        ValueError: as attention does, and for another mask.
    """
    chosen = BLOCK_SPARSE_ATTENTION[implementation]
    scale = check_heads(q, k, v, scale, checks.FLOATS, grouped=True)
    checks.instance("block", block, AttentionBlocks)
    (b, h, n, d), (_, shared, m, _) = q.shape, k.shape
    plan = plan_blocks(n, m, b * h, d, q.dtype, block=block, group=h // shared)
    wanted = tuple(-(-size // min(plan.block.tokens, size)) for size in (n, m))
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != wanted:
        checks.fail("mask", f"{mask.dtype} {mask.shape}", f"bool {wanted}, a block an element")
    if not mask.any(axis=1).all():
        row = int(np.argmin(mask.any(axis=1)))
        checks.fail(f"mask[{row}]", "empty", "at least one block of keys for these queries")
    return chosen(q, k, v, mask, scale=scale, plan=plan, interpret=interpret)


def vit_attention(
    qkv: Any,
    num_heads: int,
    *,
    implementation: str = "pallas",
    scale: float | None = None,
    interpret: Any = None,
) -> Any:
    """Self-attention between the two Linears of a vision transformer's block, with no relayout.

    Args:
        qkv: [B, N, 3·H·D], float32 or bfloat16: q, k and v of each token, each H heads × D, as
            timm's qkv Linear gives them. D is at most 256. No dimension may be zero.
        num_heads: H.
        implementation: "pallas" (ours, for a TPU) reads qkv as it is, with whole sequences in VMEM:
            on a v5e some 2,000 tokens of 768 features; a longer one is unpacked. The others unpack
            the heads first and call attention: "unpacked" (by our "pallas"), "xla", "xla_sliced"
            (some images at a time), "sdpa", "jax_flash" and "jax_splash" (for N that 128 divides),
            "torch" and "torch_sdpa".
        scale: of the products; None is D ** -0.5.
        interpret: None interprets a kernel where there is no TPU.

    Returns:
        [B, N, H·D] in the same dtype; sums are float32. Differentiable in qkv.

    Raises:
        ValueError: for another rank, dtype, size, number of heads, scale or implementation.
    """
    chosen = VIT_ATTENTION[implementation]
    scale = check_packed(qkv, num_heads, scale, _dtypes(chosen))
    return chosen(qkv, num_heads, scale=scale, interpret=interpret)


def _whole_lanes(workload: Workload) -> bool:
    sizes = workload.sizes
    n, m, d = sizes["n"], sizes.get("m", sizes["n"]), sizes["d"]
    return n % 128 == m % 128 == 0 and (d <= 128 or d % 128 == 0)


def _float32(workload: Workload) -> bool:
    return workload.dtype == "float32"  # NumPy's bfloat16 is none that PyTorch knows


# What not every implementation takes: options, and fewer heads of keys than of queries.
TAKEN_BY = {
    "window": ("xla", "xla_sliced", "sdpa", "pallas", "jax_splash", "tokamax"),
    "soft_cap": ("xla", "xla_sliced", "pallas", "jax_splash", "tokamax"),
    "segment_ids": ("xla", "xla_sliced", "pallas", "jax_flash", "jax_splash", "tokamax"),
    "hkv": ("xla", "xla_sliced", "sdpa", "pallas", "jax_splash", "tokamax"),
}


def _taken_by(what: str) -> str:
    return ", ".join(TAKEN_BY[what])


def _implementation(
    name: str,
    backend: Any,
    source: str,
    accepts: Callable[[Workload], bool] = lambda w: True,
    **more: Any,
) -> Implementation:
    """One of attention's, which neither is offered nor takes what TAKEN_BY keeps from it."""
    lacks = {} if name == "pallas" else OWN_BLOCKS
    refused = [what for what, names in TAKEN_BY.items() if name not in names]

    def takes(workload: Workload) -> bool:
        asked = {**workload.options, **workload.sizes}
        return accepts(workload) and not any(what in asked for what in refused)

    lacks = lacks | {what: f"takes none: {_taken_by(what)} do" for what in refused}
    return Implementation(name, backend, source, accepts=takes, lacks=lacks, **more)


_DEVICES = ("cpu", "xla", "jax")  # of PyTorch's tensors that our kernels run on, with torch.py
# Splash attention's running maximum and sum are outputs, which two cores would write at once.
# Nobody reads them, so no result is wrong; but the simulator is right to call it a race.
_BUT_SIMULATE = ("interpret", "compile")


def _shipped(name: str, library: str, source: str = "shipped", **more: Any) -> Implementation:
    kind = _implementation if source == "shipped" else Implementation
    more |= {"accepts": _whole_lanes, "shipped_with": library}
    return kind(name, PALLAS_TPU, f"{source}:{name}", **more)


ATTENTION = Operator(
    attention,
    summary="softmax(scale q kᵀ) v, without the probabilities in memory",
    chapter="flash_attention",
    differentiable=("q", "k", "v"),
    implementations=(
        _implementation("xla", XLA, "xla:attention"),
        _implementation("xla_sliced", XLA, "xla:in_slices"),
        _implementation("sdpa", XLA, "xla:sdpa"),
        _implementation("pallas", PALLAS_TPU, "pallas:attention", devices=_DEVICES),
        _shipped("jax_flash", "JAX", devices=("xla", "jax")),
        _shipped("jax_splash", "JAX", rungs=_BUT_SIMULATE),
        _implementation(
            "mosaic_gpu",
            MOSAIC_GPU,
            "mosaic_gpu:attention",
            accepts=lambda w: w.dtype == "bfloat16" and w.sizes["d"] <= 128,
            chapter="matmul_on_hopper",
        ),
        _shipped("tokamax", "tokamax", rungs=_BUT_SIMULATE, needs="tokamax"),
        _implementation("torch", TORCH, "tensors:formula", accepts=_float32),
        _implementation("torch_sdpa", TORCH, "tensors:sdpa", accepts=_float32),
    ),
)

VIT_ATTENTION = Operator(
    vit_attention,
    summary="attention from a packed qkv to the projection's input",
    chapter="vit_attention",
    differentiable=("qkv",),
    implementations=(
        Implementation("xla", XLA, "rows:xla"),
        Implementation("xla_sliced", XLA, "rows:xla_sliced"),
        Implementation("sdpa", XLA, "rows:sdpa"),
        Implementation("pallas", PALLAS_TPU, "packed:vit_attention", devices=_DEVICES),
        Implementation("unpacked", PALLAS_TPU, "rows:unpacked", devices=_DEVICES),
        _shipped("jax_flash", "JAX", "rows", devices=("xla", "jax")),
        _shipped("jax_splash", "JAX", "rows", rungs=_BUT_SIMULATE),
        Implementation("torch", TORCH, "tensors:unpacked_formula", accepts=_float32),
        Implementation("torch_sdpa", TORCH, "tensors:unpacked_sdpa", accepts=_float32),
    ),
)

BLOCK_SPARSE_ATTENTION = Operator(
    block_sparse_attention,
    summary="attention to those blocks of keys that a mask keeps",
    chapter="flash_attention",
    differentiable=("q", "k", "v"),
    static=("mask",),
    implementations=(
        Implementation("xla", XLA, "xla:block_sparse_attention"),
        Implementation("pallas", PALLAS_TPU, "pallas:block_sparse_attention"),
    ),
)
