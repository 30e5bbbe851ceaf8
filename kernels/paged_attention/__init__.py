"""Attention of new tokens, one or many of each sequence, over a cache that is kept in pages."""

from kernels.paged_attention.operator import paged_attention, ragged_paged_attention, update_pages

__all__ = ["paged_attention", "ragged_paged_attention", "update_pages"]
