"""The pictures state their finding, draw the limit, and name their units."""

from types import SimpleNamespace

import pytest

from kernels.records import bands
from kernels.tpu import CHIPS

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

from kernels.pictures import plots  # noqa: E402


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


def checked(error, m=8, **more):
    known = {
        "operator": "matmul",
        "implementation": "xla",
        "sizes": {"m": m, "k": 8, "n": 8},
        "dtype": "bfloat16",
        "chip": "v5e",
        "clock": "device",
        "published_ms": 2.0,
        "estimated_ms": 2.0 * (1 + error),
        "regime": "XLA, compute",
    }
    return bands.Checked(**known | more)


def test_predicted_over_measured():
    rows = [checked(0.1, m) for m in range(1, 30)]
    axes = plots.predicted(rows)
    test = sum(row.half == "test" for row in rows)
    assert axes.get_title() == f"{test} test rows, half of them within 10%"
    assert "measured" in axes.get_xlabel() and "estimated (ms)" in axes.get_ylabel()
    line = axes.get_lines()[0]
    assert (line.get_xdata() == line.get_ydata()).all()
    drawn = [point for each in axes.collections for point in each.get_offsets().tolist()]
    assert len(drawn) == len(rows) and all(y == pytest.approx(1.1 * x) for x, y in drawn)
    with pytest.raises(ValueError, match="without an estimate"):
        plots.predicted([checked(0.0, estimated_ms=None, reason="refused")])


def test_a_panel_for_each_chip_and_regime():
    rows = [checked(0.1), checked(0.1, chip="v6e"), checked(0.1, 9, regime="Pallas, HBM")]
    figure = plots.predictions(rows)
    titles = [axes.get_title().partition("\n")[0] for axes in figure.axes]
    assert titles == ["v5e: Pallas, HBM", "v5e: XLA, compute", "v6e: XLA, compute"]
    with pytest.raises(ValueError, match="without an estimate"):
        plots.predictions([])
