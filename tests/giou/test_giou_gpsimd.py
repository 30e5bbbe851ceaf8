"""GIOU on GpSimd: every size, every number of cores, every order; and AWS's build."""

import sys
from pathlib import Path

import numpy as np
import pytest
from close import assert_right
from hypothesis import given
from hypothesis import strategies as st

from kernels import optional
from kernels.giou import giou, workloads
from kernels.giou.gpsimd import PRELUDE, SOURCES, build
from kernels.machines.neuron import gpsimd
from kernels.proof.workload import Workload

pytestmark = pytest.mark.skipif(
    not (optional.available("g++") and sys.platform == "linux"),
    reason="needs g++ on Linux; on Debian and Ubuntu: sudo apt install g++",
)


def boxes(b, n, values="normal", seed=0):
    return workloads.giou.arguments(Workload("drawn", {"b": b, "n": n}, values=values), seed)


@given(
    b=st.integers(1, 40),
    n=st.integers(1, 700),
    cores=st.integers(1, 8),
    seed=st.integers(0, 9),
    values=st.sampled_from(["normal", "degenerate", "wide"]),
)
def test_any_size_on_any_cores_in_any_order(b, n, cores, seed, values):
    preds, targets = boxes(b, n, values, seed)
    params = gpsimd.GpSimdParams(order=seed, cores=cores)
    result = giou(preds, targets, implementation="gpsimd", interpret=params)
    assert_right("giou", result, preds, targets)
    other = gpsimd.GpSimdParams(order=seed + 1, cores=cores)
    again = giou(preds, targets, implementation="gpsimd", interpret=other)
    alone = giou(preds, targets, implementation="gpsimd", interpret=True)
    assert np.array_equal(result, again) and np.array_equal(result, alone)


@pytest.mark.parametrize(("b", "n"), [(1, 1), (1, 7), (1, 700), (9, 343), (3, 3585), (13, 448)])
def test_cores_share_the_pairs_evenly(b, n):
    run = gpsimd.run(SOURCES, "giou", *boxes(b, n))
    assert_right("giou", run.result, *boxes(b, n))
    pairs = [t.stored_bytes // 4 for t in run.traffic]
    assert sum(pairs) == b * n and max(pairs) - min(pairs) <= 1
    for traffic, count in zip(run.traffic, pairs):
        assert traffic.loaded_bytes == 32 * count and traffic.loads == 2 * -(-count // 448)
        assert traffic.tcm_bytes == 448 * 9 * 4 <= gpsimd.TCM_BYTES


def test_too_little_tcm_ends_the_run_and_not_the_result():
    with pytest.raises(gpsimd.GpSimdError, match="core 0: ended itself"):
        gpsimd.run(SOURCES, "giou", *boxes(2, 8), tcm_bytes=8192)


def test_what_the_machine_cannot_hold_is_refused():
    with pytest.raises(ValueError, match=r"arrays\[0\].shape is \(65536, 1, 4\)"):
        giou(*(np.zeros((65536, 1, 4), np.float32),) * 2, implementation="gpsimd")


def test_the_build_is_the_documents_own(monkeypatch, tmp_path):
    """The vendor's build gets the same two files that are emulated."""
    import types

    given = {}
    module = types.ModuleType("torch_neuronx.xla_impl")
    module.custom_op = types.SimpleNamespace(load=lambda **options: given.update(options))
    monkeypatch.setitem(sys.modules, "torch_neuronx", types.ModuleType("torch_neuronx"))
    monkeypatch.setitem(sys.modules, "torch_neuronx.xla_impl", module)
    build.build(tmp_path)
    assert given.pop("name") == "giou" and given.pop("multicore") is True
    assert (*map(Path, given.pop("compute_srcs")), *map(Path, given.pop("shape_srcs"))) == SOURCES
    assert given == {"build_directory": str(tmp_path)}


def test_the_prelude_ends_before_the_kernel():
    assert "float score(" in PRELUDE and "get_dst_tensor" not in PRELUDE
