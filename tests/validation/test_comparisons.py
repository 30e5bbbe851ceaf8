"""Errors, halves and bands: what a planted row changes, and what a wrong one cannot get past."""

import csv
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from refused import refuses

from kernels import optional
from kernels.figures import store
from kernels.figures.schema import LATE
from kernels.machines.base import Seconds
from kernels.machines.tpu.estimate import bands
from kernels.machines.tpu.estimate.bands import FEWEST, ahead
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload
from kernels.yours import weighing
from validation import comparisons, nms_rounds
from validation.comparisons import Comparison, spread
from validation.nms_rounds import RoundsEstimate, block_of, model, rounds

ONE = Comparison(operator="matmul", implementation="xla", sizes={"m": 8, "k": 8, "n": 8},
    dtype="bfloat16", chip="v5e", clock="device", published_ms=2.0, estimated_ms=2.2,
    regime="XLA, compute", bound="compute", method="profile", model="0123456789",
    versions="jax 0.10.2, libtpu 0.0.42.1", date="2026-11-22")  # fmt: skip


def of(error, n=8, **more):
    sizes = {"m": n, "k": 8, "n": 8}
    return dataclasses.replace(ONE, **{"sizes": sizes, "estimated_ms": 2.0 * (1 + error)} | more)


def rows(wanted, count, *errors):
    """As many rows of a half as there are errors."""
    found, n = [], 0
    while len(found) < count:
        n += 1
        row = of(errors[len(found) % len(errors)], n)
        found += [row] if row.half == wanted else []
    return found


@pytest.fixture
def band(tmp_path):
    """The band that follows from some rows, as the estimator reads them."""

    def made_of(known, chip="v5e", regime="XLA, compute"):
        file = tmp_path / "validation.csv"
        store.write(file, known)
        return bands.band(chip, regime, file)

    return made_of


def test_a_tie_is_a_lead_within_the_error_of_ratios():
    band = bands.Band("v5e", bands.RATIO, -0.2, 0.5, 9)  # XLA over the kernel: 1 / 1.5 to 1 / 0.8
    assert ahead((1.49, 1.0), band) is None and ahead((1.51, 1.0), band) == 1
    assert ahead((0.81, 1.0), band) is None and ahead((0.79, 1.0), band) == 0
    assert ahead((9.0, 1.0), None) is None


def pairs(error, xla=0.0, half="test", first=0, count=10):
    """XLA's row and a kernel's, with their errors, for as many problems of a half."""
    fast = {"published_ms": 4.0, "estimated_ms": 4.0 * (1 + xla)}
    kernel = {"implementation": "pallas", "regime": "Pallas, HBM"}
    problems = [n for n in range(1, 99) if of(0.0, n).half == half][first : first + count]
    return [row for n in problems for row in (of(xla, n, **fast), of(error, n, **kernel))]


@pytest.fixture
def ratio(tmp_path):
    def made_of(known):
        store.write(tmp_path / "ratios.csv", known)
        return bands.ratio_band("v5e", tmp_path / "ratios.csv")

    return made_of


def test_the_band_of_ratios_is_made_of_pairs_of_the_test_half(ratio):
    """An error that both sides share is none; a wrong kernel, and a wrong XLA, widen the band, but
    not where they were fitted to, nor where nobody timed the other side or a faster XLA stands."""
    known = pairs(0.3, 0.3)
    band = ratio(known)
    assert (band.low, band.high) == pytest.approx((0, 0)) and (band.chip, band.rows) == ("v5e", 10)
    wrong = pairs(0.0, 1.0, first=10, count=4)
    assert ratio(known + wrong).high == pytest.approx(1.0)
    assert ratio(known + pairs(1.0, first=10, count=4)).low == pytest.approx(-0.5)
    slow = {"implementation": "xla_chunked", "published_ms": 9.0, "estimated_ms": 99.0}
    slower = [dataclasses.replace(row, **slow) for row in known[::2]]
    fitted_to = pairs(0.0, 1.0, half="fit")
    for more in (fitted_to, wrong[::2], wrong[1::2], slower):
        assert ratio(known + more) == band
    assert ratio(known + [dataclasses.replace(r, published_ms=1.0) for r in slower]).high > 2


