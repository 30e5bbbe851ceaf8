"""explain, tune and guard on files that somebody brings: as data, as a page, and in CI."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from commands import needs_libtpu, processor, python, run

from kernels.yours import cache, declared, guarding, shapes, tpu_words, tuning
from kernels.yours.explanation import MOST, Explanation, Refusal
from kernels.yours.report import ProblemResult, Report

ROOT = Path(__file__).resolve().parents[2]
MARKED = str(Path(__file__).parent / "judged" / "marked.py")
pytestmark = pytest.mark.slow

SOURCE = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import kernels


def body(x_ref, o_ref):
    o_ref[...] = jnp.exp(x_ref[...])


def draw(rng):
    return (rng.standard_normal((256, 256)).astype(np.float32),)


@kernels.proves(jnp.exp, arguments=draw, chips=("v5e",), values=("given",))
def power(x, *, block=8):
    if len(x) % block:
        raise ValueError(f"block is {block}; accepted: a divisor of {len(x)}")
    spec = pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        body,
        grid=(len(x) // block,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        interpret=jax.default_backend() == "cpu",
    )(x)


def huge(x):
    return power(x, block=len(x))


def mute(x):
    power(x)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the file, and a cache of its own."""
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path


def command(here, *arguments):
    """A line of the command, in this process: most of the time of a small one is its start."""
    with contextlib.chdir(here):
        done = run(*arguments)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)


def test_arguments_are_read():
    positional, named = shapes.arguments("bf16[4,8] i32[3]=[100, 0, 156] 2.5 causal=True w=f32[]")
    assert (positional[0].shape, str(positional[0].dtype)) == ((4, 8), "bfloat16")
    np.testing.assert_array_equal(positional[1], np.array([100, 0, 156], np.int32))
    assert positional[2] == 2.5 and named["causal"] is True and named["w"].shape == ()


@pytest.mark.parametrize(
    "text", ["bf17[4]", "f32[4]=[1,2]", "x=1 f32[4]", "x=1 x=2", "nonsense", "f32[4"]
)
def test_what_cannot_be_read_says_what_can(text):
    with pytest.raises(ValueError, match=r"--args is '.*'; accepted: "):
        shapes.arguments(text)


def test_ranges_are_read():
    found = tuning.tunings(["bm=128..512", "dtype='a','b'"])
    assert len(found) == 6 and found[0] == {"bm": 128, "dtype": "a"}
    for wrong in ([], ["bm"], ["bm=4..2"], ["bm=1,2", "bm=3,4"], ["bm=x..y"], ["1m=2,3"]):
        with pytest.raises(ValueError, match=r"--over is .*; accepted: "):
            tuning.tunings(wrong)


@needs_libtpu
def test_explain_as_data_and_as_a_page(here):
    done = command(here, "explain", "mine.py:power", "--json", "--html", "report.html")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["seconds"] > 0 and made["chip"] == "v5e" and made["bound"]
    [kernel] = made["kernels"]
    assert kernel["grid"] == [32] and kernel["vmem"]["held"] == 4 * 8 * 256 * 4
    reads = kernel["operands"][0]
    assert reads["fetches"] == 32 and reads["moves"][1] == [1, [8, 0], 8 * 256 * 4]
    [line] = [each for each in kernel["lines"] if each["eup"]]
    assert line["source"].startswith("mine.py:") and "jnp.exp" in line["text"]
    page = (here / "report.html").read_text()
    assert len(page.encode()) < MOST
    assert not re.search(r'(src|href)\s*=\s*"|@import|url\(\s*["\']?http|fetch\(', page)
    assert "kernel-player" in page and "<script" in page
    # What was explained before is known: nothing is compiled again.
    [path] = (here / "cache" / "answers").iterdir()
    known = cache.ANSWERS.get(path.name)
    facts = replace(known["explanation"].facts, seconds=1.0)
    known["explanation"] = replace(known["explanation"], facts=facts)
    cache.ANSWERS.put(path.name, known)
    again = command(here, "explain", "mine.py:power", "--json", "--html", "report.html")
    assert json.loads(again.stdout)["seconds"] == 1.0


