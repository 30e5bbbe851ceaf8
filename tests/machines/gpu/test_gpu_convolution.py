"""The convolution in CUDA C++ and as Taichi's PTX: right on CPU threads, and read without a GPU."""

import numpy as np
import pytest

from kernels import optional
from kernels.depthwise_conv import cuda, reference

threads = pytest.mark.skipif(not optional.available("g++"), reason="g++ is not installed")
B, C, T, EPS = 4, 2, 20, 0.5


def arrays():
    rng = np.random.default_rng(0)
    shapes = (C, T), (B, C, T), (B, C, T)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def wanted(w, k, g):
    """Of each result, in float64; the gradients lag by lag and step by step."""
    w, k, g = (each.astype(np.float64) for each in (w, k, g))
    forward = reference.depthwise_conv(w, k, EPS)
    gw, gk = np.zeros_like(w), np.zeros_like(k)
    for d in range(T):
        gw[:, T - 1 - d] = (g[..., d:] * k[..., : T - d]).sum((0, 2))
        gk[..., : T - d] += w[:, T - 1 - d, None] * g[..., d:]
    return {**dict.fromkeys(("plain", "shared", "four", "rows"), forward), "gw": gw, "gk": gk}


@pytest.mark.slow
@threads
def test_every_kernel_is_right_on_threads():
    given = arrays()
    found, right = cuda.on_threads(given[0], given[1], EPS, given[2], rows=2), wanted(*given)
    assert found.keys() == right.keys()
    for name, want in right.items():
        assert abs(found[name] - want).max() < 2 * T * B * 2**-24 * abs(want).max(), name


@pytest.mark.slow
@threads
def test_a_missing_barrier_and_a_wrong_index_are_found(monkeypatch):
    w, k, g = arrays()
    barrier = cuda.SOURCES["rows"].replace("  __syncthreads();\n", "", 1)
    monkeypatch.setitem(cuda.SOURCES, "rows", barrier)
    with pytest.raises(RuntimeError, match="data race in line"):
        cuda.on_threads(w, k, EPS, g, rows=2)
    beyond = cuda.SOURCES["plain"].replace("u <= t;", "u <= t + T * gridDim.x;")
    monkeypatch.setitem(cuda.SOURCES, "plain", beyond)
    with pytest.raises(RuntimeError, match="heap-buffer-overflow in line"):
        cuda.on_threads(w, k, EPS, g, rows=2, watch="bounds")


def test_what_does_not_fit_is_refused():
    w, k, g = arrays()
    with pytest.raises(ValueError, match="rows is 3; accepted: one that divides the 4 rows of k"):
        cuda.on_threads(w, k, EPS, g, rows=3)
    with pytest.raises(ValueError, match="steps is 18; accepted: a multiple of 4"):
        cuda.source("plain", steps=18)
    with pytest.raises(ValueError, match="name is 'v9'; accepted: plain, shared, four, rows"):
        cuda.compiled("v9", 1, 1, 4)
    assert cuda.launch("rows", 32, 768, 768) == (4 * 768, 192)
    assert cuda.launch("gradient", 32, 768, 768) == (768, 192)


@pytest.mark.cuda
def test_the_rows_share_their_weights():
    rows = cuda.compiled("rows", 32, 768, 768)
    assert rows.shared_bytes == 4 * 768 * (1 + cuda.ROWS) and not rows.spills
    assert rows.occupancy.limiter == "shared memory" and ".target sm_86" in rows.ptx


@pytest.mark.slow
@pytest.mark.cuda
@threads
@pytest.mark.skipif(not optional.available("taichi"), reason="no Taichi")
def test_taichi_compiles_for_a_gpu_that_is_not_there():
    from kernels.depthwise_conv import ptx
    from kernels.depthwise_conv.levels import ROWS

    found = ptx.compiled()
    assert list(found) == ["v0", "tile", "gradient of w"]
    for kernel in found.values():
        assert ".target sm_86" in kernel.ptx and kernel.ptx.count(".visible .entry") == 1
        assert kernel.threads == 128 and kernel.counts["FFMA"] and not kernel.spills
    assert found["tile"].shared_bytes == 4 * (2 * 128 + ROWS * 128)
    assert found["tile"].counts["BAR"] and not found["v0"].counts["BAR"]
