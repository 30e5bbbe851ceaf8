"""The GPUs' figures agree with each other, and occupancy with NVIDIA's calculator."""

import dataclasses

import pytest
from refused import refuses

from kernels import gpu
from kernels.machines.compat.xla_gpu import target
from kernels.machines.gpu.occupancy import occupancy


@pytest.mark.parametrize("chip", gpu.CHIPS.values(), ids=str)
def test_rates_are_lanes_times_clock_and_whole_operations_a_cycle(chip):
    """Published rates are rounded, and are those at the boost clock; the tensor cores of an SM do a
    power of two of multiply-adds in a cycle."""
    rate = 2 * chip.sms * chip.lanes * chip.clock_hz
    assert rate == pytest.approx(chip.float32_flops, rel=0.015)
    each = chip.bf16_flops / (2 * chip.sms * chip.tensor_clock_hz)
    assert min(abs(each / 2**n - 1) for n in range(6, 14)) < 0.03
    ratio = 4 if chip.name == "rtx3090" else 2  # its bf16 products run at half speed
    assert chip.int8_ops / chip.bf16_flops == pytest.approx(ratio, rel=0.01)
    assert chip.peak("float32") == chip.tf32_flops and chip.peak("int8") == chip.int8_ops


@pytest.mark.parametrize("chip", gpu.CHIPS.values(), ids=str)
def test_every_figure_has_a_source(chip):
    told = {"name", "sources"}
    for field in dataclasses.fields(chip):
        assert field.name in told or chip.source(field.name)
    assert str(chip.sms) in target(chip) and chip.device_kind in target(chip)


def test_an_unknown_chip_is_refused():
    assert set(gpu.CHIPS) >= {"a100", "l4", "h100", "b200", "rtx3090"}
    for ask in (
        lambda: gpu.compile(lambda x: x, 1, chip="h200"),
        lambda: gpu.occupancy("h200", threads=32, registers=32),
        lambda: gpu.lower(lambda x: x, 1, chip="h200"),
    ):
        with pytest.raises(ValueError, match=r"chip is 'h200'; accepted: a100, l4, h100"):
            ask()


@pytest.mark.parametrize(
    ("chip", "threads", "registers", "shared", "blocks", "warps", "limiter"),
    [  # worked out by hand from NVIDIA's tables
        ("h100", 128, 210, 98304, 2, 8, "registers"),
        ("h100", 1024, 32, 0, 2, 64, "threads"),
        ("h100", 1024, 64, 0, 1, 32, "registers"),
        ("h100", 32, 16, 0, 32, 32, "blocks"),
        ("a100", 256, 128, 65536, 2, 16, "registers"),
        ("a100", 256, 32, 65536, 2, 16, "shared memory"),
        ("rtx3090", 128, 218, 16384, 2, 8, "registers"),
        ("l4", 256, 40, 0, 6, 48, "threads"),
        # 65 registers are given as 72, which are 2,304 a warp: 28 warps, 7 for each scheduler.
        ("h100", 32, 65, 0, 28, 28, "registers"),
    ],
)
def test_occupancy_is_what_the_calculator_says(
    chip, threads, registers, shared, blocks, warps, limiter
):
    made = occupancy(chip, threads=threads, registers=registers, shared_bytes=shared)
    assert (made.blocks, made.warps, made.limiter) == (blocks, warps, limiter)
    assert made.share == warps * 32 / gpu.CHIPS[chip].threads_per_sm


test_a_block_that_no_sm_takes_is_refused = refuses(
    lambda given: occupancy("h100", **given),
    ({"threads": 0, "registers": 32}, "threads is 0"),
    ({"threads": 2048, "registers": 32}, "threads is 2048"),
    ({"threads": 32, "registers": 256}, "registers is 256"),
    ({"threads": 1024, "registers": 128}, "registers is 128 in each of 1024 threads"),
    ({"threads": 32, "registers": 32, "shared_bytes": 232449}, "shared_bytes is 232449"),
)
