"""make canary takes what is not pinned, says what changed and what fails, and ends in time."""

import sys
import time
from pathlib import Path

import canary
import install
import pytest
import pythons
from commands import process

ROOT = Path(__file__).resolve().parent.parent


def test_the_newest_python_that_the_releases_take_is_taken(monkeypatch):
    here = [("/a/python3.13", "3.13.0"), ("/a/python3.11", "3.11.7")]
    monkeypatch.setattr(pythons, "supported_pythons", lambda: here)
    assert canary.find() == ("/a/python3.13", "3.13.0")
    monkeypatch.setattr(pythons, "supported_pythons", lambda: here[1:])
    assert canary.find() is None
    monkeypatch.setattr(sys, "argv", ["canary.py"])
    assert canary.main() == 3


def test_where_it_cannot_run_it_says_so_by_name(monkeypatch, capsys):
    def install_nothing(*arguments, **options):
        assert options["newest_releases"]
        raise install.Stop("the package index cannot be reached")

    monkeypatch.setattr(canary, "find", lambda wanted: ("python3.13", "3.13.0"))
    monkeypatch.setattr(install, "install", install_nothing)
    monkeypatch.setattr(sys, "argv", ["canary.py"])
    assert canary.main() == 2
    assert "NOT RUN: make canary\n!!! the newest releases could not" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("report", "status"),
    [
        ({"failures": [], "not_reached": 3, "total": 9}, 0),
        ({"failures": [], "not_reached": 8, "total": 9}, 4),
        ({"failures": [["test_it", "wrong"]], "not_reached": 8, "total": 9}, 1),
        (None, 1),
    ],
)
def test_its_status_tells_what_came_of_it(monkeypatch, report, status):
    if report:
        report["count"] = {"passed": 1, "failed": len(report["failures"]), "skipped": 0}
    monkeypatch.setattr(canary, "find", lambda wanted: (sys.executable, "3.13.0"))
    monkeypatch.setattr(install, "install", lambda *arguments, **options: None)
    monkeypatch.setattr(canary, "releases", lambda python: {})
    monkeypatch.setattr(canary, "run", lambda python, seconds: report)
    monkeypatch.setattr(sys, "argv", ["canary.py"])
    assert canary.main() == status


def test_what_is_newest_is_not_pinned_and_everything_else_is(tmp_path):
    path = install.constraints(tmp_path, ["dev", "tpu"], newest=True)
    names = {line.split("==")[0] for line in path.read_text().splitlines() if "==" in line}
    assert not names & set(install.NEWEST) and {"pytest", "hypothesis"} <= names
    pinned = (ROOT / "constraints.txt").read_text()
    assert all(f"\n{name}==" in pinned for name in install.NEWEST)


def test_releases_are_compared_with_the_pins_for_that_python():
    found = canary.releases(sys.executable)
    assert "jax" in found and all(len(each) == 2 for each in found.values())
    assert canary.changes({"jax": ("0.12.0.1", "0.13.0"), "numpy": ("2.4", "2.4")}) == [
        "  jax 0.12.0.1 → 0.13.0"
    ]
    assert canary.changes({"jax": ("1", "1")}) == ["  nothing: the pins are the newest releases"]


CHECKS = """
import pytest

def test_good():
    pass

def test_skipped():
    pytest.skip("a tool is missing")

def test_broken():
    assert 1 + 1 == 3, "arithmetic"

@pytest.mark.parametrize("n", range(3))
def test_more(n):
    pass
"""


@pytest.fixture
def checks(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(CHECKS)
    return [str(path), "--rootdir", str(tmp_path), "--confcutdir", str(tmp_path)]


@pytest.mark.full
def test_each_failing_check_is_told_in_a_line(checks):
    report = canary.run(sys.executable, 60, checks)
    assert report["count"] == {"passed": 4, "failed": 1, "skipped": 1}
    lines = canary.verdict(report)
    assert lines[0] == "What fails on them:"
    assert lines[1].startswith("  test_it.py::test_broken: AssertionError: arithmetic")
    assert lines[-1] == "4 checks passed, 1 failed, 1 skipped"


@pytest.mark.full
def test_it_ends_in_time_and_says_what_it_did_not_come_to(checks, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    started = time.monotonic()
    report = canary.run(sys.executable, 0, checks)
    assert report["not_reached"] == report["total"] == 6 and not report["failures"]
    assert canary.verdict(report)[-1].endswith("6 of 6 were not reached in time")
    assert time.monotonic() - started < canary.GRACE


def test_what_it_runs_is_there():
    for name in canary.CHECKS:
        assert (ROOT / name).exists(), name
    done = process("make", "-n", "canary", cwd=ROOT)
    assert "tools/canary.py" in done.stdout