def test_few_problems_take_the_band_of_all_chips(ratio):
    few = pairs(0.1, count=FEWEST - 1)
    tunings = [dataclasses.replace(few[1], tuning={"bm": k}) for k in range(1, 6)]
    assert ratio(few + tunings) is None  # pairs enough, but of too few problems
    band = ratio(few + tunings + [dataclasses.replace(row, chip="v6e") for row in few[:2]])
    assert (band.chip, band.rows) == (bands.ALL, FEWEST + len(tunings))


def test_halves_are_by_a_hash_of_operator_and_sizes_alone():
    others = {"implementation": "pallas", "chip": "v6e", "dtype": "int8"}
    others |= {"options": {"causal": True}, "tuning": {"block": 128}}
    for more in ({name: value} for name, value in others.items()):
        assert dataclasses.replace(ONE, **more).half == ONE.half
    assert dataclasses.replace(ONE, sizes={"n": 8, "k": 8, "m": 8}).half == ONE.half
    drawn = [of(0.0, n).half for n in range(1, 401)]
    assert 160 < drawn.count("fit") < 240 and set(drawn) == set(comparisons.HALVES)


def test_an_error_is_relative_and_has_a_sign():
    assert of(0.25).error == pytest.approx(0.25) and of(-0.5).error == pytest.approx(-0.5)
    wall = dataclasses.replace(ONE, clock="wall", estimated_ms=2.2, launch_ms=0.2)
    assert wall.error == pytest.approx(0.1) and wall.chip_ms == pytest.approx(2.0)
    assert dataclasses.replace(ONE, estimated_ms=None, reason="refused").error is None


test_a_row_that_cannot_be_is_refused = refuses(
    lambda change: dataclasses.replace(ONE, **change),
    ({"clock": "sun"}, "clock is 'sun'; accepted: device, wall"),
    ({"published_ms": 0.0}, "published_ms is 0.0; accepted: more than 0"),
    ({"estimated_ms": None}, "reason is empty; accepted: why there is no estimate"),
)


def test_what_is_kept_comes_back_and_a_newer_row_replaces_an_older_one(tmp_path):
    file = tmp_path / "validation.csv"
    refused = of(0.0, 9, estimated_ms=None, reason="no estimate in 60 s")
    comparisons.add([ONE, refused], file)
    assert {row.key: row for row in comparisons.read(file)} == {ONE.key: ONE, refused.key: refused}
    comparisons.add([of(0.5)], file)
    assert {row.error for row in comparisons.read(file)} == {None, 0.5}


@pytest.mark.parametrize(
    ("column", "wrong"), [("error", "0.000000"), ("half", {"fit": "test", "test": "fit"}[ONE.half])]
)
def test_a_planted_wrong_row_is_refused(tmp_path, column, wrong):
    file = tmp_path / "validation.csv"
    comparisons.add([ONE], file)
    names, row = csv.reader(file.read_text().splitlines())
    row[names.index(column)] = wrong
    with open(file, "w", newline="") as opened:
        csv.writer(opened).writerows([names, row])
    with pytest.raises(ValueError, match=f"the {column} of matmul .* is {wrong}"):
        comparisons.read(file)


def test_a_band_is_made_of_the_test_half(band):
    found = band(rows("test", 21, *(k / 100 for k in range(-10, 11))))
    assert [found.low, found.high, found.rows] == pytest.approx([-0.088, 0.088, 21])  # of 22 gaps
    assert found.text.split(" (with libtpu 0.0.42.1, not")[0] == "−8 … +10 %"
    assert found.around(1.0) == pytest.approx((1 / 1.088, 1 / 0.912))


