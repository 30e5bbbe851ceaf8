"""The convolution in CUDA C++ and as Taichi's PTX: planted faults fall, and what the code holds."""

import dataclasses

import numpy as np
import pytest

from kernels.depthwise_conv import cuda, depthwise_conv
from kernels.machines import optional
from kernels.machines.gpu import toolchain
from kernels.machines.gpu.launched import Launched, LaunchError, ThreadParams
from kernels.proof import ladder
from kernels.proof.backends.cuda import CUDA, WATCHES
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

pytest.importorskip("torch", reason="torch is not installed")

from conv_samples import judge_gradients

threads = pytest.mark.skipif(not optional.available("g++"), reason="g++ is not installed")
nvcc = pytest.mark.skipif(not toolchain.available(), reason="make venv EXTRAS=gpu brings NVRTC")
CONV = OPERATORS["depthwise_conv"]
SMALL = Workload("small", {"b": 9, "c": 2, "t": 18})


def climb(name, rung):
    (check,) = ladder.climb(ladder.Subject.of(CONV, CONV[name]), rung, [SMALL])
    return check.status, check.message


@pytest.mark.slow
@threads
@pytest.mark.parametrize("watch", WATCHES)
def test_the_gradients_pass_the_sanitizers(watch):
    w, k, _ = CONV.workloads.arguments(SMALL)
    g = np.random.default_rng(1).standard_normal(k.shape).astype(np.float32)
    found = cuda.gradients(w, k, g, interpret=ThreadParams(watch))
    judge_gradients(np.concatenate([each.ravel() for each in found]), w, k, g)


@pytest.mark.slow
@threads
@pytest.mark.parametrize(
    ("name", "right", "wrong", "rung", "says"),
    [
        ("cuda", "__syncthreads();", "", "simulate", "data race in line"),
        ("cuda_plain", "= eps;", "= eps + 0 * w[C * T];", "simulate", "overflow in line"),
        ("cuda_shared", "past[T];", "past[T + 99999];", "compile", "shared"),
        ("cuda_four", "Sums sums;", "Sums sum;", "compile", "NVRTC refuses it: line"),
    ],
)
def test_a_planted_fault_falls(name, right, wrong, rung, says, monkeypatch):
    kernel = "rows" if name == "cuda" else name.removeprefix("cuda_")
    assert cuda.SOURCES[kernel].count(right) == 1
    monkeypatch.setitem(cuda.SOURCES, kernel, cuda.SOURCES[kernel].replace(right, wrong))
    status, message = climb(name, rung)
    if status == ladder.SKIPPED:  # NVIDIA's compilers are not installed
        pytest.skip(message)
    assert status == ladder.FAILED and says in message, message


def test_what_launches_nothing_is_not_compiled():
    subject = ladder.Subject(CONV, "planted", CUDA, lambda w, k, eps, interpret: k)
    (check,) = ladder.climb(subject, "compile", [SMALL])
    assert check.status == ladder.FAILED and check.message == "no kernel was launched"


def test_what_does_not_fit_is_refused():
    w, k, eps = CONV.workloads.arguments(SMALL)
    for name, sizes, says in (
        ("rows", (4, 2, 20), "b is 4; accepted: a multiple of 8"),
        ("plain", (4, 2, 18), "t is 18; accepted: a multiple of 4"),
        ("v9", (1, 1, 4), "name is 'v9'; accepted: plain, shared, four, rows"),
    ):
        with pytest.raises(ValueError, match=says):
            cuda.launched(name, *sizes)
    with pytest.raises(ValueError, match=r"k\.dtype is 'float64'; accepted: float32"):
        depthwise_conv(w.astype(float), k.astype(float), implementation="cuda")
    long = np.zeros((1, 1, 1028), np.float32)
    with pytest.raises(ValueError, match=r"k.shape\[2\] \(steps\) is 1028; accepted: at most 1024"):
        depthwise_conv(long[0], long, implementation="cuda_four")
    with pytest.raises(ValueError, match="interpret is False; accepted: None, True or ThreadP"):
        depthwise_conv(w, k, eps, implementation="cuda", interpret=False)
    rows, gradient = (cuda.launched(name, 32, 768, 768) for name in ("rows", "gradient"))
    assert (rows.blocks, rows.threads, gradient.blocks) == (4 * 768, 192, 768)


@pytest.mark.slow
@threads
def test_what_a_kernel_leaves_out_is_nan():
    kernel = "__global__ void half(float* o, const float* x, float y) { *o = *x + y; }"
    launch = Launched(kernel, "half", 1, 1)
    (out,) = launch.run([(2,)], np.float32([2]), 1.0)
    assert out[0] == 3 and np.isnan(out[1])
    launch = dataclasses.replace(launch, source=kernel.replace("*o", "o[2]"))
    with pytest.raises(LaunchError, match="heap-buffer-overflow in line 1 of half"):
        launch.run([(2,)], np.float32([2]), 0.5, interpret=ThreadParams("bounds"))


@pytest.mark.slow
@nvcc
def test_the_rows_share_their_weights():
    rows = cuda.compiled("rows", 32, 768, 768)
    assert rows.shared_bytes == 4 * 768 * (1 + cuda.ROWS) and not rows.spills
    assert rows.occupancy.limiter == "shared memory" and ".target sm_86" in rows.ptx


@pytest.mark.slow
@nvcc
@threads
@pytest.mark.skipif(not optional.available("taichi"), reason="no Taichi")
def test_taichi_compiles_for_a_gpu_that_is_not_there():
    from kernels.depthwise_conv import taichi
    from kernels.depthwise_conv.levels import ROWS

    compiled = taichi.compiled()
    assert list(compiled) == ["v0", "tile", "gradient of w"]
    for kernel in compiled.values():
        assert ".target sm_86" in kernel.ptx and kernel.ptx.count(".visible .entry") == 1
        assert kernel.threads == 128 and kernel.counts["FFMA"] and not kernel.spills
    assert compiled["tile"].shared_bytes == 4 * (2 * 128 + ROWS * 128)
    assert compiled["tile"].counts["BAR"] and not compiled["v0"].counts["BAR"]
