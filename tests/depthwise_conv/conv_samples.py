"""Functions that the tests run in child processes, which import them from this file."""

import torch

from kernels.depthwise_conv import depthwise_conv


def gradients(w, k, cotangent):
    """The gradients of w and k, one after the other, in one flat array; of arrays
    or tensors."""
    w, k, cotangent = (torch.as_tensor(a) for a in (w, k, cotangent))
    w, k = w.requires_grad_(), k.requires_grad_()
    found = torch.autograd.grad(depthwise_conv(w, k, 0.5), [w, k], cotangent)
    return torch.cat([g.reshape(-1) for g in found]).cpu().numpy()
