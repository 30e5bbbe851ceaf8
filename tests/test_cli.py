"""python -m kernels: tables to read, exit codes for CI."""

import errno
import re
import shlex
from pathlib import Path
from unittest.mock import Mock

import pytest
from commands import needs_libtpu, run

from kernels import ladder
from kernels.proof.catalog import OPERATORS


def test_list_shows_every_entry():
    result = run("list")
    assert result.exit_code == 0
    for operator in OPERATORS.values():
        assert re.search(rf"^{operator.name} +{re.escape(operator.summary)}$", result.output, re.M)
        for implementation in operator.implementations:
            assert f"{operator.name}/{implementation.name}" in result.output


def test_verify_passes_with_0():
    result = run("verify", "iota/xla", "--draws", "1")
    assert result.exit_code == 0 and "4 passed, 0 failed, 0 skipped" in result.output


def test_verify_fails_with_1(monkeypatch):
    def refuse(subject, workload, seed):
        raise ladder.Refused("element [0] is 1, the reference 0; integers are exact")

    monkeypatch.setattr(ladder, "_interpret", refuse)
    result = run("verify", "iota/xla", "--draws", "0")
    assert result.exit_code == 1 and "0 passed, 3 failed" in result.output
    assert "integers are exact" in result.output


def test_skips_are_named_and_fail_only_when_strict():
    assert "needs a TPU" in run("verify", "iota/pallas", "--rung", "measure").output
    assert run("verify", "iota/pallas", "--rung", "measure").exit_code == 0
    assert run("verify", "iota/pallas", "--rung", "measure", "--strict").exit_code == 1


HERE = Path(__file__).parent
# Those after the empty line are refused where libtpu is installed.
WRONG, BY_TPU = (HERE / "wrong_lines.txt").read_text(encoding="utf-8").split("\n\n")
WRONG = [*WRONG.splitlines(), *(pytest.param(x, marks=needs_libtpu) for x in BY_TPU.splitlines())]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_ends_with_2(line):
    words, says = line.format(FILE=__file__, JUDGED=HERE / "yours" / "judged").split("  →  ")
    result = run(*shlex.split(words))
    assert result.exit_code == 2 and says in result.output
    assert "Traceback" not in result.output


def test_figures_that_cannot_be_kept_are_no_traceback(tmp_path, monkeypatch):
    bench = "bench", "add_vectors/xla", "-w", "tiny", "--repeats", "2", "--record"
    monkeypatch.setattr("kernels.figures.store.RESULTS", tmp_path)
    (tmp_path / ".measured.csv.part").symlink_to("/dev/full")
    assert "No space left on device" in run(*bench).output
    (tmp_path / "measured.csv").mkdir()
    assert "measured.csv; accepted: one in a folder that there is and" in run(*bench).output


def test_a_file_is_passed_over_in_another_encoding_and_told_of_unread(tmp_path, monkeypatch):
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    words = "prove", str(tmp_path / "latin.py"), "--marked"
    assert run(*words).exit_code == 0
    denied = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", "latin.py"))
    monkeypatch.setattr(Path, "read_bytes", denied)
    done = run(*words)
    assert done.exit_code == 2 and "Permission denied: 'latin.py'" in done.output
