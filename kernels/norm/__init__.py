"""Norms along the last axis: RMS norm and layer norm."""

from kernels.norm.operator import layer_norm, rms_norm

__all__ = ["layer_norm", "rms_norm"]
