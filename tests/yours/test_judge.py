"""Kernels that a program or a stranger wrote are judged: refused, wrong, right, or not decided."""

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from commands import needs_libtpu, run
from jax.experimental import pallas as pl

import kernels
from kernels.figures.table import as_text
from kernels.machines.compat.gone import INSTEAD, gone
from kernels.yours import answers, judging, models, proving
from kernels.yours.claim import Claim
from kernels.yours.declared import ENDED, OWN, Declared
from kernels.yours.report import ProblemResult, Report
from kernels.yours.verdict import SCHEMA, Judgement, OnChip, table

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).with_name("judged")
ANSWERS, PROBLEMS, MARKED = (str(HERE / name) for name in ("answers", "problems", "marked.py"))


def add_one(x, rows=8, factor=1.0):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * factor + 1

    spec = pl.BlockSpec((rows, 128), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (x.shape[0] // rows,)
    return pl.pallas_call(body, out_shape=out, grid=grid, in_specs=[spec], out_specs=spec)(x)


def judged(function, full="f32[4096,128]", **options):
    draw = lambda rng: (rng.standard_normal((64, 128)).astype(np.float32),)
    return kernels.judge(function, lambda x: x + 1, arguments=draw, full=full, **options)


@needs_libtpu
@pytest.mark.slow
def test_a_right_kernel_has_its_time_and_its_memory():
    verdict = judged(add_one, chips=("v6e",))
    [on] = verdict.chips
    assert verdict.passed and (on.chip, on.verdict, on.rung) == ("v6e", "right", "simulate")
    assert 2 * 4096 * 128 * 4 <= on.hbm_bytes < on.hbm_limit
    assert 0 < on.seconds[0] < 1 and on.ratio[0] < on.ratio[1] and on.ahead
    jsonschema.validate(json.loads(json.dumps(verdict.as_json())), SCHEMA)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(("function", "full", "verdict", "rung", "says"), [
    (lambda x: add_one(x, factor=1.01), "f32[4096,128]", "wrong", "interpret", "element ["),
    # Right where blocks divide it, and at full size they do not.
    (add_one, "f32[4097,128]", "wrong", "index maps", "written by no program"),
    (lambda x: add_one(x, rows=4), "f32[4096,128]", "refused", "lower", "multiple of 8"),
    (lambda x: pl.load(x), "f32[4096,128]", "refused", "trace", "no attribute 'load'"),
    # 48 GiB of arguments and results, and a chip of 32.
    (lambda x: add_one(x, rows=512), "f32[50331648,128]", "refused", "memory", "HBM"),
])  # fmt: skip
def test_what_is_wrong_or_refused_is_told(function, full, verdict, rung, says):
    [on] = judged(function, full).chips
    assert (on.verdict, on.rung) == (verdict, rung) and says in on.why


@pytest.mark.parametrize(
    ("wrong", "value"), [("chips", ("v99",)), ("timeout", 0), ("memory", -1), ("full", 3)]
)
def test_a_wrong_argument_is_named(wrong, value):
    with pytest.raises(ValueError, match=f"^{wrong} is .*; accepted: "):
        judged(add_one, **{wrong: value})


OFF, LATE = "element [0] is 1, the reference 2", "not done after 3 s, and ended"
CHANGES = "verdict changes with the values"


@pytest.mark.parametrize(("messages", "faithful", "verdict", "says"), [
    ({("f", "interpret"): OFF}, True, "wrong", OFF),
    ({("f", "interpret"): OFF}, False, "undecided", "right at its one size alone"),
    ({("f", "interpret"): LATE}, True, "undecided", ""),
    ({("f", "interpret"): f"{ENDED}, which"}, True, "undecided", ENDED),
    ({("f", "interpret"): "", ("f", "simulate"): LATE}, True, "right", LATE),
    ({("f", "interpret"): OFF, ("f" + OWN, "interpret"): ""}, True, "wrong", CHANGES),
    ({("f", "interpret"): "", ("f" + OWN, "interpret"): OFF}, True, "wrong", CHANGES),
])  # fmt: skip
def test_what_the_interpreters_decide(messages, faithful, verdict, says):
    results = [
        ProblemResult(*place, "values", "failed" if message else "passed", message)
        for place, message in messages.items()
    ]
    decision = judging._decided(Report(tuple(results)), "f", faithful, "")
    assert (decision["verdict"], decision["rung"]) == (verdict, "interpret")
    assert says in " ".join((decision["why"], *decision["notes"]))


@pytest.mark.parametrize(("status", "asked"), [("passed", 1), ("failed", 2), ("skipped", 2)])
def test_the_own_values_of_a_file_are_simulated_only_where_interpret_fails(status, asked):
    questions = []

    def ask(question):
        questions.append(question)
        return {"status": status, "message": ""}

    known = dict(problems=["values"], chips=(), budget=1, devices="")
    pair = [{"name": name, **known} for name in ("f", "f" + OWN)]
    proving._climb(ask, {}, judging.RUNGS, (), 0, kernels=pair)
    assert sum(question["rung"] == "simulate" for question in questions) == asked
    fixed = lambda rng: (np.linspace(0, 1, 8, dtype=np.float32),)
    drawn = lambda rng: (rng.random(8, np.float32),)
    for f, draw, count in ((np.exp, fixed, 1), (np.exp, drawn, 2), (np.argmax, drawn, 3)):
        problems = Claim(Declared(f, f, draw, values=("given", "ties"))).workloads
        assert len(problems.named) == count
    [ties] = problems.arguments(problems.named[-1])  # of what returns a place
    np.testing.assert_array_equal(ties, ties[::-1])


@pytest.mark.parametrize(("weighed", "decided", "verdict"), [
    ("refused", "wrong", "refused"),
    ("wrong", "right", "wrong"),
    ("undecided", "right", "undecided"),
    ("undecided", "wrong", "wrong"),
    (None, "right", "right"),
])  # fmt: skip
def test_the_compiler_has_the_first_word_and_a_wrong_element_the_last(weighed, decided, verdict):
    on = {"chip": "v6e", "why": "compiler", "ratio": (2, 3), "ahead": "kernel"}
    decision = {"verdict": decided, "rung": "interpret", "why": "", "where": ""}
    on = judging._on_chip(on | ({"verdict": weighed} if weighed else {}), decision)
    assert on.verdict == verdict
    assert bool(on.ratio and on.ahead) == (decided == "right" or weighed == "refused")


def test_a_problem_is_shrunk_by_whole_blocks():
    sizes, faithful = models._smaller(f"{ANSWERS}/linear.py", f"{PROBLEMS}/linear.py")
    assert sizes == {"batch_size": 256} and faithful  # two blocks of 128, and the same body
    with pytest.raises(ValueError, match="could not be shrunk by whole blocks"):
        models._smaller(f"{ANSWERS}/fixed.py", f"{PROBLEMS}/fixed.py")


def test_weights_of_full_size_are_never_made(tmp_path):
    text = Path(PROBLEMS, "linear.py").read_text()
    text = text.replace("features = 128", "features = 1024 * 1024").replace("1024 * 64", "64")
    (tmp_path / "huge.py").write_text(text)
    path = str(tmp_path / "huge.py")
    weights, x = models.full(path, path).args  # 4 TiB, had they been made
    assert weights["['weight']"].shape == (1 << 20, 1 << 20) and x.shape == (64, 1 << 20)


def test_inputs_that_are_no_list_are_told_by_name(tmp_path):
    (tmp_path / "none.py").write_text("def forward(x): return x\ndef get_inputs(): ...")
    with pytest.raises(ValueError, match="get_inputs is a function that returns None; accepted: "):
        models.full(*[str(tmp_path / "none.py")] * 2)


def test_drawn_values_are_not_zeros_and_keep_what_they_stand_for():
    weights = {"w": jnp.zeros((4, 8)), "variance": jnp.ones(8)}
    labels, signs, x = np.arange(64), np.sign(np.arange(64) - 31.5), np.linspace(0, 1, 64)
    for free in (True, False):
        once, again = (
            models._drawn(weights, [labels, signs, x], np.random.default_rng(0), free)
            for _ in range(2)
        )
        drawn, *inputs = once
        assert drawn["w"].all() and (drawn["variance"] > 0).all() and np.ptp(drawn["variance"]) > 0
        assert sorted(inputs[0]) == sorted(labels) and set(inputs[1]) == {-1, 1}
        assert (inputs[2].min() < 0) == free
        for one, other in zip(inputs, again[1:], strict=True):
            np.testing.assert_array_equal(one, other)


@needs_libtpu
@pytest.mark.slow
def test_a_folder_is_judged_and_its_zeros_deceive_nobody():
    done = run("judge", ANSWERS, "--reference", PROBLEMS, "--json", "--jobs", 2)
    assert done.exit_code == 1
    by_name = {(line := json.loads(text))["name"]: line for text in done.stdout.splitlines()}
    for line in by_name.values():
        jsonschema.validate(line, SCHEMA)
    linear, fixed = by_name["linear"], by_name["fixed"]
    assert linear["verdict"] == "wrong" and linear["sizes"] == {"batch_size": 256}
    said = " ".join(linear["notes"])
    assert "all zeros: ['weight']" in said
    assert "wrong on values that the judge drew, right on the file's own values" in said
    assert fixed["verdict"] == "undecided" and "could not be shrunk" in fixed["chips"][0]["why"]


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "status", "says"), [
    ("right", [], 0, "right"),
    ("endless", ["--timeout", "6"], 3, "not done after"),
    ("hungry", ["--memory", "4"], 3, "memory"),
])  # fmt: skip
def test_the_exit_status_and_the_limits_hold(name, options, status, says):
    start = time.monotonic()
    done = run("judge", f"{MARKED}:{name}", "--json", *options)
    assert done.exit_code == status and "\n1 kernel: 1 " in f"\n{done.stderr}", done.output
    [on] = json.loads(done.stdout)["chips"]
    assert says in f"{on['verdict']} {on['why']}" and time.monotonic() - start < 240


