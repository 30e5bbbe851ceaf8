"""Operators over several chips, inside jax.shard_map: rings by remote DMA."""

from kernels.collectives.operator import (
    all_gather,
    all_gather_matmul,
    all_to_all,
    matmul_reduce_scatter,
    reduce_scatter,
)
from kernels.collectives.sequence import ring_attention, zigzag

__all__ = [
    "all_gather",
    "all_gather_matmul",
    "all_to_all",
    "matmul_reduce_scatter",
    "reduce_scatter",
    "ring_attention",
    "zigzag",
]
