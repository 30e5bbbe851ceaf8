"""Attention as PyTorch has it: operands of b, h, n, m, d, and what judges results and gradients."""

import functools

import ml_dtypes
import torch
from close import assert_same_formula

from kernels import budget
from kernels.attention import reference
from kernels.attention.tensors import formula
from kernels.attention.torch import attention, vit_attention

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SHAPES = [(1, 1, 1, 1, 1), (2, 3, 37, 37, 16), (1, 2, 128, 128, 64), (1, 2, 31, 131, 65)]


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


def pull(function, tensors, cotangent, device="cpu"):
    """The result and the gradients, as torch's autograd makes them on a device."""
    leaves = [t.detach().clone().to(device).requires_grad_() for t in tensors]
    out = function(*leaves)
    gradients = torch.autograd.grad(out, leaves, cotangent.to(device))
    return out.detach().cpu(), [g.cpu() for g in gradients]


def judge(function, shape, dtype, causal=False, device="cpu"):
    """Each result and gradient against float64, with torch's plain attention as the plain one."""
    *tensors, cotangent = draw(shape, dtype)
    options = {"causal": causal, "scale": shape[-1] ** -0.5}
    native = functools.partial(attention, implementation="torch", **options)
    got, plain = pull(function, tensors, cotangent, device), pull(native, tensors, cotangent)
    wide = [t.double() for t in (*tensors, cotangent)]
    out, gradients = pull(functools.partial(formula, **options), wide[:3], wide[3])
    wide = [numpy(t) for t in wide]
    size = reference.attention_magnitude(*wide[:3], **options)
    assert_same_formula(numpy(out), reference.attention(*wide[:3], **options), size)
    sizes = [size, *reference.attention_gradient_magnitude(*wide, **options)]
    # ds and p are rounded to the dtype before they are multiplied; on a device, the result too.
    roundings = [size / 4 for size in sizes]
    if device == "cpu":
        roundings[0] = reference.attention_rounding(*wide[:3], **options)
    flat = ([numpy(out), *map(numpy, more)] for out, more in (got, (out, gradients), plain))
    return [
        budget.compare(g, want, p, size, rounding=rounding)
        for g, want, p, size, rounding in zip(*flat, sizes, roundings, strict=True)
    ]


def assert_passes(*arguments, **options):
    """What `judge` says of the result and of each gradient."""
    verdicts = judge(*arguments, **options)
    for name, verdict in zip(["o", "dq", "dk", "dv"], verdicts, strict=True):
        assert verdict.passed, f"{name}: {verdict.message}"


def of_vit(heads, implementation):
    """vit_attention as a function of q, k and v."""

    def function(q, k, v):
        qkv = torch.stack([q, k, v], 2).permute(0, 3, 2, 1, 4).flatten(2).contiguous()
        o = vit_attention(qkv, heads, implementation=implementation)
        return o.unflatten(2, (heads, -1)).transpose(1, 2)

    return function
