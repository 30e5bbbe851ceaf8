"""Norms along the last axis: RMS norm and layer norm."""

from kernels.machines.tpu.rows import RowBlocks
from kernels.norm.operator import layer_norm, rms_norm

__all__ = ["RowBlocks", "layer_norm", "rms_norm"]
