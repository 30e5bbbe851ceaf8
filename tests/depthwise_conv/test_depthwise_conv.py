"""Depthwise convolution: what the ladder does not ask."""

import importlib
import sys

import numpy as np
import pytest
from close import assert_right
from hypothesis import given
from hypothesis import strategies as st

from kernels import optional
from kernels.depthwise_conv import depthwise_conv, flops, reference
from kernels.machines.taichi import runtime
from kernels.proof.catalog import OPERATORS

torch = pytest.importorskip("torch", reason="torch is not installed")

from conv_samples import draw, gradients, judge_gradients  # noqa: E402

needs_taichi = pytest.mark.skipif(
    not optional.available("taichi"), reason="taichi is not installed: pip install -e '.[taichi]'"
)
TAICHI = [pytest.param(n, marks=needs_taichi) for n in ("taichi", "v0", "v1", "v2", "v3")]
ALL = ("numpy", "torch", "fft", *TAICHI)
WORKLOADS = OPERATORS["depthwise_conv"].workloads

sizes = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 13, 31))
lengths = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 31, 63, 64, 65, 67, 131))


@pytest.mark.parametrize("implementation", ALL)
@given(b=sizes, c=sizes, t=lengths, dtype=st.sampled_from(("float32", "float64")))
def test_any_shape(implementation, b, c, t, dtype):
    w, k = draw(b, c, t, dtype, seed=t)
    got = depthwise_conv(w, k, 0.5, implementation=implementation)
    wide = w.astype(np.float64), k.astype(np.float64)
    want = reference.depthwise_conv(*wide, 0.5)
    size = reference.depthwise_conv_magnitude(*wide, 0.5)
    if implementation == "fft":  # its error goes by the largest of a row
        size = size + size.max(2, keepdims=True) * (dtype == "float64")
    assert got.dtype == dtype and got.shape == k.shape
    assert (abs(got - want) <= (t + 2) * np.finfo(dtype).eps * size).all()


@pytest.mark.filterwarnings("error::UserWarning")  # of arrays that may only be read
@pytest.mark.parametrize("implementation", ALL)
def test_the_result_is_of_the_arguments_kind_and_they_are_left_alone(implementation):
    arrays = draw(3, 2, 9)
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    for array in arrays:
        array.setflags(write=False)
    as_arrays, as_tensors = (
        depthwise_conv(*pair, 0.5, implementation=implementation) for pair in (arrays, tensors)
    )
    assert isinstance(as_arrays, np.ndarray) and isinstance(as_tensors, torch.Tensor)
    np.testing.assert_array_equal(as_arrays, as_tensors.numpy())
    for now, before in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(now.numpy(), before)


@needs_taichi
def test_only_the_gradient_that_is_asked_for_is_made(monkeypatch):
    module = importlib.import_module("kernels.depthwise_conv.taichi")
    w, k = map(torch.from_numpy, draw(3, 2, 9))
    monkeypatch.setattr(module, "_backward_k", None)
    depthwise_conv(w.requires_grad_(), k).sum().backward()  # of an expanded, strided cotangent
    assert k.grad is None
    judge_gradients(w.grad.numpy().ravel(), w.detach().numpy(), k.numpy(), np.ones(k.shape, "f4"))


@pytest.mark.slow
@needs_taichi
@pytest.mark.parametrize("needed", ["wk", "k"])
def test_second_derivatives(needed):
    tensors = [torch.from_numpy(a) for a in draw(1, 2, 2, "float64")]
    for name, tensor in zip("wk", tensors, strict=True):
        tensor.requires_grad_(name in needed)
    assert torch.autograd.gradgradcheck(depthwise_conv, tensors)


@pytest.mark.slow
@needs_taichi
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 3), (6, 2, 33)])
def test_gradients_with_every_access_checked(shape):
    """In debug mode, where an element that nobody writes is NaN."""
    from kernels import taichi

    w, k = draw(*shape)
    cotangent = draw(*shape, seed=1)[1]
    judge_gradients(taichi.simulate(gradients, w, k, cotangent), w, k, cotangent)


