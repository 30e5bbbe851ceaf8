"""Softmax along the last axis."""

from kernels.softmax.operator import softmax

__all__ = ["nki", "softmax"]