def test_what_binds_is_advised_first():
    """Spills bind where the core's units do, and one pass rounds what it multiplies."""
    kernel = SimpleNamespace(name="k", spills=9, programs=2, operands=[])
    layout = SimpleNamespace(kind="relayout", share=0.3)
    facts = SimpleNamespace(kernels=[kernel], operations=[layout], cycles=1e6, bound="HBM")
    facts.float32_passes, facts.seconds = (1,), 1.0
    assert [words.split()[0] for words in tpu_words.advice(facts)] == ["30%", "k"]
    facts.bound = "compute"
    assert [words.split()[0] for words in tpu_words.advice(facts)] == ["k", "30%"]
    facts.float32_passes = (6,)
    assert "bfloat16 operands" in tpu_words.advice(facts)[-1]
    facts.seconds = None  # data decide
    assert [words.split()[0] for words in tpu_words.advice(facts)] == ["k"]


MATMUL = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from pallas_samples import products

matmul, _ = products(4096, 512)
"""


@pytest.mark.full
@needs_libtpu
def test_a_large_matmul_is_explained_soon(here):
    """In processor time, which a busy machine does not add to: under 11 s, and 1 the next time;
    the start of Python takes some more."""
    (here / "mine.py").write_text(MATMUL)
    shape = "bf16[4096,4096]"
    words = ["explain", "mine.py:matmul", "--args", f"{shape} {shape}", "--chip", "v6e"]
    seconds = []
    for _ in range(2):
        before = processor()
        assert command(here, *words).returncode == 0
        seconds.append(processor() - before)
    assert 0.5 < seconds[0] < 11 and seconds[1] < 1


BY_DATA = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import jax
import jax.numpy as jnp
from pallas_samples import chosen_rows

def power(n_ref, x_ref, o_ref):
    step = lambda i, x: jnp.exp(x) - x
    o_ref[...] = jax.lax.fori_loop(0, n_ref[0], step, x_ref[...])


def repeated(n, x, rows=64):
    return chosen_rows(power, lambda i, n: (i, 0), rows)(n, x)
"""