@pytest.mark.parametrize(("count", "share"), [(5, 4 / 6), (9, 0.8), (20, 0.8)])
def test_a_band_holds_its_share_of_rows_that_it_has_not_seen(band, count, share):
    """Of a lopsided distribution, which no rule was told; plain quantiles hold 0.53, 0.64, 0.72."""
    draw = np.random.default_rng(count).lognormal
    held = []
    for _ in range(150):
        made = band(rows("test", count, *draw(0, 0.3, count) - 1))
        unseen = draw(0, 0.3, 400) - 1
        held.append(np.mean((made.low <= unseen) & (unseen <= made.high)))
    assert np.mean(held) == pytest.approx(share, abs=0.03)


def test_a_band_follows_its_rows(band):
    """A row planted in the test half moves it; one in the half that was fitted to does not, nor
    one that is mostly launch."""
    known = rows("test", 20, 0.0)
    more = rows("test", 30, 1.0)[20:]
    assert band(known).high == pytest.approx(0.0)
    assert band(known + more).high == pytest.approx(1.0)
    assert band(known + rows("fit", 30, 1.0)) == band(known)
    launched = [dataclasses.replace(row, clock="wall", launch_ms=1.1) for row in more]
    assert band(known + launched) == band(known)


@pytest.mark.parametrize("kind", ["XLA, compute", bands.RATIO])
def test_a_band_is_that_of_the_compiler_in_use_or_says_whose_it_is(kind, tmp_path):
    """Rows of another compiler, planted beside, move no band of this one."""
    file, older, newer = tmp_path / "validation.csv", "libtpu 0.0.42.1", "libtpu 0.0.50"
    known = pairs(0.0) if kind == bands.RATIO else rows("test", 20, 0.0)
    slower = lambda row: row.estimated_ms * (1.5 if row.implementation == "xla" else 1.0)
    more = {"versions": f"jax 0.12, {newer}"}
    other = [dataclasses.replace(row, estimated_ms=slower(row), **more) for row in known]
    store.write(file, known + other[: FEWEST - 1])  # both stand in the file
    ask = lambda compiler: bands.band("v5e", kind, file, compiler).text
    assert ask(newer) == f"+0 … +0 % (with {older}, not the compiler in use)"
    comparisons.add(other, file)
    assert (ask(newer), ask(older)) == ("−33 … −33 %", "+0 … +0 %")
    assert comparisons.compilers(file) == [older, newer]
    assert [len(comparisons.read(file, name)) for name in ("", newer, "libtpu 1")] == [20, 20, 0]
    comparisons.add(rows("test", 21, 0.0)[20:], file)
    assert {row.error for row in comparisons.read(file)} == {0.0}  # of the compiler with most rows


def test_a_verdict_says_whose_error_of_ratios_it_carries(monkeypatch):
    known = bands.Band("v5e", bands.RATIO, -0.1, 0.1, 9, "libtpu 0.0.42.1")
    monkeypatch.setattr(bands, "ratio_band", lambda chip, compiler: {"libtpu 2": known}[compiler])
    compiled = SimpleNamespace(memory=SimpleNamespace(total=1))
    one = SimpleNamespace(compiled=compiled, bound="HBM", band_text="none", libtpu="2")
    one.seconds, answer = Seconds(1e-3), {"chip": "v5e", "hbm_limit": 2}
    weighing._compare(answer, one, SimpleNamespace(seconds=Seconds(2e-3)))
    assert answer["ahead"] == "kernel"
    assert answer["band"] == "none; that of the ratio is with libtpu 0.0.42.1"


def test_without_measurements_there_is_no_band(band):
    many = rows("test", 20, 0.1)
    assert band(many[: FEWEST - 1]) is None
    assert bands.none(FEWEST - 1) == "4 measurements of this kind, too few for a band"
    assert bands.none(1)[:22] == "1 measurement of this " and bands.none(0) == bands.NONE
    assert band(many, chip="v6e") is None and band(many, regime="XLA, HBM") is None
    assert band([dataclasses.replace(r, estimated_ms=None, reason="?") for r in many]) is None


def test_an_installed_package_reads_its_own_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(bands, "__file__", str(tmp_path / "a/b/c/kernels/bands.py"))
    own = tmp_path / "a/b/c/kernels/validation.csv"
    assert bands.path() != own and bands.band("v5e", "XLA, compute") is None
    store.write(own, rows("test", 20, 0.0))
    assert bands.path() == own and bands.band("v5e", "XLA, compute").rows == 20


