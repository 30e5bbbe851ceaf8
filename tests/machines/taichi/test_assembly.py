"""The assembly of a kernel, and what is read from it."""

from pathlib import Path

import numpy as np
import pytest

from kernels import optional
from kernels.machines.taichi import TaichiError, assembly

DATA = Path(__file__).with_name("data")
LOOP = (DATA / "loop.s").read_text()


def test_products_are_counted_by_register():
    assert assembly.products(LOOP) == {"scalar": 1, "zmm": 1, "ymm": 1, "xmm": 1}
    assert not assembly.products("\taddps\t%xmm0, %xmm1\n")


def test_the_hottest_loop_has_the_most_products():
    found = assembly.hottest(LOOP)
    assert found.startswith(".LBB0_2:") and found.endswith("jne\t.LBB0_2")
    assert assembly.hottest("\tret\n") == ""


@pytest.mark.slow
@pytest.mark.skipif(not optional.available("taichi"), reason="taichi is not installed")
@pytest.mark.skipif(__import__("platform").machine() != "x86_64", reason="of x86 only")
def test_a_kernel_shows_its_vectors_and_a_failure_its_reason():
    from kernels.depthwise_conv import depthwise_conv

    w, k = np.ones((1, 64), np.float32), np.ones((4, 1, 64), np.float32)
    (text,) = assembly.assembly(depthwise_conv, w, k, implementation="v0")
    found = assembly.products(assembly.hottest(text))
    assert found.total() and not found["scalar"]
    with pytest.raises(TaichiError, match="accepted: 3 dimensions"):
        assembly.assembly(depthwise_conv, w, w)
