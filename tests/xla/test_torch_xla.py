"""torch_xla on the XLA CPU device: the kernels interpreted, and in the graph as a TPU gets it.

Run by `make test-xla`, in an environment of its own.
"""

import functools
import inspect
import os

import pytest

pytest.importorskip(
    "torch_xla", reason="torch_xla lives in an environment of its own: make test-xla"
)
os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import torch
import torch_xla
from door import xla_hlo
from learning import assert_learns_the_same, formula, losses
from torch_samples import DTYPES, SHAPES, assert_passes, draw, judge, of_vit
from torch_xla.experimental import custom_kernel

from kernels.attention.torch import attention, vit_attention


@pytest.fixture(scope="module")
def device():
    return torch_xla.device()


@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(shape, dtype, causal, device):
    function = functools.partial(attention, causal=causal)
    assert_passes(function, shape, dtype, causal, device)


@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
@pytest.mark.parametrize("implementation", ["torch", "torch_sdpa"])
def test_attention_without_a_kernel(implementation, causal, device):
    """In float32: in bfloat16 XLA rounds elsewhere than the plain attention on the CPU does."""
    function = functools.partial(attention, implementation=implementation, causal=causal)
    assert_passes(function, SHAPES[1], "float32", causal, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("implementation", ["unpacked", "pallas"])
def test_vit_attention(implementation, dtype, device):
    assert_passes(of_vit(3, implementation), SHAPES[1], dtype, device=device)


def test_a_planted_fault_fails(device):
    def wrong(q, k, v):
        return attention(q, k, v, scale=0.26)

    assert not all(v.passed for v in judge(wrong, SHAPES[1], "float32", device=device))


@pytest.fixture(scope="module")
def expected(device):  # the device first: autograd learns of none later
    return losses(formula, 4, dtype=torch.float64), losses("torch", 4)


@pytest.mark.parametrize("name", ["torch", "torch_sdpa", "unpacked", "pallas"])
def test_a_vit_learns_the_same_with_every_attention(name, expected, device):
    found = losses(name, 4, device=device, sync=torch_xla.sync)
    assert_learns_the_same(found, *expected)


def kernels_in(*tensors):
    return xla_hlo(*tensors).count('custom_call_target="tpu_custom_call"')


def test_forward_and_backward_are_custom_calls_on_a_tpu(device):
    leaves = [t.to(device).requires_grad_() for t in draw((1, 2, 256, 256, 64), "bfloat16")[:3]]
    out = attention(*leaves, interpret=False)
    assert kernels_in(out) == 1
    assert kernels_in(*torch.autograd.grad(out.sum(), leaves)) == 2
    qkv = torch.randn(1, 256, 3 * 128).bfloat16().to(device).requires_grad_()
    out = vit_attention(qkv, 2, interpret=False)
    assert kernels_in(out) == 1 and kernels_in(*torch.autograd.grad(out.sum(), [qkv])) == 2


def test_an_interpreted_kernel_is_none(device):
    leaves = [t.to(device) for t in draw((1, 2, 128, 128, 64))[:3]]
    assert kernels_in(attention(*leaves)) == 0
    assert kernels_in(attention(*leaves, implementation="torch_sdpa")) == 0


@pytest.fixture
def for_a_tpu(monkeypatch):
    """torch_xla's own tracing lowers for JAX's device, which is a CPU here; make it a TPU."""
    source = inspect.getsource(custom_kernel.trace_pallas)
    here, there = (
        ".lower(*jax_args, **kwargs)",
        ".trace(*jax_args, **kwargs).lower(lowering_platforms=('tpu',))",
    )
    assert here in source
    space = dict(vars(custom_kernel))
    exec(source.replace(here, there), space)
    monkeypatch.setattr(custom_kernel, "trace_pallas", space["trace_pallas"])


def test_the_shipped_kernel_is_a_custom_call_too_and_gets_our_scale(for_a_tpu, monkeypatch, device):
    seen = []
    shipped = custom_kernel.flash_attention

    def spy(*arguments, **options):
        seen.append(options["sm_scale"])
        return shipped(*arguments, **options)

    monkeypatch.setattr(custom_kernel, "flash_attention", spy)
    leaves = [t.to(device).requires_grad_() for t in draw((1, 2, 256, 256, 64))[:3]]
    out = attention(*leaves, implementation="jax_flash", interpret=False)
    assert kernels_in(*torch.autograd.grad(out.sum(), leaves)) == 3
    assert seen == [64**-0.5]  # its own default is 1.0


def test_what_is_refused(device):
    q, k, v, _ = draw((1, 2, 128, 128, 64))
    on = [t.to(device) for t in (q, k, v)]
    with pytest.raises(ValueError, match="accepted: it on a TPU alone"):
        attention(*on, implementation="jax_flash")
    with pytest.raises(ValueError, match=r"k\.device is cpu; accepted: xla:0"):
        attention(on[0], k, on[2])
    with pytest.raises(ValueError, match=r"v\.device is xla:0; accepted: cpu"):
        attention(q, k, on[2])
