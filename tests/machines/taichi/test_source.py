"""A kernel as text: what a notebook defines runs in a process that cannot import it."""

import numpy as np
import pytest

from kernels import taichi

pytest.importorskip(taichi.runtime.name())
from taichi_samples import beyond, double


def launched(kernel, x):
    out = taichi.empty(x.shape, x)
    taichi.launch(kernel.made(), x, out)
    return out


def test_what_was_written_is_made_once_and_runs_here_and_in_a_child():
    written = taichi.KernelSource.of(double)
    assert written == taichi.KernelSource.of(double) and written.made() is written.made()
    assert written.made() is not double
    x = np.arange(4, dtype=np.float32)
    assert launched(written, x).tolist() == [0, 2, 4, 6]
    assert taichi.simulate(launched, written, x).tolist() == [0, 2, 4, 6]


def test_the_child_checks_its_accesses():
    with pytest.raises(taichi.TaichiError, match=r"beyond.*Out of bound access"):
        taichi.simulate(launched, taichi.KernelSource.of(beyond), np.ones(4, np.float32))


def test_it_sees_its_arguments_and_no_more():
    knows = taichi.KernelSource(
        "knows", "def knows():\n    return float(np.float32(ti is not None))\n"
    )
    asks = taichi.KernelSource("asks", "def asks():\n    return launched\n")
    assert knows.made()() == 1
    with pytest.raises(NameError, match="launched"):
        asks.made()()