def test_a_table_names_the_file_and_who_is_ahead():
    band = "no measurement of this kind"
    on = OnChip("v6e", "right", "interpret", band=band, ratio=(0.4, 0.8), ahead="reference")
    judgement = Judgement("f", (on,), "a/g.py")
    said = f"| a/g.py:f | v6e | right | interpret |  | {band} | 0.40–0.80: XLA is ahead |"
    assert said in table([judgement]).markdown() and str(judgement).startswith("a/g.py:f\n")
    assert {*band.split(), "ahead"} <= {*as_text([judgement], 70).split()}  # no word is broken


def test_the_schema_is_printed():
    assert json.loads(run("judge", "--schema").stdout) == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_late_kernel_is_not_begun_and_what_is_no_python_is_refused(tmp_path):
    with proving.asking(9.0, whole=1e-9) as ask, pytest.raises(proving.Lost, match="--timeout"):
        ask({"what": "load"})
    for text in ("def f(:\n", "x = 1\0\n"):
        (tmp_path / "bad.py").write_text(text)
        [entry] = judging.entries([str(tmp_path)])
        [on] = answers.weigh(("v6e",), 1.0, entry.path, reference=entry.reference)["chips"]
        assert on["verdict"] == "refused" and "SyntaxError" in on["why"] and "bad.py" in on["why"]


