"""Brackets for GPUs beside published times: the stored rows are true, and so is what is told."""

import dataclasses

import pytest

from kernels.figures import gpu
from kernels.machines.gpu import toolchain
from kernels.machines.gpu.estimate import IN_LINE
from kernels.machines.optional import available

ROWS = gpu.read()


def test_the_constants_are_those_that_the_fitting_half_gives():
    for who in ("pallas", "xla"):
        assert gpu.fitted(ROWS, who) == pytest.approx(IN_LINE[who], abs=0.006)
    moved = [  # what lies in the other half changes nothing
        dataclasses.replace(row, published_ms=9 * row.published_ms) if row.half == "test" else row
        for row in ROWS
    ]
    assert gpu.fitted(moved, "pallas") == gpu.fitted(ROWS, "pallas")
    with pytest.raises(ValueError, match="who is 'nobody'"):
        gpu.fitted(ROWS, "nobody")


def test_most_times_lie_inside_narrow_brackets():
    test = [row for row in ROWS if row.half == "test"]
    found = gpu.held(test)
    assert found.rows >= 60 and found.reached
    slower = [dataclasses.replace(row, published_ms=3 * row.published_ms) for row in test]
    assert not gpu.held(slower).reached, "a bracket that holds everything would say nothing"
    faster = [dataclasses.replace(row, published_ms=row.published_ms / 3) for row in test]
    assert not gpu.held(faster).reached


def test_what_misses_the_bar_is_named():
    whole = "\n".join(gpu.told(ROWS))
    for line in gpu.lines(ROWS):
        assert (line[0] in whole) == any(
            other[0] == line[0] and other[-1] == "missed" for other in gpu.lines(ROWS)
        )


def test_rows_are_read_as_they_were_written(tmp_path):
    file = tmp_path / gpu.FILE
    gpu.write(ROWS, file)
    assert gpu.read(file) == ROWS and all(row.source for row in ROWS)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(",fit,", ",test,", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="the half of"):
        gpu.read(file)
    file.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"the columns of {gpu.FILE}"):
        gpu.read(file)


def test_a_row_that_nothing_here_ran_is_refused():
    row = next(row for row in ROWS if row.operator == "sgemm")
    with pytest.raises(ValueError, match="chip is 'RTX A6000'; accepted: h100, b200"):
        gpu.program(row)


@pytest.mark.slow
@pytest.mark.skipif(not (toolchain.available() and available("tokamax")), reason="no tokamax")
def test_a_stored_row_is_found_again():
    for sort in ("attention, Pallas through Triton", "normalisation, XLA"):
        row = next(row for row in ROWS if row.sort == sort)
        found = gpu.found(row, row.published_ms, row.source)
        assert (
            found.cells()[: gpu.COLUMNS.index("versions")]
            == row.cells()[: gpu.COLUMNS.index("versions")]
        )