@pytest.mark.full
@needs_libtpu
def test_trips_that_data_decides_are_named_and_given(here):
    (here / "mine.py").write_text(BY_DATA)

    def explained(args, *words):
        done = command(here, "explain", "mine.py:repeated", "--args", args, "--json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    unknown = explained("i32[1] f32[64,128]")
    assert unknown["by_data"] == ["the loop at mine.py:10 of power"]
    assert unknown["depends"] == ["n"] and unknown["most"] is None and unknown["seconds"] is None
    parts = (unknown, *unknown["operations"], *unknown["kernels"])
    assert {part.get(key) for part in parts for key in ("cycles", "share", "flops")} == {None}
    words = "it depends on data: pass n"
    asked = ("explain", "mine.py:repeated", "--args", "i32[1] f32[64,128]")
    shown = " ".join(command(here, *asked, "--compare", "mine.py:repeated").stdout.split())
    assert re.search(rf"at least [\d.]+ .s; {words}.*what data decides counts once", shown)
    assert re.search(r"time( at least [\d.]+ .s){2} cycles( at least [\d,]+){2} bundles", shown)
    for given, least in (("i32[1]=[300]", False), ("i32[1]", True)):
        tuning = ("tune", "mine.py:repeated", "--over", "rows=64", "--args", f"{given} f32[64,128]")
        ranked = " ".join(command(here, *tuning).stdout.split())
        assert ("at least" in ranked) == (words in ranked) == least and "binds" in ranked
    given = explained("i32[1] f32[64,128]", "--trips", "power=300")
    assert not given["depends"] and given["trips"] == {"power": 300}
    assert given["seconds"] == explained("i32[1]=[300] f32[64,128]")["seconds"]
    assert given["seconds"] > explained("i32[1] f32[64,128]", "--trips", "3")["seconds"]
    wrong = command(here, *asked, "--trips", "other=3")
    assert wrong.returncode == 2
    assert "accepted: the loop at mine.py:10 of power" in " ".join(wrong.stderr.split())


@pytest.mark.full
@needs_libtpu
def test_a_refusal_shows_the_arithmetic_and_the_first_change(here):
    done = command(here, "explain", "mine.py:huge", "--args", "f32[65536,256]")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    said = " ".join(done.stdout.split())
    assert "the kernel asks for" in said and "does not fit" in said
    assert "first: body: " in said


@pytest.mark.full
@needs_libtpu
def test_two_kernels_and_two_commits_side_by_side(here):
    git = lambda *words: subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
        cwd=here,
        check=True,
        capture_output=True,
    )
    git("init", "-q")
    git("add", "mine.py")
    git("commit", "-qm", "first")
    (here / "mine.py").write_text(SOURCE.replace("block=8", "block=64"))
    done = command(here, "explain", "mine.py:power", "--compare", "HEAD")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith(" grid steps"))
    assert row.split()[2:] == ["4", "32", "+700.0%"]
    wrong = command(here, "explain", "mine.py:power", "--compare", "nothing")
    assert wrong.returncode == 2 and "accepted: FILE.py" in " ".join(wrong.stderr.split())


LINES = Path(__file__).with_name("wrong_lines.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_line_says_what_is_accepted(here, line):
    words, says = line.replace("{MARKED}", MARKED).replace("{CACHE}", cache.__file__).split("  →  ")
    done = command(here, *shlex.split(words))
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split()) and "Traceback" not in done.stderr


def test_tune_leaves_out_what_is_the_same_for_all():
    """Seconds, and those of the kernel: 4 outside; 4 and 4.02; no kernel; too little; nothing."""
    cases = [(5, 1), (5.5, 1.5), (None, None)], [(5, 1), (5.5, 1.48)], [(5, 0)], [(1.001, 1)], []
    answers = [[{"seconds": all_, "own": own} for all_, own in case] for case in cases]
    assert [*map(tuning.shared, answers)] == [4.0, 0.0, 0.0, 0.0, 0.0]


@needs_libtpu
def test_tune_ranks_and_goes_on_where_it_was(here):
    given = ("tune", "mine.py:power", "--over", "block=4,8,64,96")
    done = command(here, *given)
    assert done.stderr.splitlines()[1] == "mine.py:power for v5e: 2 of 4 tried", done.stderr
    ranked = re.findall(r"block=(\d+)", done.stdout)
    assert ranked[:2] == ["64", "8"] and set(ranked[2:]) == {"4", "96"}
    assert re.search(r"\d measurements? |[−+]\d+ … ", done.stdout)
    assert "a divisor of 256" in " ".join(done.stdout.split())
    stray = command(here, *given, "--args", "f32[256,256] extent=3")
    assert stray.returncode == 2 and "--args is 'extent'; accepted: " in stray.stderr
    assert "4 of 4 were known from an earlier run" in command(here, *given).stdout


@pytest.fixture
def guarded(here, monkeypatch):
    """guarded(seconds, results, chips): a guard whose answers are made up by these functions."""

    def guarded(seconds, results=lambda: (), chips=("v5e",)):
        def explained(path, name, args, *, chip, timeout):
            if (estimated := seconds(args, chip)) is None:
                return Explanation(Refusal("power", chip, {"message": "too large"}))
            return SimpleNamespace(facts=SimpleNamespace(seconds=estimated))

        def proven(*_, progress, **__):
            progress("a rung", ended=True)
            return Report(results())

        monkeypatch.setattr(guarding, "prove_file", proven)
        monkeypatch.setattr(guarding, "declared_in", lambda *_: [("power", chips)])
        monkeypatch.setattr(guarding, "explain_file", explained)
        baseline, files = here / "estimates.json", [(str(here / "mine.py"), "")]
        return lambda **more: guarding.guard(baseline, files, jobs=3, **more)

    return guarded


