"""The GPU as far as a laptop reaches it: lower a kernel to Triton's intermediate form."""

from kernels.gpu.lowering import lower

__all__ = ["lower"]
