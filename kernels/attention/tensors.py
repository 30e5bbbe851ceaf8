"""Attention in PyTorch, without our kernels: the formula, and what PyTorch ships.

Tensors in, tensors out; NumPy's and JAX's arrays become tensors.
"""

import math

import numpy as np

from kernels.attention.layout import tensor_heads, tensor_rows
from kernels.machines.optional import require

torch = require("torch", "attention on PyTorch tensors")


def _tensor(x):
    return x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))


def formula(q, k, v, *, causal, scale):
    """[B, H, N, D], [B, H, M, D], [B, H, M, D] → [B, H, N, D], the probabilities in memory."""
    q, k, v = map(_tensor, (q, k, v))
    scores = (q * scale) @ k.transpose(-2, -1)
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    return scores.softmax(-1) @ v


def sdpa(q, k, v, *, causal, scale):
    """The same by F.scaled_dot_product_attention; which kernel runs is PyTorch's choice."""
    q, k, v = map(_tensor, (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def _by(attention):
    def vit_attention(qkv, num_heads, *, scale):
        """[B, N, 3·H·D] → [B, N, H·D]."""
        heads = tensor_heads(_tensor(qkv), num_heads)
        return tensor_rows(attention(*heads, causal=False, scale=scale))

    return vit_attention


unpacked_formula = _by(formula)
unpacked_sdpa = _by(sdpa)
