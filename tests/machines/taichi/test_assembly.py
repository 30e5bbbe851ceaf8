"""The assembly of a kernel, and what is read from it."""

import numpy as np
import pytest

from kernels import optional
from kernels.machines.taichi import TaichiError, assembly

LOOP = """
.LBB0_1:
\tmovss\t(%rax), %xmm0
\tmulss\t%xmm1, %xmm0
\tjne\t.LBB0_1
.LBB0_2:
\tvmovups\t(%rax), %zmm0
\tvfmadd231ps\t(%rbx), %zmm1, %zmm0
\tvmulps\t%ymm1, %ymm2, %ymm3
\tjne\t.LBB0_2
\tmulps\t%xmm1, %xmm0
\tret
"""


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
