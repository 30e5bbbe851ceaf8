"""Attention: softmax(scale q kᵀ) v, forward and backward, without the probabilities in HBM."""

from kernels.attention.blocks import AttentionBlocks
from kernels.attention.operator import attention, block_sparse_attention, vit_attention

__all__ = [
    "AttentionBlocks",
    "attention",
    "block_sparse_attention",
    "packed",
    "rows",
    "shipped",
    "torch",
    "vit",
    "vit_attention",
    "xla",
]
