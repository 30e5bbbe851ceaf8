"""python -m kernels knows NKI's entries."""

import dataclasses
from pathlib import Path

import pytest
from commands import run

from kernels import __version__, figures
from kernels.figures import store


def test_estimate_says_what_binds():
    result = run("estimate", "giou/nki", "--workload", "ragged", "--chip", "trn1")
    assert result.exit_code == 0
    assert "not measured" in result.output and "trn1" in result.output
    assert all(words in result.output for words in ("Vector", "µs", "−24 … +44 %"))


def test_estimates_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    assert run("estimate", "giou/neuronxcc", "--figures", "--record").exit_code == 0
    (record,) = figures.read("estimated.csv")
    assert (record.operator, record.implementation) == ("giou", "neuronxcc")
    assert (record.kind, record.unit, record.chip) == ("estimated", "ms", "inf2")
    assert record.versions == f"kernels {__version__}" and "list schedule" in record.method
    again = dataclasses.replace(record, date="today")
    (kept,) = (
        r
        for r in figures.read(Path(__file__).parents[3] / "results" / "estimated.csv")
        if r.identity == record.identity
    )
    assert dataclasses.replace(kept, date="today") == again  # the book's figure is today's


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--chip", "v5e"), "chip is 'v5e'; accepted: inf2, trn1"),
        (("--workload", "huge"), "workload is 'huge'; accepted: tiny"),
    ],
)
def test_a_wrong_argument_is_named(words, says):
    result = run("estimate", "giou/nki", *words)
    assert result.exit_code == 2 and says in result.output
