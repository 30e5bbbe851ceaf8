"""Records: one figure each, one kind a file."""

import dataclasses

import pytest

from kernels.bench import records
from kernels.bench.records import KINDS, Record

ONE = Record(
    "matmul", "pallas", "tiny", "estimated", 1.5, "ms", "v5e", "jax 0.10.2", "2026-01-01", "profile"
)


def test_round_trip(tmp_path):
    other = dataclasses.replace(ONE, workload="8×8, with a comma", value=2.0)
    records.write(tmp_path / "x.csv", [other, ONE])
    assert records.read(tmp_path / "x.csv") == [other, ONE]
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_a_newer_record_replaces_an_older_one(tmp_path):
    path = tmp_path / "x.csv"
    records.add(path, [ONE])
    records.add(path, [dataclasses.replace(ONE, value=3.0, date="2026-02-02")])
    [kept] = records.read(path)
    assert kept.value == 3.0


def test_kinds_are_never_mixed(tmp_path):
    published = dataclasses.replace(ONE, kind="published")
    with pytest.raises(ValueError, match="one kind"):
        records.write(tmp_path / "x.csv", [ONE, published])
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="kind is 'guessed'"):
        dataclasses.replace(ONE, kind="guessed")
    with pytest.raises(ValueError, match="source"):
        dataclasses.replace(published, source="")


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns"):
        records.read(tmp_path / "x.csv")
    assert records.read(tmp_path / "none.csv") == []


FIGURES = sorted(p for p in records.RESULTS.glob("*.csv") if p.name != "status.csv")


@pytest.mark.parametrize("path", FIGURES, ids=lambda p: p.name)
def test_results(path):
    found = records.read(path)
    assert found and {r.kind for r in found} <= set(KINDS)
    assert len({r.key for r in found}) == len(found)
    for record in found:
        assert record.operator and record.unit and record.chip and record.date and record.source