@pytest.mark.slow
@needs_taichi
@given(b=sizes, t=lengths)
def test_the_levels_agree_and_so_does_the_one_that_lost(b, t):
    from kernels.depthwise_conv import levels

    w, k = draw(b, 2, t)
    results = levels.every(w, k, 0.5)
    assert len(results) == 5
    for result in results:
        assert_right("depthwise_conv", result, w, k, 0.5)


W, K = draw(2, 3, 4)


@pytest.mark.parametrize(
    ("w", "k", "says"),
    [
        (W[0], K, r"w.shape is \(4,\); accepted: 2 dimensions"),
        (W, K[0], r"k.shape is \(3, 4\); accepted: 3 dimensions"),
        (W[:2], K, r"k.shape\[1:\] \(channels, steps\) is \(3, 4\); accepted: \(2, 4\)"),
        (W, K[:, :, :3], r"is \(3, 3\); accepted: \(3, 4\), as w has it"),
        (W, K[:0], "k.shape is .*at least 1"),
        (W.astype(np.float16), K, "w.dtype is 'float16'; accepted: float32, float64"),
        (W.astype(np.complex64), K, "w.dtype is 'complex64'"),
        (W, K.astype(np.int32), "k.dtype is 'int32'"),
        (W, K.astype(np.float64), "k.dtype is float64; accepted: float32, as w has it"),
        (torch.from_numpy(W), K, "k is numpy; accepted: torch, as w has it"),
        (W.tolist(), K, "w is a list; accepted: a NumPy array or a torch tensor"),
        (torch.from_numpy(W), torch.from_numpy(K).to("meta"), "k.device is meta; accepted: cpu"),
    ],
)
@pytest.mark.parametrize("implementation", ["numpy", "torch", "fft", "taichi", "v0"])
def test_what_is_refused(implementation, w, k, says):
    """Before anything is imported: "taichi" refuses the same where it is not installed."""
    with pytest.raises(ValueError, match=says):
        depthwise_conv(w, k, implementation=implementation)


@pytest.mark.parametrize("eps", [None, "0", True, np.nan, np.inf, 1j, np.zeros(3)])
def test_eps_is_one_finite_number(eps):
    with pytest.raises(ValueError, match=r"eps is .*; accepted: a finite number"):
        depthwise_conv(W, K, eps, implementation="numpy")


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("implementation", ["taichi", "v0"])
def test_taichi_takes_contiguous_arrays_and_says_so(implementation, kind):
    w, k = kind(W), kind(draw(2, 3, 8)[1])[:, :, ::1]
    with pytest.raises(ValueError, match="k is not contiguous; accepted: a contiguous array"):
        depthwise_conv(w, k[:, :, :4], implementation=implementation)
    assert tuple(depthwise_conv(w, k[:, :, :4], implementation="torch").shape) == (2, 3, 4)


@pytest.mark.parametrize("implementation", [pytest.param("v3", marks=needs_taichi), "numpy"])
def test_what_has_no_gradient_does_not_drop_out_of_autograd(implementation):
    w, k = torch.from_numpy(W.copy()).requires_grad_(), torch.from_numpy(K)
    with pytest.raises(ValueError, match="requires_grad"):
        depthwise_conv(w, k, implementation=implementation)


def test_a_missing_taichi_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(optional, "available", lambda module: False)
    monkeypatch.delitem(sys.modules, "kernels.depthwise_conv.taichi", raising=False)
    runtime.module.cache_clear()
    with pytest.raises(optional.MissingPackage, match=r"taichi is needed .*pip install"):
        depthwise_conv(W, K)


def test_the_limit_has_the_operations_of_the_workload():
    workload = WORKLOADS["rwkv_b32_c768_t768"]
    name, run, scale = WORKLOADS.limit(workload, "cpu")
    x = run()
    assert name == "matmul 1024" and x.shape == (1024, 1024) and float(x[0, 0]) == 1024
    assert scale * 2 * 1024**3 == flops(32, 768, 768) == 32 * 768 * 768 * 769
    with pytest.raises(ValueError, match="t is 0"):
        flops(1, 1, 0)
