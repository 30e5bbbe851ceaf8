"""The pictures state their finding, draw the limit, and name their units."""

from types import SimpleNamespace

import pytest

from kernels.machines.tpu import CHIPS

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

from kernels.lessons.pictures import plots  # noqa: E402

pytestmark = pytest.mark.usefixtures("closed")


def made(name, flops, hbm_bytes, seconds, chip="v5e"):
    parts = {"flops": flops, "hbm_bytes": hbm_bytes, "seconds": seconds, "band": None}
    utilisation = flops / CHIPS[chip].bf16_flops / seconds
    return SimpleNamespace(name=name, chip=chip, utilisation=utilisation, **parts)


def test_roofline():
    axes = plots.roofline([made("small", 1e9, 1e8, 1e-3), made("large", 1e12, 1e9, 6e-3)])
    assert axes.get_title() == "large reaches 85% of v5e's peak (estimated)"
    assert "TFLOP/s" in axes.get_ylabel() and "FLOP/byte" in axes.get_xlabel()
    assert axes.get_lines()[0].get_ydata().max() == pytest.approx(197)
    assert {"197 TFLOP/s, bf16", "819 GB/s"} <= {t.get_text() for t in axes.texts}
    axes.figure.canvas.draw()
    for axis in (axes.xaxis, axes.yaxis):  # written out: 1,000, and no powers
        shown = [label.get_text() for label in axis.get_ticklabels()]
        assert {"50", "500"} <= set(shown) and not any("$" in text for text in shown)
        assert not any(tick.label1.get_text() for tick in axis.get_minor_ticks())


def test_roofline_of_two_chips_is_refused():
    with pytest.raises(ValueError, match="one chip"):
        plots.roofline([made("a", 1, 1, 1), made("b", 1, 1, 1, "v6e")])
    with pytest.raises(ValueError, match="matrix products"):
        plots.roofline([made("a", 0, 1, 1)])
