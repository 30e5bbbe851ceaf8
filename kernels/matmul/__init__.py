"""Matrix multiplication: of dense, of quantised and of block-sparse matrices."""

from kernels.machines.lazy import lazy
from kernels.machines.tpu.plan import sublanes
from kernels.matmul.blocks import TUNED, BlockSizes
from kernels.matmul.operator import block_sparse_matmul, matmul, quantized_matmul
from kernels.matmul.quantized import quantize, quantize_weights

__all__ = [
    "TUNED",
    "BlockSizes",
    "BlockSparse",
    "block_sparse_matmul",
    "levels",
    "matmul",
    "nki",
    "pallas",
    "quantize",
    "quantize_weights",
    "quantized_matmul",
    "reference",
    "sublanes",
]

# A JAX pytree: importing this package does not import JAX.
__getattr__ = lazy(__name__, {"BlockSparse": "kernels.matmul.block_sparse"})
