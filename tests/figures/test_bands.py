"""Errors, halves and bands: what a planted row changes, and what a wrong one cannot get past."""

import csv
import dataclasses

import pytest

from kernels.figures import bands, store
from kernels.figures.bands import Checked, band, half, spread
from kernels.machines.tpu.estimate import bands as estimated
from kernels.machines.tpu.estimate.bands import FEWEST

ONE = Checked(
    operator="matmul",
    implementation="xla",
    sizes={"m": 8, "k": 8, "n": 8},
    dtype="bfloat16",
    chip="v5e",
    clock="device",
    published_ms=2.0,
    estimated_ms=2.2,
    regime="XLA, compute",
    bound="compute",
    method="profile",
    model="0123456789",
    versions="jax 0.10.2, libtpu 0.0.42.1",
    date="2026-11-22",
)


def of(error, n=8, **more):
    sizes = {"m": n, "k": 8, "n": 8}
    known = {"sizes": sizes, "estimated_ms": 2.0 * (1 + error)} | more
    return dataclasses.replace(ONE, **known)


def rows(wanted, count, *errors):
    """As many rows of a half as there are errors."""
    found, n = [], 0
    while len(found) < count:
        n += 1
        row = of(errors[len(found) % len(errors)], n)
        found += [row] if row.half == wanted else []
    return found


# --- the rule for a tie ---------------------------------------------------------------------------


def test_a_tie_is_where_the_ranges_overlap():
    off_by = estimated.Band("v5e", "XLA, compute", -0.2, 0.1, 9)  # may take 1.25 times as long
    exact = estimated.Band("v5e", "Pallas, compute", 0.0, 0.0, 9)
    assert estimated.ahead((1.0, 1.2), (exact, exact)) == 0
    assert estimated.ahead((1.2, 1.0), (exact, exact)) == 1
    assert estimated.ahead((1.0, 1.2), (off_by, exact)) is None
    assert estimated.ahead((1.0, 1.3), (off_by, exact)) == 0
    assert estimated.ahead((1.3, 1.0), (exact, off_by)) == 1
    assert estimated.ahead((1.0, 1.3), (exact, off_by)) == 0  # at least 1.3 / 1.1
    assert estimated.ahead((1.0, 1.05), (exact, off_by)) is None
    assert estimated.ahead((1.0, 9.0), (exact, None)) is None


# --- halves ---------------------------------------------------------------------------------------


def test_halves_are_by_a_hash_of_operator_and_sizes_alone():
    for more in (
        {"implementation": "pallas"},
        {"chip": "v6e"},
        {"dtype": "int8"},
        {"options": {"causal": True}},
        {"tuning": {"block": 128}},
    ):
        assert dataclasses.replace(ONE, **more).half == ONE.half
    assert half(dataclasses.replace(ONE, sizes={"n": 8, "k": 8, "m": 8})) == ONE.half
    drawn = [of(0.0, n).half for n in range(1, 401)]
    assert 160 < drawn.count("fit") < 240 and set(drawn) == set(bands.HALVES)


def test_no_stored_row_is_in_two_halves():
    found = {}
    for row in bands.read():
        found.setdefault((row.operator, row.sizes), set()).add(row.half)
    assert all(len(halves) == 1 for halves in found.values())


# --- a row and its file ---------------------------------------------------------------------------


def test_an_error_is_relative_and_has_a_sign():
    assert of(0.25).error == pytest.approx(0.25) and of(-0.5).error == pytest.approx(-0.5)
    wall = dataclasses.replace(ONE, clock="wall", estimated_ms=2.2, launch_ms=0.2)
    assert wall.error == pytest.approx(0.1) and wall.chip_ms == pytest.approx(2.0)
    assert dataclasses.replace(ONE, estimated_ms=None, reason="refused").error is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clock": "sun"}, "clock is 'sun'; accepted: device, wall"),
        ({"published_ms": 0.0}, "published_ms is 0.0; accepted: more than 0"),
        ({"estimated_ms": None}, "reason is empty; accepted: why there is no estimate"),
    ],
)
def test_a_row_that_cannot_be_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(ONE, **change)


