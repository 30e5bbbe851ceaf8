"""Gradients of the convolution, which child processes import from this file; and their judge."""

import numpy as np
import torch
from close import assert_close

from kernels.depthwise_conv import depthwise_conv


def draw(b, c, t, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((c, t)).astype(dtype), rng.standard_normal((b, c, t)).astype(dtype)


def gradients(w, k, cotangent, implementation="taichi"):
    """The gradients of w and k, one after the other, in one flat array; of arrays
    or tensors."""
    w, k, cotangent = (torch.as_tensor(a) for a in (w, k, cotangent))
    w, k = w.requires_grad_(), k.requires_grad_()
    result = depthwise_conv(w, k, 0.5, implementation=implementation)
    found = torch.autograd.grad(result, [w, k], cotangent)
    return torch.cat([g.reshape(-1) for g in found]).cpu().numpy()


def judge_gradients(flat, *given):
    """Of w, k and a cotangent, in one flat array; or those of w alone."""
    wide = [a.astype(np.float64) for a in given]
    arrays = wide, given, map(abs, wide)
    assert_close(flat, *(gradients(*each, "torch")[: len(flat)] for each in arrays))