def test_what_guard_fails_for(here, guarded, monkeypatch):
    state = {"seconds": 1e-6, "status": "passed"}
    result = lambda: (ProblemResult("power", "interpret", "a", state["status"], "wrong"),)
    guard = guarded(lambda *_: state["seconds"], result)
    assert not guard(update=True).losses and not guard().losses
    state["seconds"] = 1.1e-6
    assert guard().losses == ("power on v5e is estimated 10.0% slower, 2% is allowed",)
    assert not guard(percent=11).losses and "+10.0%" in guard().markdown()
    state.update(seconds=None, status="failed")
    assert guard().losses == (
        "power on v5e lost the rung interpret: wrong",
        "power on v5e compiles no more: too large",
    )
    more = [("power", ("v5e", "v6e")), ("other", ("v5e",))]  # than the baseline has
    monkeypatch.setattr(guarding, "declared_in", lambda *_: more)
    [line] = guarding.guard(here / "estimates.json").lines
    assert line[:2] == ("power", "v5e")


def test_guard_takes_buckets_and_tells_an_upgrade_from_a_regression(here, guarded, monkeypatch):
    state = {"compiler": "libtpu 1", "slower": 1.0}
    monkeypatch.setattr(
        guarding, "machine", lambda chip: SimpleNamespace(ready=lambda: state["compiler"])
    )
    estimated = lambda args, chip: float(args[4:-1]) * state["slower"] / (1 + (chip == "v6e"))
    guard, shapes = guarded(estimated, chips=("v5e", "v6e")), ("f32[128]", "f32[256]")
    (here / "blocks.py").write_text("ROWS = 8\n")
    (here / "mine.py").write_text(f"from blocks import ROWS{SOURCE}")
    guard(update=True, shapes=shapes)
    assert [line[:4] for line in guard().lines] == [
        (f"power {bucket}", chip, seconds, seconds)
        for chip, each in (("v5e", 1), ("v6e", 2))
        for bucket, seconds in zip(shapes, (128 / each, 256 / each))
    ]
    state["slower"] = 1.5
    slower = guard().losses
    assert slower[0] == "power f32[128] on v5e is estimated 50.0% slower, 2% is allowed"
    assert len(slower) == 4 and len(guard(shapes=shapes[:1]).losses) == 2
    state["compiler"] = "libtpu 2"
    upgraded = guard()
    assert not upgraded.losses and len(upgraded.notes) == 4
    assert "50.0% slower by libtpu 2 than by libtpu 1: an upgrade" in upgraded.notes[0]
    (here / "blocks.py").write_text("ROWS = 16\n")  # a neighbour
    assert "its source has changed too" in guard().losses[3]


