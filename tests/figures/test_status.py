"""What a rung found is remembered by each process, and read as one."""

import dataclasses
import platform

import pytest
import typer

from kernels.figures import status, store
from kernels.proof.catalog import OPERATORS
from kernels.proof.ladder import Check


def check(status="passed", message="", rung="interpret", name="xla"):
    return Check("iota", name, rung, "tiny: n=8 int32", status, message, seconds=0.5)


def test_processes_write_apart_and_are_read_together(tmp_path):
    status.note([check(), check()], "gw0", tmp_path)
    status.note([check("skipped", "no g++")], "gw1", tmp_path)
    status.note([check(name="pallas")], "gw1", tmp_path)
    found = status.here(tmp_path)
    assert set(found) == {("iota", "xla", "interpret"), ("iota", "pallas", "interpret")}
    assert len(list((tmp_path / status.PARTS).iterdir())) == 2 and status.results(tmp_path) == found


def test_the_worst_is_told_and_counted():
    found = status.summary([check(), check("skipped", "later"), check("failed", "is nan")])
    assert (found.outcome, found.passed, found.failed, found.skipped) == ("failed", 1, 1, 1)
    assert found.message == "is nan" and found.seconds == 1.5
    assert status.summary([check(), check("skipped", "why")]).outcome == "skipped"
    noted = status.summary([check("partial", "lowered only")])
    assert (noted.outcome, noted.message, noted.partial) == ("partial", "lowered only", 1)


def test_a_run_here_replaces_what_came_along(tmp_path):
    old = {"date": "2020-01-01 00:00"}
    kept = [status.summary([check("failed", "old")]), status.summary([check(rung="compile")])]
    kept = [dataclasses.replace(each, **old) for each in kept]
    store.write(tmp_path / "results" / status.KEPT, kept)
    status.note([check()], "main", tmp_path)
    found = status.results(tmp_path)
    assert found["iota", "xla", "interpret"].outcome == "passed"
    assert found["iota", "xla", "compile"].date == "2020-01-01 00:00"


def test_only_a_whole_run_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(status, "ROOT", tmp_path)
    status.note([check()], "gw0", tmp_path)
    with pytest.raises(typer.Exit):
        status.main()
    assert "Not a whole run" in capsys.readouterr().out and not (tmp_path / "results").exists()
    monkeypatch.setattr(status, "claims", lambda: [("iota", "xla", "interpret")])
    status.main()
    assert len(status._read(tmp_path / "results" / status.KEPT)) == 1


def test_a_rung_that_is_not_there_says_why():
    nms, pad = OPERATORS["nms"], OPERATORS["brick_pad"]
    assert status.why_empty(nms["xla"], "simulate").startswith("no such rung: there is no simul")
    assert status.why_empty(pad["torch"], "compile").startswith("no such rung: PyTorch compiles")
    assert status.why_empty(nms["pallas"], "compile").startswith("not run")
    assert "--rung measure" in status.why_empty(nms["pallas"], "measure")


def test_versions_are_compared_with_the_pinned_ones(tmp_path):
    pins = tmp_path / "constraints.txt"
    pins.write_text(
        "# xla: jax==1\n\nnumpy==0.0.1  # old\nno-such-thing==2; python_version > '3'\n"
        "no-such-thing==1; python_version <= '3'\n"
    )
    (numpy, pinned, installed), missing = status.packages(pins)
    assert (numpy, pinned) == ("numpy", "0.0.1") and installed not in ("", pinned)
    assert missing == ("no-such-thing", "2", "")
    # No name of this machine is kept.
    assert platform.node() not in status.machine() and "core" in status.machine()


def test_what_came_along_is_of_this_catalog():
    """Findings of entries that are gone, or of rungs that nobody claims, would never be seen."""
    kept = status._read(status.ROOT / "results" / status.KEPT)
    assert {each.identity for each in kept} <= set(status.claims())
    assert all(each.outcome != "failed" for each in kept)
