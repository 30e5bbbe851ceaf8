"""python -m kernels knows NKI's entries."""

import dataclasses
from pathlib import Path

from commands import run

from kernels import __version__, figures
from kernels.figures import store


def test_estimate_says_what_binds():
    result = run("estimate", "giou/nki", "--workload", "ragged", "--chip", "trn1")
    assert result.exit_code == 0
    assert "not measured" in result.output and "trn1" in result.output
    assert "Vector" in result.output and "µs" in result.output


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
