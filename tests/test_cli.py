"""python -m kernels: tables to read, exit codes for CI."""

import re

import pytest
from commands import run

from kernels import ladder
from kernels.machines.optional import available
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
    assert result.exit_code == 0
    assert "4 passed, 0 failed, 0 skipped" in result.output


def test_verify_fails_with_1(monkeypatch):
    def refuse(subject, workload, seed):
        raise ladder.Refused("element [0] is 1, the reference 0; integers are exact")

    monkeypatch.setattr(ladder, "_interpret", refuse)
    result = run("verify", "iota/xla", "--draws", "0")
    assert result.exit_code == 1
    assert "0 passed, 3 failed" in result.output
    assert "integers are exact" in result.output


def test_skips_are_named_and_fail_only_when_strict():
    assert "needs a TPU" in run("verify", "iota/pallas", "--rung", "measure").output
    assert run("verify", "iota/pallas", "--rung", "measure").exit_code == 0
    assert run("verify", "iota/pallas", "--rung", "measure", "--strict").exit_code == 1


libtpu = pytest.mark.skipif(not available("libtpu"), reason="libtpu is not installed")
WITH_LIBTPU = [
    (["explain", "matmul/pallas", "-c", "v9"], "chip is 'v9'"),
    (["explain", "matmul/pallas", "-w", "nosuch"], "workload is 'nosuch'"),
    (["explain", "nosuch/pallas"], "operator is 'nosuch'"),
    (["explain", "matmul"], "OPERATOR/IMPLEMENTATION"),
    (["explain", "matmul/xla", "-w", "m=8 k=8 n=8 float64"], "float64; accepted: float32"),
    (["tune", "add_vectors/triton"], "one in JAX, for v5e"),
    (["tune", "matmul/pallas", "-w", "m=8 k=8 n=8 float64"], "float64; accepted: float32"),
    (["tune", "iota/pallas"], "nothing to tune"),
    (["tune", "matmul/xla", "-w", "m=256 k=256 n=256 bfloat16"], "XLA chooses its own"),
]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "cholesky"], "accepted: attention, vit_attention"),
        (["verify", "matmul/cuda"], "accepted: xla, pallas"),
        (["verify", "--rung", "guess"], "accepted: interpret, simulate, compile, measure"),
        (["verify", "iota/xla", "--rung", "simulate"], "claims no rung simulate"),
        (["verify", "--draws", "-1"], "Invalid value"),
        (["bench", "add_vectors/xla", "-w", "n=64 float64", "--record"], "float64; accepted"),
        (["bench", "add_vectors/xla", "-w", ""], "workload is ''; accepted: tiny"),
        (["estimate", "matmul/xla", "--figures", "-w", "zzz"], "--workload is 'zzz'; accepted"),
        (["estimate", "add_vectors/xla", "--figures"], "--figures is given for add_vectors/xla"),
        (["explain", f"{__file__}:run", "-w", "tiny"], "--workload is tiny; accepted: with OP"),
        (["explain", "matmul/pallas", "-c", "h100"], "--chip is 'h100'; accepted: v5e"),
        (["explain", "giou/nki"], "accepted: one in JAX, for v5e"),
        (["prove", __file__, "--chip", "v99"], "--chip is 'v99'; accepted: v5e"),
        (["prove", __file__, "--rung", "guess"], "--rung is 'guess'; accepted: interpret"),
        (["judge"], "no file is named; accepted"),
        (["judge", "nowhere.py"], "file is nowhere.py; accepted"),
        (["judge", __file__.replace("test_cli.py", "yours/judged/answers")], "--reference is left"),
        (["judge", __file__, "--reference", "no/"], "--reference is no/; accepted: a file or a f"),
        (["estimate", "giou/nki", "--chip", "v5e"], "chip is 'v5e'; accepted: inf2, trn1"),
        (["estimate", "giou/nki", "--workload", "huge"], "workload is 'huge'; accepted: tiny"),
        (["estimate", "depthwise_conv/cuda"], "one that there is an estimate of"),
        *(pytest.param(*row, marks=libtpu) for row in WITH_LIBTPU),
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_figures_that_cannot_be_kept_are_no_traceback(tmp_path, monkeypatch):
    bench = "bench", "add_vectors/xla", "-w", "tiny", "--repeats", "2", "--record"
    monkeypatch.setattr("kernels.figures.store.RESULTS", tmp_path)
    (tmp_path / ".measured.csv.part").symlink_to("/dev/full")
    assert "No space left on device" in run(*bench).output
    (tmp_path / "measured.csv").mkdir()
    assert "measured.csv; accepted: one in a folder that there is and" in run(*bench).output


def test_a_file_in_another_encoding_that_marks_nothing_is_passed_over(tmp_path):
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    assert run("prove", str(tmp_path / "latin.py"), "--marked").exit_code == 0