def test_a_file_that_has_no_reference_stops_no_folder(tmp_path):
    (tmp_path / "alone.py").write_text("def get_inputs(): ...")
    with pytest.raises(ValueError, match=r"--reference is no file .*alone.py; accepted: "):
        judging.entries([str(tmp_path)], PROBLEMS)  # none has one: the command line is wrong
    (tmp_path / "linear.py").write_text(Path(ANSWERS, "linear.py").read_text())
    alone, good = judging.entries([str(tmp_path)], PROBLEMS)
    assert good == judging.Entry(str(tmp_path / "linear.py"), "", f"{PROBLEMS}/linear.py")
    [verdict] = judging.judge_all([alone])
    assert verdict.verdict == "undecided" and "--reference is no file" in verdict.chips[0].why
    jsonschema.validate(json.loads(json.dumps(verdict.as_json())), SCHEMA)


def test_an_estimate_without_a_most_is_null_in_json_and_no_number_in_a_table():
    verdict = Judgement("k", (OnChip("v5e", "right", seconds=(1e-6, float("inf"))),))
    assert "at least 1 µs" in as_text([table([verdict])])
    jsonschema.validate(json.loads(json.dumps(verdict.as_json(), allow_nan=False)), SCHEMA)


def test_shards_hold_every_kernel_once():
    listed = judging.entries([ANSWERS], PROBLEMS) * 5
    shards = [judging.shard(listed, f"{k}/3") for k in (1, 2, 3)]
    assert sorted(id(entry) for own in shards for entry in own) == sorted(map(id, listed))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_names_that_are_gone_are_told_with_their_successors():
    text = """
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
x = pl.load(r, (pl.ds(0, 4),)) + pl.program_id(0)
params = pltpu.TPUCompilerParams()
y = jax.tree_map(f, x.anything.else_) + jax.nowhere.deeper
"""
    names = [(g.name.rpartition(".")[2], g.line, g.instead) for g in gone(text)]
    assert names == [
        ("load", 5, INSTEAD["jax.experimental.pallas.load"]),
        ("TPUCompilerParams", 6, "pltpu.CompilerParams"),
        ("tree_map", 7, "jax.tree.map"),
        ("nowhere", 7, ""),
    ]


@pytest.mark.parametrize("name", INSTEAD)
def test_each_name_is_gone_and_in_the_version_bridge(name):
    module, _, short = name.rpartition(".")
    assert [g.name for g in gone(f"import {module} as m\nm.{short}")] == [name]
    assert short in (ROOT / "book" / "version_bridge.md").read_text()