def test_what_is_kept_comes_back_and_a_newer_row_replaces_an_older_one(tmp_path):
    file = tmp_path / "validation.csv"
    refused = of(0.0, 9, estimated_ms=None, reason="no estimate in 60 s")
    bands.add([ONE, refused], file)
    assert {row.key: row for row in bands.read(file)} == {ONE.key: ONE, refused.key: refused}
    bands.add([of(0.5)], file)
    assert sorted(row.error is None for row in bands.read(file)) == [False, True]
    assert {row.error for row in bands.read(file)} == {None, 0.5}


@pytest.mark.parametrize(
    ("column", "wrong"),
    [("error", "0.000000"), ("half", {"fit": "test", "test": "fit"}[ONE.half])],
)
def test_a_planted_wrong_row_is_refused(tmp_path, column, wrong):
    file = tmp_path / "validation.csv"
    bands.add([ONE], file)
    with open(file, newline="") as opened:
        (row,) = csv.DictReader(opened)
    with open(file, "w", newline="") as opened:
        writer = csv.DictWriter(opened, row)
        writer.writeheader()
        writer.writerow(row | {column: wrong})
    with pytest.raises(ValueError, match=f"the {column} of matmul .* is {wrong}"):
        bands.read(file)


# --- regimes and bands ----------------------------------------------------------------------------


def test_a_band_is_the_middle_of_the_test_half():
    errors = [k / 100 for k in range(-10, 11)]
    found = band("v5e", "XLA, compute", rows("test", 21, *errors))
    assert (found.low, found.high, found.rows) == (pytest.approx(-0.08), pytest.approx(0.08), 21)
    assert found.text == "−7 … +9 %"
    low, high = found.around(1.0)
    assert low == pytest.approx(1 / 1.08) and high == pytest.approx(1 / 0.92)


def test_a_band_follows_its_rows():
    """A row planted in the test half moves it; one in the half that was fitted to does not."""
    known = rows("test", 20, 0.0)
    planted = rows("test", 30, 1.0)[20:]
    assert band("v5e", "XLA, compute", known).high == pytest.approx(0.0)
    assert band("v5e", "XLA, compute", known + planted).high == pytest.approx(1.0)
    assert band("v5e", "XLA, compute", known + rows("fit", 30, 1.0)) == band(
        "v5e", "XLA, compute", known
    )


def test_without_measurements_there_is_no_band():
    few = rows("test", FEWEST - 1, 0.1)
    assert band("v5e", "XLA, compute", few) is None
    assert band("v6e", "XLA, compute", rows("test", 20, 0.1)) is None
    assert band("v5e", "XLA, HBM", rows("test", 20, 0.1)) is None
    refused = [dataclasses.replace(r, estimated_ms=None, reason="?") for r in rows("test", 9, 0)]
    assert band("v5e", "XLA, compute", refused) is None


def test_the_bands_are_those_of_the_stored_rows():
    known = bands.read()
    assert known
    for chip, name in {(row.chip, row.regime) for row in known}:
        errors = [
            row.error
            for row in known
            if (row.chip, row.regime, row.half) == (chip, name, "test") and row.error is not None
            if row.launch_ms <= 0.5 * row.published_ms
        ]
        found = band(chip, name, known)
        assert found == estimated.band(chip, name)  # as the estimator reads the same file
        assert (found is None) == (len(errors) < FEWEST)
        if found:
            inside = sum(found.low - 1e-9 <= error <= found.high + 1e-9 for error in errors)
            assert 0.6 <= inside / len(errors) <= 1


def test_an_installed_package_reads_its_own_copy(tmp_path, monkeypatch):
    own = tmp_path / "validation.csv"
    monkeypatch.setattr(store, "RESULTS", tmp_path / "nowhere")
    monkeypatch.setattr(bands, "path", lambda: own)
    assert bands.read() == []
    bands.add([ONE], own)
    assert bands.read() == [ONE]
    store.RESULTS.mkdir()
    bands.add([of(0.5)])
    assert [row.error for row in bands.read()] == [0.5]


def test_spreads():
    found = spread([of(0.1), of(-0.1, 9), of(0.3, 10)])
    assert (found.rows, found.median, found.bias) == (
        3,
        pytest.approx(0.1),
        pytest.approx(0.1),
    )
    assert found.most == pytest.approx(0.26)
    assert spread([]) is None
