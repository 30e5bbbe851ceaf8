"""Cross-entropy of a linear layer: −log softmax(x w)[label], without the logits in memory."""

from kernels.cross_entropy.blocks import CrossEntropyBlocks
from kernels.cross_entropy.operator import linear_cross_entropy

__all__ = ["CrossEntropyBlocks", "linear_cross_entropy"]
