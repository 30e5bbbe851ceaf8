"""Depthwise convolution: what the ladder does not ask."""

import importlib
import itertools
import sys

import numpy as np
import pytest
from close import assert_close, assert_right, assert_same_formula
from hypothesis import given
from hypothesis import strategies as st

from kernels import budget, optional
from kernels.depthwise_conv import depthwise_conv, flops, reference
from kernels.machines.taichi import runtime
from kernels.proof.catalog import OPERATORS

torch = pytest.importorskip("torch", reason="torch is not installed")

needs_taichi = pytest.mark.skipif(
    not optional.available("taichi"), reason="taichi is not installed: pip install -e '.[taichi]'"
)
LIBRARIES = ("numpy", "torch", "fft")
TAICHI = ("taichi", "v0", "v1", "v2", "v3")
ALL = (*LIBRARIES, *(pytest.param(name, marks=needs_taichi) for name in TAICHI))
WITH_GRADIENT = ("torch", "fft", pytest.param("taichi", marks=needs_taichi))
WORKLOADS = OPERATORS["depthwise_conv"].workloads

sizes = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 13, 31))
lengths = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 31, 63, 64, 65, 67, 131))


def draw(b, c, t, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((c, t)).astype(dtype), rng.standard_normal((b, c, t)).astype(dtype)


def wide(*arrays):
    return [a.astype(np.float64) for a in arrays]


def judge(result, w, k, eps=0.0):
    assert_right("depthwise_conv", result, w, k, eps)


def judge_gradients(flat, w, k, cotangent):
    """Those of w and k in one flat array, as conv_samples.gradients gives them."""
    of = lambda *given: np.concatenate([g.ravel() for g in both_gradients(*given, "torch")])
    given = wide(w, k, cotangent)
    assert_close(flat, of(*given), of(w, k, cotangent), of(*map(abs, given)))


def test_the_oracle_is_the_formula():
    (w, k), eps = draw(2, 3, 7, "float64"), 0.25
    want = np.full(k.shape, eps)
    for b, c, t in itertools.product(range(2), range(3), range(7)):
        for u in range(t + 1):
            want[b, c, t] += w[c, 6 - (t - u)] * k[b, c, u]
    size = reference.depthwise_conv_magnitude(w, k, eps)
    assert_same_formula(reference.depthwise_conv(w, k, eps), want, size)


@pytest.mark.parametrize("implementation", ALL)
@given(b=sizes, c=sizes, t=lengths, dtype=st.sampled_from(("float32", "float64")))
def test_any_shape(implementation, b, c, t, dtype):
    w, k = draw(b, c, t, dtype, seed=t)
    got = depthwise_conv(w, k, 0.5, implementation=implementation)
    want = reference.depthwise_conv(*wide(w, k), 0.5)
    size = reference.depthwise_conv_magnitude(*wide(w, k), 0.5)
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


@pytest.mark.slow
@pytest.mark.parametrize("implementation", WITH_GRADIENT)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 2, 9)])
def test_gradcheck(implementation, shape):
    tensors = [torch.from_numpy(a).requires_grad_() for a in draw(*shape, "float64")]
    assert torch.autograd.gradcheck(
        lambda w, k: depthwise_conv(w, k, 0.5, implementation=implementation), tensors
    )


def both_gradients(w, k, cotangent, implementation):
    w, k = (torch.from_numpy(a).requires_grad_() for a in (w, k))
    result = depthwise_conv(w, k, 0.5, implementation=implementation)
    return [g.numpy() for g in torch.autograd.grad(result, [w, k], torch.from_numpy(cotangent))]


@needs_taichi
def test_only_the_gradient_that_is_asked_for_is_made(monkeypatch):
    module = importlib.import_module("kernels.depthwise_conv.taichi")
    w, k = map(torch.from_numpy, draw(3, 2, 9))
    monkeypatch.setattr(module, "_backward_k", None)
    depthwise_conv(w.requires_grad_(), k).sum().backward()  # of an expanded, strided cotangent
    grown = w.grad
    assert k.grad is None
    w, k = w.detach().numpy(), k.numpy()
    given = w, k, np.ones_like(k)
    want, plain, size = (
        both_gradients(*each, "torch")[0] for each in (wide(*given), given, map(abs, wide(*given)))
    )
    assert_close(grown.numpy(), want, plain, size)


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
    from conv_samples import gradients

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
        judge(result, w, k, 0.5)


@needs_taichi
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 131), (8, 2, 384)])
def test_shared_memory_on_a_gpu(shape):
    from conv_samples import gradients

    from kernels import taichi

    w, k = draw(*shape)
    judge(taichi.run(depthwise_conv, w, k, 0.5, device="cuda"), w, k, 0.5)
    found = taichi.run(gradients, w, k, np.ones_like(k), device="cuda")
    judge_gradients(found, w, k, np.ones_like(k))


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


@pytest.mark.parametrize("implementation", ["v3", "numpy"])
def test_what_has_no_gradient_does_not_drop_out_of_autograd(implementation):
    if implementation == "v3" and not optional.available("taichi"):
        pytest.skip("taichi is not installed")
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


def test_a_float32_transform_would_break_the_budget_and_ours_does_not():
    from kernels.depthwise_conv import fft

    w, k = map(torch.from_numpy, draw(7, 5, 131))
    want = reference.depthwise_conv(*wide(w.numpy(), k.numpy()))
    size = reference.depthwise_conv_magnitude(*wide(w.numpy(), k.numpy()))
    plain = depthwise_conv(w, k, implementation="torch").numpy()
    for narrow in (False, True):
        got = fft.depthwise_conv(w, k, 0.0, narrow=narrow).numpy()
        assert budget.compare(got, want, plain, size).passed is not narrow
