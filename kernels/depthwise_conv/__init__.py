"""Causal depthwise convolution with a weight for every lag, as RWKV's first layers had it."""

from kernels.depthwise_conv.operator import depthwise_conv
from kernels.depthwise_conv.workloads import flops

__all__ = ["cuda", "depthwise_conv", "fft", "flops", "levels", "reference", "shared", "taichi"]
