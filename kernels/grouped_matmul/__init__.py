"""Grouped matrix multiplication: each group of rows by a matrix of its own."""

from kernels.grouped_matmul.blocks import GroupedBlocks
from kernels.grouped_matmul.operator import grouped_matmul

__all__ = ["GroupedBlocks", "grouped_matmul"]
