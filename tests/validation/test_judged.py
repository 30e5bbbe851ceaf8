"""The judge's record: two verdicts come to the right outcome, and are counted by rung."""

import json
from dataclasses import replace

import pytest

from kernels.figures import store
from validation import judged

ON = {"chip": "v6e", "why": "", "seconds": [2e-3, 2e-3], "reference_seconds": None}


def ours(name, verdict, rung="simulate", notes=()):
    on = ON | {"verdict": verdict, "rung": rung}
    return {"name": name, "chips": [on], "notes": list(notes), "gone": []}


def theirs(name, correct=None, error=None, level="level1"):
    record = {"name": name, "suite": "jaxkernelbench", "level": level}
    if error is not None:
        return record | {"status": "error", "error": error}
    return record | {"status": "success", "correct": correct, "generated_ms": 3, "original_ms": 1}


HIDDEN = ["wrong on values that the judge drew, right on the file's own values"]


@pytest.mark.parametrize(
    ("own", "record", "outcome"),
    [
        (ours("1_a", "wrong"), theirs("1_a", False), judged.CAUGHT),
        (ours("1_a", "refused"), theirs("1_a", error="not supported"), judged.CAUGHT),
        (ours("1_a", "right"), theirs("1_a", True), judged.AGREED),
        (ours("1_a", "right"), theirs("1_a", False), judged.MISSED),
        (ours("1_a", "right"), theirs("1_a", error="not supported"), judged.MISSED),
        (ours("1_a", "wrong"), theirs("1_a", True), judged.ALARM),
        (ours("1_a", "wrong", notes=HIDDEN), theirs("1_a", True), judged.HIDDEN),
        (ours("2_b", "wrong"), theirs("2_b", True), judged.HIDDEN),
        (ours("2_b", "refused"), theirs("2_b", True), judged.ALARM),
        (ours("1_a", "undecided"), theirs("1_a", True), judged.OPEN),
        (ours("1_a", "right"), theirs("1_a", error=""), judged.ALONE),
        (ours("1_a", "wrong"), theirs("1_a", error="allocate 6.00G (0x0x0_HBM0)"), judged.ALONE),
        # The chip's own memory, by its compiler, is a verdict.
        (ours("1_a", "refused"), theirs("1_a", error="Ran out of memory in hbm"), judged.CAUGHT),
    ],
)
def test_two_verdicts_come_to_an_outcome(own, record, outcome):
    [row] = judged.merged([own], [theirs("1_a", True, level="level9"), record], {"2_b"}, "jax 1")
    assert row.outcome == outcome and row.ours_ms == "2"


def test_what_was_not_judged_yet_is_told_and_counts_at_no_rung():
    rows = judged.merged([], [theirs("1_a", True)], (), "jax 1")
    assert [row.outcome for row in rows] == [judged.LATER] and not judged.by_rung(rows)


def test_files_are_merged_kept_and_counted_by_rung(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    verdicts = [ours("10_b", "refused", "lower"), ours("9_a", "right"), ours("11_c", "wrong")]
    known = [theirs("9_a", True), theirs("10_b", error="block shape"), theirs("11_c", False)]
    (tmp_path / "ours.jsonl").write_text("\n".join(map(json.dumps, verdicts)))
    (tmp_path / "theirs.json").write_text(json.dumps({"results": known}))
    files = tmp_path / "ours.jsonl", tmp_path / "theirs.json", tmp_path
    rows = judged.record(*files, "jax 1")
    assert judged.read() == rows and [row.kernel for row in rows] == ["9_a", "10_b", "11_c"]
    model = "get_inputs = list\nclass Model:\n  def __init__(self): self.w = np.full(8, %d)\n"
    for name, value in (("9_a", 1), ("11_c", 0)):
        (tmp_path / f"{name}.py").write_text("import numpy as np\n" + model % value)
    (tmp_path / "ours.jsonl").write_text(json.dumps(ours("9_a", "wrong")))
    [first, *others] = judged.record(*files, "jax 1")
    assert (first.ours, first.zeros) == ("wrong", "")
    assert others == [rows[1], replace(rows[2], zeros="yes")]  # judged before, and still there
    counts = judged.by_rung(rows)
    assert counts["lower"] == {judged.CAUGHT: 1}
    assert counts["simulate"] == {judged.CAUGHT: 1, judged.AGREED: 1}
