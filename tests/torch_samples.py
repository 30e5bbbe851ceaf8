"""Operands of attention as PyTorch has them, and its tensors as NumPy's arrays."""

import ml_dtypes
import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def draw(shape, dtype="float32", seed=0):
    b, h, n, m, d = shape
    generator = torch.Generator().manual_seed(seed)
    sizes = [(b, h, n, d), (b, h, m, d), (b, h, m, d), (b, h, n, d)]
    return [torch.randn(s, generator=generator).to(DTYPES[dtype]) for s in sizes]  # q, k, v, do


def numpy(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:  # which NumPy itself does not have
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
