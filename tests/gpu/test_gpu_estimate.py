"""A bracket of what a program would take; and cuBLAS's products, against XLA's measured ones."""

import statistics

import jax
import jax.numpy as jnp
import pytest

from kernels import gpu
from kernels.compat import xla_gpu, xla_tables
from kernels.gpu import toolchain
from kernels.gpu.estimate import LIBRARY, library_product

S = jax.ShapeDtypeStruct
# chip → most of the median error, and of the error that nine in ten stay below.
ALLOWED = {"h100": (0.05, 0.15), "b200": (0.06, 0.20)}


@pytest.mark.cuda
def test_products_are_held_against_the_half_that_was_not_fitted():
    table = xla_tables.products(toolchain.folder() / toolchain.PLUGIN)
    for chip, (median, most) in ALLOWED.items():
        rows = sorted((key[1:], seconds) for key, seconds in table.items() if key[0] == chip)
        assert len(rows) == 375
        off = []
        for (batch, m, n, k), seconds in rows[1::2]:  # the others were fitted to
            ratio = library_product(chip, m, k, n, batch=batch) / seconds
            off.append(max(ratio, 1 / ratio) - 1)
        assert statistics.median(off) <= median
        assert sorted(off)[int(0.9 * len(off))] <= most


def test_two_constants_a_chip_and_no_other_chip():
    assert set(LIBRARY) == set(xla_tables.CHIPS) == set(ALLOWED)
    with pytest.raises(ValueError, match="chip is 'l4'; accepted: h100, b200"):
        library_product("l4", 128, 128, 128)


@pytest.mark.cuda
def test_a_product_is_one_figure_and_the_rest_a_bracket():
    square = S((4096, 4096), jnp.bfloat16)
    found = gpu.estimate(jnp.dot, square, square)
    assert found.seconds[0] == found.seconds[1] == library_product("h100", 4096, 4096, 4096)
    assert found.bound == "compute" and "fitted" in found.method
    assert 2 * 4096**3 / found.seconds[0] < gpu.CHIPS["h100"].bf16_flops

    found = gpu.estimate(jax.nn.softmax, S((4096, 4096), jnp.float32))
    low, high = found.seconds
    assert low == 2 * 4 * 4096**2 / gpu.CHIPS["h100"].bytes_per_second  # read once, written once
    assert low < high < 2.5 * low and found.bound == "memory"
    assert "of no measurement" in found.method


@pytest.mark.cuda
def test_what_is_not_known_is_refused():
    from kernels.vector import add_vectors

    with pytest.raises(ValueError, match=r"function is one with __cudnn\$convForward in it"):
        image, weight = S((8, 56, 56, 64), jnp.float16), S((3, 3, 64, 64), jnp.float16)
        order = ("NHWC", "HWIO", "NHWC")
        gpu.estimate(
            lambda x, w: jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=order
            ),
            image,
            weight,
        )

    v = S((1000,), jnp.float32)
    with pytest.raises(ValueError, match="the Pallas kernel"):
        gpu.estimate(lambda x, y: add_vectors(x, y, implementation="triton"), v, v)


HLO = """HloModule m

ENTRY %main (a: bf16[8,64,32], b: bf16[8,32,16]) -> bf16[8,64,16] {
  %a = bf16[8,64,32]{2,1,0} parameter(0)
  %b = bf16[8,32,16]{2,1,0} parameter(1)
  %call.1 = (bf16[8,64,16]{2,1,0}, s8[100]{0}) custom-call(%a, %b), \
custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":\
{"lhs_contracting_dimensions":["2"],"lhs_batch_dimensions":["0"]}}
  %get = bf16[8,64,16]{2,1,0} get-tuple-element(%call.1), index=0
  ROOT %twice = bf16[8,64,16]{2,1,0} fusion(%get, %get), kind=kLoop, calls=%c
}
"""


def test_bytes_and_operations_are_read_from_the_program():
    call, twice = xla_gpu.operations(HLO)
    assert call.product == (8, 64, 32, 16) and call.flops == 2 * 8 * 64 * 32 * 16
    assert call.bytes == 2 * 8 * (64 * 32 + 32 * 16 + 64 * 16) and call.dtype == "bfloat16"
    assert twice.bytes == 2 * 2 * 8 * 64 * 16 and not twice.flops  # an operand counts once
