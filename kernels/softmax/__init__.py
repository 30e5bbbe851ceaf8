"""Softmax along the last axis."""

from kernels.machines.tpu.rows import RowBlocks
from kernels.softmax.operator import softmax

__all__ = ["RowBlocks", "nki", "softmax"]
