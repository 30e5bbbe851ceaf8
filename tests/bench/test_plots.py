"""The pictures state their finding, draw the limit, and name their units."""

import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.matmul import BlockSizes, matmul
from kernels.pallas import calls
from kernels.tpu import CHIPS, KernelSchedule
from kernels.tpu.undocumented import Bundle

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

from kernels.bench import plots  # noqa: E402


@pytest.fixture(autouse=True)
def closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def made(name, flops, hbm_bytes, seconds, chip="v5e"):
    peak = CHIPS[chip].bf16_flops
    return SimpleNamespace(
        name=name,
        chip=chip,
        flops=flops,
        hbm_bytes=hbm_bytes,
        seconds=seconds,
        error=0.06,
        utilisation=flops / peak / seconds,
    )


def test_roofline():
    axes = plots.roofline([made("small", 1e9, 1e8, 1e-3), made("large", 1e12, 1e9, 6e-3)])
    assert axes.get_title() == "large reaches 85% of v5e's peak (estimated)"
    assert "TFLOP/s" in axes.get_ylabel() and "FLOP/byte" in axes.get_xlabel()
    roof = axes.get_lines()[0].get_ydata()
    assert roof.max() == pytest.approx(197)
    assert {"197 TFLOP/s, bf16", "819 GB/s"} <= {t.get_text() for t in axes.texts}


def test_roofline_of_two_chips_is_refused():
    with pytest.raises(ValueError, match="one chip"):
        plots.roofline([made("a", 1, 1, 1), made("b", 1, 1, 1, "v6e")])
    with pytest.raises(ValueError, match="matrix products"):
        plots.roofline([made("a", 0, 1, 1)])


@pytest.fixture
def schedule():
    bundles = tuple(Bundle(i, "", int(10 <= i < 90), ()) for i in range(100))
    occupancy = np.zeros((100, 2), int)
    occupancy[10:90, 0] = 4
    return KernelSchedule("kernel", bundles, ("MXU", "VPU"), np.array([4, 4]), occupancy, None)


def test_heat_map(schedule):
    axes = plots.heat_map(schedule)
    assert axes.get_title() == "kernel: the MXU slots are the fullest, 100%"
    assert [t.get_text() for t in axes.get_yticklabels()] == ["MXU", "VPU"]
    assert axes.images[0].get_array().shape == (2, 80)
    assert axes.images[0].get_clim() == (0, 1)
    assert plots.heat_map(schedule, 0, 100).images[0].get_array().shape == (2, 100)
    with pytest.raises(ValueError, match="start, stop"):
        plots.heat_map(schedule, 50, 20)


def blocked(m, k, n, bm, bk, bn):
    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((m, k), (k, n))]
    function = functools.partial(matmul, block=BlockSizes(bm, bk, bn), interpret=False)
    return calls(function, *shapes)[0]


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
@pytest.mark.parametrize(
    "sizes", [(512, 512, 512, 128, 128, 128), (512, 1024, 768, 256, 1024, 256)], ids=str
)
def test_spans_are_a_pipeline_with_two_buffers(sizes, chip):
    call = blocked(*sizes)
    found = plots.spans(call, chip)
    rates = CHIPS[chip]
    work = [s for s in found if s.unit == "multiply"]
    copies = sorted((s for s in found if s.unit != "multiply"), key=lambda s: s.start)
    assert [s.step for s in work] == list(range(len(call.programs)))
    busy = sum(s.stop - s.start for s in work) / rates.clock_hz
    assert busy == pytest.approx(2 * np.prod(sizes[:3]) / rates.bf16_flops)
    moved = sum(s.stop - s.start for s in copies) * rates.hbm_bytes_per_cycle
    assert moved == pytest.approx(call.traffic)
    for row in (work, copies):  # neither the MXUs nor HBM do two things at once
        assert all(a.stop <= b.start + 1e-6 for a, b in itertools.pairwise(row))
    for copy in copies:
        if copy.unit == "fetch":
            assert copy.stop <= work[copy.step].start + 1e-6
            assert copy.step == 0 or copy.start >= work[copy.step - 1].start - 1e-6
        else:
            assert copy.start >= work[copy.step].stop - 1e-6


def test_time_line():
    call = blocked(1024, 1024, 1024, 256, 1024, 256)
    axes = plots.time_line(call, first=4)
    found = plots.spans(call)
    share = sum(s.stop - s.start for s in found if s.unit == "multiply") / max(
        s.stop for s in found
    )
    assert axes.get_title() == f"At best, the MXUs work {share:.0%} of the time"
    assert "cycles" in axes.get_xlabel()
    assert [t.get_text() for t in axes.get_yticklabels()] == ["HBM → VMEM", "MXUs", "VMEM → HBM"]
    assert {"0", "x", "y"} <= {t.get_text() for t in axes.texts}
