"""Estimates drawn over measurements: each row once, the halves told apart."""

import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

from test_comparisons import of  # noqa: E402

from validation import scatter  # noqa: E402

pytestmark = pytest.mark.usefixtures("closed")


def test_predicted_over_measured():
    rows = [of(0.1, m) for m in range(1, 30)]
    axes = scatter.predicted(rows)
    test = sum(row.half == "test" for row in rows)
    assert axes.get_title() == f"{test} test rows, half of them within 10%"
    assert "measured" in axes.get_xlabel() and "estimated (ms)" in axes.get_ylabel()
    line = axes.get_lines()[0]
    assert (line.get_xdata() == line.get_ydata()).all()
    drawn = [point for each in axes.collections for point in each.get_offsets().tolist()]
    assert len(drawn) == len(rows) and all(y == pytest.approx(1.1 * x) for x, y in drawn)
    with pytest.raises(ValueError, match="without an estimate"):
        scatter.predicted([of(0.0, estimated_ms=None, reason="refused")])


def test_a_panel_for_each_chip_and_regime():
    rows = [of(0.1), of(0.1, chip="v6e"), of(0.1, 9, regime="Pallas, HBM")]
    figures = scatter.predictions(rows)
    titles = [axes.get_title().partition("\n")[0] for each in figures for axes in each.axes]
    assert titles == ["v5e: Pallas, HBM", "v5e: XLA, compute", "v6e: XLA, compute"]
    for axes in (axes for each in figures for axes in each.axes):
        ticks = axes.get_xticklabels(minor=True) + axes.get_yticklabels(minor=True)
        assert not any(tick.get_text() for tick in ticks)  # of one decade they would overlap
    with pytest.raises(ValueError, match="without an estimate"):
        scatter.predictions([])
