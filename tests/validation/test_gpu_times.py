"""Brackets and figures for GPUs beside published times: the rows are true, and what is told."""

import dataclasses

import pytest

from kernels.figures import store
from kernels.machines.gpu import toolchain
from kernels.machines.gpu.estimate import BANDS, FACTORS, IN_LINE
from kernels.machines.optional import available
from validation import gpu_programs, gpu_rates, gpu_times

ROWS = gpu_times.read()
MOVED = [  # what lies in the other half changes nothing that is fitted
    dataclasses.replace(row, published_ms=9 * row.published_ms) if row.half == "test" else row
    for row in ROWS
]


def test_the_constants_are_those_that_the_fitting_half_gives():
    for who in ("pallas", "xla"):
        assert gpu_times.fitted(ROWS, who) == pytest.approx(IN_LINE[who], abs=0.006)
    assert gpu_times.fitted(MOVED, "pallas") == gpu_times.fitted(ROWS, "pallas")
    with pytest.raises(ValueError, match="who is 'nobody'"):
        gpu_times.fitted(ROWS, "nobody")


def test_factors_and_bands_are_those_that_the_fitting_half_gives():
    factors = gpu_rates.factors(gpu_rates.timed(MOVED, "fit"))
    assert factors == pytest.approx(FACTORS["h100"], rel=0.02)
    bands = gpu_rates.bands(MOVED)
    assert bands.keys() == BANDS.keys()
    for kind, band in bands.items():
        assert band[:2] == pytest.approx(BANDS[kind][:2], abs=0.02) and band[2:] == BANDS[kind][2:]


def test_figures_are_as_near_as_the_page_says_on_the_half_that_nobody_fitted():
    test = gpu_rates.timed(ROWS, "test")
    kept = gpu_rates.missed(test)
    assert kept.rows >= 130 and kept.median <= 0.15 and kept.most <= 0.40
    assert abs(kept.bias) <= 0.04 and 0.7 <= kept.held <= 0.9
    assert f"{kept.rows} rows" in gpu_rates.summary(ROWS)
    for factor in (1.5, 1 / 1.5):  # a chip of another speed is told
        wrong = [dataclasses.replace(row, published_ms=factor * row.published_ms) for row in test]
        assert gpu_rates.missed(wrong).median > 0.25 and gpu_rates.missed(wrong).held < 0.6


def test_most_times_lie_inside_narrow_brackets():
    test = [row for row in ROWS if row.half == "test"]
    found = gpu_times.held(test)
    assert found.rows >= 60 and found.reached
    slower = [dataclasses.replace(row, published_ms=3 * row.published_ms) for row in test]
    assert not gpu_times.held(slower).reached, "a bracket that holds everything would say nothing"
    faster = [dataclasses.replace(row, published_ms=row.published_ms / 3) for row in test]
    assert not gpu_times.held(faster).reached


def test_what_misses_the_bar_is_named():
    whole = gpu_times.summary(ROWS)
    missed = {line[0] for line in gpu_times.lines(ROWS) if line[-1] == "missed"}
    assert all((line[0] in whole) == (line[0] in missed) for line in gpu_times.lines(ROWS))


def test_rows_are_read_as_they_were_written(tmp_path):
    file = tmp_path / gpu_times.FILE
    store.write(file, ROWS)
    assert gpu_times.read(file) == ROWS and all(row.source for row in ROWS)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(",fit,", ",test,", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="the half of"):
        gpu_times.read(file)
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="the header is a, b"):
        gpu_times.read(file)


def test_a_row_that_nothing_here_ran_is_refused():
    row = next(row for row in ROWS if row.operator == "sgemm")
    with pytest.raises(ValueError, match="chip is 'RTX A6000'; accepted: h100, b200"):
        gpu_programs.program(row)


@pytest.mark.slow
@pytest.mark.skipif(not (toolchain.available() and available("tokamax")), reason="no tokamax")
def test_a_stored_row_is_found_again():
    sorts = "attention, Pallas through Triton", "normalisation, XLA", "attention in chunks, XLA"
    for sort in sorts:
        row = next(row for row in ROWS if row.sort == sort)
        found = gpu_programs.bracketed(row, row.published_ms, row.source)
        end = row.COLUMNS.index("versions")
        assert found.cells()[:end] == row.cells()[:end]
