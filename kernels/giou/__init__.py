"""Generalised intersection over union of boxes, written for every machine of the book."""

from kernels.giou.operator import giou

__all__ = ["formula", "giou", "gpsimd", "levels", "neuronxcc"]
__all__ += ["nki", "pallas", "reference", "torch", "xla"]