def test_spreads():
    found = spread([of(0.1), of(-0.1, 9), of(0.3, 10)])
    assert (found.rows, found.median, found.bias) == (3, pytest.approx(0.1), pytest.approx(0.1))
    assert found.most == pytest.approx(0.26) and spread([]) is None


WORKLOADS = OPERATORS["nms"].workloads


def drawn(kind, n):
    return WORKLOADS.arguments(Workload("drawn", {"n": n}, values=kind))


@pytest.mark.parametrize(
    ("kind", "n", "block", "count"),
    [
        ("chain", 128, None, 128),  # a round for each box
        ("chain", 128, 128, 128),
        ("chain", 300, 128, 300),  # blocks count together
        ("disjoint", 300, 128, 3),  # each finds nothing changed
        ("disjoint", 300, None, 1),
        ("identical", 300, 128, 2 + 1 + 1),
        ("disjoint", 300, block_of("xla_blocks", 300), 1),
    ],
)
def test_rounds_are_counted(kind, n, block, count):
    assert rounds(*drawn(kind, n), 0.5, block=block) == count


def test_no_boxes_need_no_round_and_a_row_at_a_time_is_not_modelled():
    assert rounds(np.ones((0, 4), np.float32), np.ones(0, np.float32), 0.5, block=128) == 0
    with pytest.raises(ValueError, match="accepted: xla_matrix, xla_blocks, pallas"):
        model(WORKLOADS["tiny"], "xla")


@pytest.mark.slow
@pytest.mark.skipif(not optional.available("libtpu"), reason="needs libtpu, the TPU's compiler")
def test_a_modelled_time():
    (found,) = model(WORKLOADS["prime"])
    assert found.further > 0 and found.fixed > 4 * found.further  # four blocks, a round in each
    assert found.rounds > 4 and found.most == 509
    assert found.seconds == pytest.approx(found.fixed + (found.rounds - 4) * found.further)
    assert found.fixed < found.seconds < found.worst
    assert found.record().kind == "estimated" and "rounds" in found.record().method


def test_a_time_whose_profile_was_late_is_not_kept(monkeypatch):
    kept = []

    def modelled(workload, implementation, chips):
        late = f"; no static profile: the compiler {LATE} nms" * (workload.name == "n1024")
        estimate = SimpleNamespace(method=f"schedule{late}")
        return [RoundsEstimate(implementation, workload, "v5e", 9, 99, 1e-3, 1e-6, estimate)]

    monkeypatch.setattr(nms_rounds, "model", modelled)
    monkeypatch.setattr(nms_rounds, "add", lambda file, records: kept.extend(records))
    timely = {e.workload.name: timely for e, timely in nms_rounds.record(["pallas"], ["v5e"])}
    assert timely == {w.name: w.name != "n1024" for w in WORKLOADS.figures}
    assert [record.workload for record in kept] == [name for name in timely if timely[name]]


@pytest.fixture
def scatter(closed):
    """What draws, where matplotlib is there to draw."""
    pytest.importorskip("matplotlib").use("agg")
    from validation import scatter

    return scatter


def test_predicted_over_measured(scatter):
    """Each row once, the halves told apart."""
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


def test_a_panel_for_each_chip_and_regime(scatter):
    rows = [of(0.1), of(0.1, chip="v6e"), of(0.1, 9, regime="Pallas, HBM")]
    figures = scatter.predictions(rows)
    titles = [axes.get_title().partition("\n")[0] for each in figures for axes in each.axes]
    assert titles == ["v5e: Pallas, HBM", "v5e: XLA, compute", "v6e: XLA, compute"]
    for axes in (axes for each in figures for axes in each.axes):
        ticks = axes.get_xticklabels(minor=True) + axes.get_yticklabels(minor=True)
        assert not any(tick.get_text() for tick in ticks)  # of one decade they would overlap
    with pytest.raises(ValueError, match="without an estimate"):
        scatter.predictions([])
