"""Greedy non-maximum suppression: of boxes that overlap, the one with the best score stays."""

from kernels.nms.operator import nms

__all__ = ["nms", "xla"]
