"""Matrix multiplication: of dense, of quantised and of block-sparse matrices."""

from typing import Any

from kernels.matmul.blocks import BlockSizes
from kernels.matmul.operator import block_sparse_matmul, matmul, quantized_matmul
from kernels.matmul.quantized import quantize

__all__ = [
    "BlockSizes",
    "BlockSparse",
    "block_sparse_matmul",
    "matmul",
    "quantize",
    "quantized_matmul",
]


def __getattr__(name: str) -> Any:
    if name == "BlockSparse":  # a JAX pytree: importing this package does not import JAX
        from kernels.matmul.block_sparse import BlockSparse

        return BlockSparse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