NONE = Path(__file__).with_name("no_baselines.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("text", NONE)
def test_a_baseline_that_is_none_is_refused(here, text):
    (here / "estimates.json").write_text(text)
    done = command(here, "guard", "--baseline", "estimates.json")
    assert done.returncode == 2
    assert "accepted: a file that guard --update wrote" in " ".join(done.stderr.split())


def test_a_file_of_the_baseline_that_is_gone_fails(here):
    baseline = here / "estimates.json"
    gone = {"file": "gone.py", "rungs": ["interpret"], "seconds": 1}
    baseline.write_text(json.dumps({"form": 1, "kernels": {"a": gone}}))
    done = command(here, "guard", "--baseline", "estimates.json")
    assert done.returncode == 1 and "gone.py is in the baseline, and is gone" in done.stdout
    assert command(here, "guard", "--baseline", "estimates.json", "--update").returncode == 0
    assert json.loads(baseline.read_text())["kernels"] == {}


def test_the_hooks_are_valid_and_run(here):
    manifest = ROOT / ".pre-commit-hooks.yaml"
    checked = [sys.executable, "-m", "pre_commit", "validate-manifest", manifest]
    assert subprocess.run(checked, check=False).returncode == 0
    hooks = yaml.safe_load(manifest.read_text())
    assert all(each["additional_dependencies"] == [".[tpu]"] for each in hooks)
    (prove, _) = hooks
    # As a repository has it, but run by this Python instead of one that has to be installed.
    entry = prove["entry"].replace("python", sys.executable, 1)
    system = prove | {"additional_dependencies": []}
    hook = system | {"language": "system", "entry": f"{entry} --rung interpret"}
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    (here / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (here / "other.py").write_text("x = 1\n")
    (here / "mine.py").write_text(SOURCE.replace("jnp.exp(x", "jnp.exp2(x"))
    subprocess.run(["git", "init", "-q"], cwd=here, check=True)
    subprocess.run(["git", "add", "."], cwd=here, check=True)
    variables = os.environ | {"PRE_COMMIT_HOME": str(here / "pre-commit")}
    done = python("-m", "pre_commit", "run", "--all-files", cwd=here, env=variables)
    assert done.returncode == 1 and "element [" in done.stdout, done.stdout


@pytest.mark.full
@needs_libtpu
def test_the_workflow_proves_and_guards(here):
    """It fails when an estimate grows, and when a rung is lost."""
    fast = SOURCE.replace("block=8", "block=64")
    (here / "mine.py").write_text(fast)
    workflow = (ROOT / ".github/workflows/prove.yml").read_text()
    [job] = yaml.safe_load(workflow)["jobs"].values()
    scripts = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    summary = here / "summary.md"
    variables = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(summary),
        "FILES": "mine.py",
        "BASELINE": "estimates.json",
        "PERCENT": "2",
    }

    def step(name):
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", scripts[name]], cwd=here, env=variables
        )
        return done.returncode

    assert step("prove") == 0 and "Every rung holds" in summary.read_text()
    update = ("guard", "mine.py", "--baseline", "estimates.json", "--update")
    assert command(here, *update).returncode == 0 and step("guard") == 0
    assert "| power | v5e |" in summary.read_text()
    (here / "mine.py").write_text(SOURCE)
    assert step("guard") == 1 and "slower, 2% is allowed" in summary.read_text()
    (here / "mine.py").write_text(fast.replace("jnp.exp(x", "jnp.exp2(x"))
    assert step("guard") == 1 and "lost the rung interpret" in summary.read_text()
    assert step("prove") == 1 and "A rung does not hold" in summary.read_text()


def test_every_part_of_the_package_counts_in_a_key(tmp_path):
    """What explains a GPU's program lay in a folder that was left out."""
    package = tmp_path / "kernels"
    parts = ("machines/gpu", "machines/tpu", "machines/pallas", "figures", "lessons/pictures")
    files = [package / part / "some.py" for part in parts]
    for file in (*files, package / "figures" / "validation.csv"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
    digests = {cache._model.__wrapped__(package)}
    for file in package.rglob("*.*"):
        file.write_text("2\n")
        digests.add(cache._model.__wrapped__(package))
    assert len(digests) == 1 + len(files) + 1


def test_the_help_has_examples():
    helped = lambda name: " ".join(command(ROOT, name, "--help").stdout.split())
    assert "python -m kernels explain mine.py:softmax" in helped("explain")
    mark = re.search("```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    exec(mark, {})
    known = declared.declared()[-1]
    assert known.reference(*known.draw(np.random.default_rng(0))[0]).shape == (64, 256)
    assert re.search("^@.*$", mark, re.M)[0] in helped("prove")
