"""Attention of one new token per sequence over a cache that is kept in pages."""

from kernels.paged_attention.operator import paged_attention, update_pages

__all__ = ["paged_attention", "update_pages"]
