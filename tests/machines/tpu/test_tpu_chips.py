"""The chips: what is published of each agrees with itself."""

import pytest
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.tpu import CHIPS, lower
from kernels.machines.tpu.export import abstract_device, export


@pytest.mark.parametrize("name", CHIPS)
def test_clock_and_mxus_give_the_peak_and_figures_have_sources(name):
    c = CHIPS[name]
    a_cycle = 2 * c.tensor_cores * c.mxus * c.mxu_size**2
    passes = {"v6e": 2, "v7x": 2}.get(name, 1)  # their MXUs take two bfloat16 operands a cycle
    assert c.clock_hz * a_cycle * passes == pytest.approx(c.bf16_flops, rel=0.01)
    assert c.int8_ops == (1 if name == "v7x" else 2) * c.bf16_flops  # that has float8 instead
    assert c.peak("int8") == c.int8_ops and c.peak("float32") == c.bf16_flops
    for field in ("clock_hz", "hbm_bytes_per_second", "bf16_flops", "vmem_bytes", "mxus"):
        assert len(c.source(field)) > 10
    with pytest.raises(ValueError, match="accepted"):
        c.source("colour")


@pytest.mark.parametrize("ask", [export, lower])
def test_an_unknown_chip_is_named(ask):
    with pytest.raises(ValueError, match="chip is 'v9'; accepted: v5e, v6e"):
        ask(abs, 1.0, chip="v9")


@pytest.mark.parametrize("name", CHIPS)
def test_jax_agrees(name):
    with abstract_device(name):
        info = pltpu.get_tpu_info()
    c = CHIPS[name]
    assert info.vmem_capacity_bytes == c.vmem_bytes and info.mxu_column_size == c.mxu_size
    assert info.bf16_ops_per_second * c.tensor_cores == pytest.approx(c.bf16_flops, rel=0.01)
    bytes_per_second = info.mem_bw_bytes_per_second * c.tensor_cores
    assert bytes_per_second == pytest.approx(c.hbm_bytes_per_second, rel=0.12)
