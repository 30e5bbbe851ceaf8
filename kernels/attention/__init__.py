"""Attention: softmax(scale q kᵀ) v, forward and backward, without the probabilities in HBM."""

from kernels.attention.blocks import BlockSizes
from kernels.attention.operator import attention, block_sparse_attention, vit_attention

__all__ = [
    "BlockSizes",
    "attention",
    "block_sparse_attention",
    "jax_splash",
    "packed",
    "rows",
    "torch",
    "vit",
    "vit_attention",
    "xla",
]
