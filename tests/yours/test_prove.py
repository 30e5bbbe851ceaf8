"""A kernel that somebody brings is proven as it is, and a wrong one is told what is wrong."""

import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import lives, needs_libtpu, process, python, quick_children, run, wait, weekly
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import kernels
from kernels.machines import child
from kernels.machines.compat import jax_views
from kernels.machines.compat.jax_products import WHOLE, multiplying
from kernels.machines.optional import MissingPackage
from kernels.proof import judge, ladder
from kernels.proof.backends.base import Refused
from kernels.proof.backends.pallas_tpu import Brought
from kernels.yours import answers, declared, proving, sandbox
from kernels.yours.claim import Claim
from kernels.yours.proving import prove_file
from kernels.yours.report import ProblemResult, Report
from kernels.yours.sandbox import walls

FILE = str(Path(__file__).with_name("brought.py"))
BAD = Path(__file__).with_name("bad.py")
TOLD = re.findall(r'^@bad\("([^"]*)"(?:.|\n)*?^def (\w+)', BAD.read_text(), re.M)
TOLD += [
    (says, name) for name, says in re.findall(r'^    "(\w+)": \("([^"]*)"', BAD.read_text(), re.M)
]
ENDING = str(Path(__file__).with_name("ending.py"))


@pytest.fixture(scope="module")
def found():
    """What the two interpreters say of every kernel of the file, in one child."""
    with quick_children():
        return prove_file(FILE, rungs=("interpret", "simulate"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", ["softmax", "layer_norm", "scaled", "pipelined", "in_place", "by_pl_kernel"]
)
def test_a_right_kernel_passes(found, kernel):
    for rung in ("interpret", "simulate"):
        assert {each.status for each in found.of(kernel, rung)} == {"passed"}


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "rung", "problem", "says"), [
    ("naive_norm", "interpret", "large mean of x", "the reference"),
    ("missing_factor", "interpret", "values as drawn, 1", "gradient of x: element ["),
    ("unwritten", "interpret", "values as drawn, 1", "that nothing wrote, and beyond an array"),
    ("racing", "simulate", "values as drawn, 1", "race: a write of hbm[0:8, 0:256] by core 0"),
    ("raising", "interpret", "values as drawn, 1", "(brought.py:"),
])  # fmt: skip
def test_a_wrong_one_is_found_at_its_rung(found, kernel, rung, problem, says):
    failed = [each for each in found.of(kernel, rung) if each.status == "failed"]
    assert failed and failed[0].problem == problem
    assert says in failed[0].message and "Traceback" not in failed[0].message


@pytest.mark.slow
def test_what_is_told_of_a_fault(found):
    """A naive variance is right without a large mean; a race names both its lines; and the block
    that wrote an element is named."""
    norm, [race] = found.of("naive_norm", "interpret"), found.of("racing", "simulate")
    assert [each.status for each in norm[:2]] == ["passed", "passed"]
    assert race.message.count("brought.py:") == 2
    wrote = [each.wrote for each in norm if each.wrote]
    assert wrote[0].startswith("written by body, program ()")
    unwritten = found.of("unwritten", "interpret")[0]
    assert unwritten.wrote == "no program of normalise writes that element of o"


@pytest.fixture(scope="module")
def bad():
    """What the interpreter says of all that cannot be proven, in one child."""
    with quick_children():
        return prove_file(str(BAD), rungs=("interpret",))


@pytest.mark.slow
@pytest.mark.parametrize(("says", "kernel"), TOLD)
def test_what_cannot_be_proven_is_told_in_a_line(bad, says, kernel):
    findings = [each for each in bad.findings if each.kernel == kernel]
    assert findings and {each.status for each in findings} == {"failed"}
    for each in findings:
        assert says in each.message and not re.search("\n|Traceback", each.message)


@pytest.mark.slow
def test_what_hangs_or_aborts_ends_its_child():
    slow = prove_file(ENDING, "endless", rungs=("interpret",), timeout=2)
    [finding] = slow.findings  # the other problems would hang too
    assert "not done after 2 s" in finding.message
    report = prove_file(ENDING, "aborting", rungs=("interpret",))
    assert ["died of SIGABRT" in each.message for each in report.findings] == [True] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["devouring", weekly("vast")])
def test_what_exhausts_memory_ends_its_child(kernel):
    """With a real limit, of 3 GiB, which the child inherits."""
    if sys.platform != "linux":
        pytest.skip("the limit is one of Linux")
    line = f'ulimit -d {3 << 20}; exec "$0" -m kernels prove "$1" --rung interpret'
    command = ["bash", "-c", line, sys.executable, f"{ENDING}:{kernel}"]
    done = process(*command)
    ended = rf"{kernel}: interpret FAILED \(\d\), [\d.]+ s\n"
    assert done.returncode == 1 and re.fullmatch(ended, done.stderr), done.stderr
    said = " ".join(done.stdout.split())
    limited, ended = "ran out of memory, of which its process may have 3.0 GiB", "want of memory"
    assert limited in said or f"its process was ended for {ended}" in said, said
    assert "Traceback" not in said


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(tmp_path):
    # What a shell starts with & ignores Ctrl-C, and so would what this test starts.
    heard = "signal.signal(signal.SIGINT, signal.SIG_DFL)"
    start = f"import os, signal, sys; {heard}; os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", start]
    command += [sys.executable, "-m", "kernels", "prove", f"{ENDING}:endless"]
    options = dict(stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path)
    process = subprocess.Popen(command, **options, env=os.environ | {"TMPDIR": str(tmp_path)})
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait(lambda: len(children.read_text().split()) > 1)
    started = [int(pid) for pid in children.read_text().split()]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in said
    assert not any(map(lives, started)) and not list(tmp_path.iterdir())


def test_want_of_memory_is_told_in_plain_words():
    assert proving._died(child.ChildDied(-9, "")) == "its process was ended for want of memory"
    assert "SIGSEGV" in proving._died(child.ChildDied(-11, "some line"))


@needs_libtpu
@pytest.mark.slow
def test_the_compiler_refuses_what_interpreters_take(found):
    report = prove_file(FILE, "odd_blocks", rungs=("compile",), chips=("v5e",))
    assert {e.status for e in found.of("odd_blocks", "interpret")} == {"passed"}
    [refused] = report.of("odd_blocks", "compile")
    assert refused.chips == ("v5e",)
    assert "its second-to-last dimension, 4, must be a multiple of 8" in refused.message


@pytest.mark.slow
def test_on_a_gpu_nothing_cuts_a_block_and_nothing_is_simulated(found):
    for kernel, compiled, words in (
        ("on_a_gpu", "passed", ""),
        ("over_the_end", "failed", "block of x in normalise ends beyond the array, and Triton"),
        ("racing_on_a_gpu", "failed", "several programs add to one block of o"),
    ):
        [at_last] = prove_file(FILE, kernel, rungs=("compile",)).findings
        assert at_last.status in (compiled, "partial"), at_last  # in part without the extra gpu
        assert words in at_last.message
        assert {e.status for e in found.of(kernel, "interpret")} == {"passed"}
        assert found.of(kernel, "simulate")[0].status == "skipped"


def whole(body, *arrays, **options):
    like = jax.ShapeDtypeStruct(arrays[-1].shape, arrays[-1].dtype)
    return pl.pallas_call(body, out_shape=like, **options)(*arrays)


def doubled(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    return whole(body, x)


def draw(rng):
    return (rng.standard_normal((8, 128)).astype(np.float32),)


@pytest.mark.slow
def test_kernels_prove_returns_a_report():
    local = lambda x: doubled(x)  # as a notebook's function: no other process can load it
    report = kernels.prove(local, lambda x: x * 2, arguments=draw, rungs=("interpret",))
    assert report.passed and len(report.findings) == 4
    assert "passed" in str(report) and "<table" in report._repr_html_()
    off = lambda x: x * (2 + 1e-6)
    lent = kernels.prove(local, off, arguments=draw, rungs=("interpret",), budget=9)
    assert lent.passed and "9 times the usual error budget" in str(lent)
    wrong = kernels.prove(local, off, arguments=draw, rungs=("interpret",))
    assert not wrong.passed
    assert "FAILED" in str(wrong) and "element [" in wrong.markdown()


def generation(x):
    """Times what the chip says that it is."""

    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * pltpu.get_tpu_info().generation

    return whole(body, x)


@pytest.mark.slow
@pytest.mark.parametrize(("chips", "times"), [(("v6e", "v5e"), 6), (("v5e",), 5)])
def test_the_interpreters_are_the_claims_first_chip(chips, times):
    more = {"chips": chips, "rungs": ("interpret", "simulate"), "values": ("given",)}
    report = kernels.prove(generation, lambda x: x * times, arguments=draw, **more)
    assert report.passed, report


def waiting_for_nothing(n, x):
    """A copy of no rows, at which JAX's watch for races fails, and one of all."""

    def body(n_ref, x_ref, o_ref):
        pltpu.sync_copy(x_ref.at[pl.ds(n_ref[1], n_ref[0])], o_ref.at[pl.ds(0, n_ref[0])])
        pltpu.sync_copy(x_ref, o_ref)

    specs = [pl.BlockSpec(memory_space=space) for space in (pltpu.SMEM, pl.ANY)]
    return whole(body, n, x, in_specs=specs, out_specs=specs[1])


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("watched", [True, False])
def test_where_the_watch_for_races_fails_the_rest_is_simulated(monkeypatch, watched, times):
    if not watched:  # as JAX alone has it, where it ends at a wait for nothing
        monkeypatch.setattr(jax_views, "taught", contextlib.nullcontext)
    arguments = lambda rng: (np.array([0, 8], np.int32), *draw(rng))
    claim = Claim(declared.Declared(waiting_for_nothing, lambda n, x: x * times, arguments))
    subject = answers._subject(claim, Brought(("v5e",)))
    [check] = ladder.climb(subject, "simulate", [claim.workloads.named[0]])
    assert check.status == ("failed" if times == 2 else "passed" if watched else "partial")


@pytest.mark.parametrize(("precision", "of_reference", "status", "words"), [
    (None, None, "passed", "With whole factors it is right"),
    (None, "highest", "failed", "Precision.HIGHEST"),
    ("highest", None, "passed", ""),
])  # fmt: skip
def test_a_product_is_judged_as_the_chip_multiplies(precision, of_reference, status, words):
    """Rounded factors pass against a reference that rounds them too, and against no other."""

    def squared(x):
        def body(x_ref, o_ref):
            o_ref[...] = jnp.dot(x_ref[:, :8], x_ref[...], precision=precision)

        return whole(body, x)

    rungs = {"rungs": ("interpret",), "values": ("given",)}
    reference = lambda x: jnp.dot(x[:, :8], x, precision=of_reference)
    report = kernels.prove(squared, reference, arguments=draw, **rungs)
    assert {finding.status for finding in report.findings} == {status}
    assert ("bfloat16" in str(report)) == ("test_prove.py:" in str(report)) == bool(words)
    assert words in " ".join(str(report).split())


def sent(x):
    """To the next chip."""

    def body(x_ref, o_ref, send, receive):
        pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id=(1,)).start()

    return whole(body, x, scratch_shapes=[pltpu.SemaphoreType.DMA] * 2)


def test_what_wants_several_chips_is_refused_at_once(monkeypatch):
    report = kernels.prove(sent, lambda x: x, arguments=draw)
    assert {finding.status for finding in report.findings} == {"skipped"}
    assert "other chips" in report.findings[0].message
    assert not report.passed and report.not_run == ("sent",) and "NOT RUN" in report.markdown()
    monkeypatch.setattr(proving, "prove_file", lambda *_, **__: report)
    for options, status in (((), 3), (("--allow-skips",), 0), (("--strict",), 1)):
        ended = run("prove", FILE, *options)
        assert ended.exit_code == status and "NOT RUN" in ended.output.splitlines()[-2]


HANGS = """
import time

import jax.numpy as jnp
import numpy as np

import kernels


def endless(x):
    while True:
        time.sleep(0.1)


print(kernels.prove(
    endless, jnp.exp, arguments=lambda rng: (rng.standard_normal((8, 128)).astype(np.float32),),
    rungs=("interpret",), values=("given",), timeout={},
))
"""


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("apart", [True, False], ids=["in a child", "in the caller"])
def test_a_function_of_a_script_may_hang(tmp_path, apart):
    if apart:
        pytest.importorskip("cloudpickle")
    else:  # as where it is not installed
        (tmp_path / "cloudpickle.py").write_text("raise ImportError\n")
    (tmp_path / "hangs.py").write_text(HANGS.format(10))
    done = python("hangs.py", cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "not done after 10 s" in done.stdout
    assert ("endless ran in this process" in done.stdout) != apart


@pytest.mark.parametrize(("change", "says"), [
    ({"function": 3}, "function is 3; accepted: a function"),
    ({"reference": None}, "reference is None; accepted: a function"),
    ({"chips": ("v9",)}, "chips is 'v9'; accepted: v5e"),
    ({"chips": []}, "chips is empty; accepted: one or more of v5e, v6e"),
    ({"rungs": ()}, "rungs is empty; accepted: one or more of interpret, simulate"),
    ({"chips": "v5e"}, "chips is 'v5e'; accepted: a tuple of names"),
    ({"rungs": "compile"}, "rungs is 'compile'; accepted: a tuple"),
    ({"chips": ("h100", "v5e")}, "chips is h100, v5e; accepted: TPUs, or GPUs"),
    ({"timeout": -1}, "timeout is -1; accepted: a number above 0"),
    ({"rungs": ("run",)}, "rungs is 'run'; accepted: interpret, simulate, compile"),
    ({"budget": 0}, "budget is 0; accepted: a number above 0"),
    ({"values": ("odd",)}, "values is 'odd'; accepted: given, mean, wide"),
    ({"differentiable": ("y",)}, "differentiable is 'y'; accepted: of doubled's"),
    ({"differentiable": "x"}, "differentiable is 'x'; accepted: a tuple of names"),
    ({"arguments": lambda rng: 3}, "draws int; accepted: one of a tuple, or a dict"),
    ({"arguments": lambda rng: ()}, "draws no array"),
])  # fmt: skip
def test_a_wrong_argument_is_named(change, says):
    with pytest.raises(ValueError, match="accepted") as told:
        kernels.prove(**dict(function=doubled, reference=abs, arguments=draw) | change)
    assert says in str(told.value)


def test_the_size_of_sums_is_estimated():
    """Of a product of matrices it is about twice the sum of the terms' absolute values."""
    arguments = lambda rng: (rng.standard_normal((8, 64)), rng.standard_normal((64, 8)))
    claim = Claim(declared.Declared(jnp.dot, jnp.dot, arguments))
    x, y = claim.workloads.arguments(claim.workloads.named[0])
    with jax.enable_x64(True):
        [size] = claim.magnitude(x.astype(np.float64), y.astype(np.float64))
    ratio = size / (2 * np.abs(x).astype(np.float64) @ np.abs(y))
    assert 0.7 < np.median(ratio) < 1.4
    assert ratio.min() > 0.2 and claim.terms == 64


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T, -1) @ v


def added(terms, dtype=np.float32):
    add = lambda total, term: (total + term).astype(dtype).astype(np.float32)
    return functools.reduce(add, terms)


@pytest.mark.slow
def test_a_gradient_is_judged_by_bounds_that_are_no_larger_than_its_terms():
    """A right one passes; sums in bfloat16, without a term, or with one sign flipped do not."""
    draw = lambda rng: tuple(rng.standard_normal((n, 16)).astype(np.float32) for n in (32, 24, 24))
    claim = Claim(declared.Declared(attention, attention, draw, ("q", "k", "v")))
    problem = claim.workloads.named[0]
    q, k, v = claim.workloads.arguments(problem, 0)
    pulled = judge._pulled(claim, problem, 0, judge.multiplier())
    [g] = pulled.cotangents
    p = np.exp(q @ k.T) / np.exp(q @ k.T).sum(1, keepdims=True)
    ds = p * (g @ v.T - (g * (p @ v)).sum(1, keepdims=True))
    terms = (ds.T[..., None] * k[:, None], ds[..., None] * q[:, None], p[..., None] * g[:, None])
    right = [*map(added, terms)]
    pulls = lambda gradients: SimpleNamespace(pull=lambda *_: gradients)
    judged = lambda all_: judge.gradients(claim, pulls(all_), problem, 0, None)
    assert judged(right) < 1
    wide = [a.astype(np.float64) for a in (q, k, v, g)]
    with jax.enable_x64(True):
        slopes = jax.jacfwd(lambda *a: jax.vjp(attention, *a[:3])[1](a[3]), range(4))(*wide)
    for place, own in enumerate(terms):
        depends = sum(np.abs(s * a).sum((2, 3)) for s, a in zip(slopes[place], wide))
        assert all((pulled.moves(place, draw) <= depends).all() for draw in range(judge.DRAWS))
        flipped = np.where(abs(right[place]) == abs(right[place]).min(), -1, 1) * right[place]
        for wrong in (added(own, jnp.bfloat16), added(own[1:]), flipped.astype(np.float32)):
            with pytest.raises(Refused, match=f"gradient of {'qkv'[place]}: element"):
                judged([*right[:place], wrong, *right[place + 1 :]])


def test_the_size_of_a_gradient_counts_what_cancels_on_the_way():
    """Where a softmax sees one key, two sums that are equal leave nothing of each other: zero, of
    the size of the sums. A wrong factor is far beyond it elsewhere."""

    def arguments(rng):
        draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
        return draw(4, 32) * np.array([[1e3], [1], [1], [1]], np.float32), draw(8, 32), draw(8, 32)

    claim = Claim(declared.Declared(attention, attention, arguments, ("q",)))
    wide = [a.astype(np.float64) for a in arguments(np.random.default_rng(0))]
    back = np.ones((4, 32))
    with jax.enable_x64(True):
        [size] = claim.gradient_magnitude(*wide, back)
        [least] = claim.gradient_rounding(*wide, back)
        _, pull = jax.vjp(attention, *wide)
        gradient = np.abs(pull(back)[0])
    terms = np.abs(wide[2] @ back[0]).min() * np.abs(wide[1]).min(0)
    assert gradient[0].max() < 1e-30 and (size[0] > terms).all() and (least[0] > terms).all()
    assert (size[1:] >= gradient[1:]).all() and np.median(size[1:] / gradient[1:]) < 1e3


def test_the_size_of_a_result_counts_what_rounding_leaves_of_it():
    """Of 1 + tanh(x) where tanh is nearly -1: about one, though it is nearly zero."""
    function, ones = lambda x: 1 + jnp.tanh(x), np.ones((8, 128), np.float32)
    claim = Claim(declared.Declared(function, function, lambda rng: (-5 * ones,)))
    with jax.enable_x64(True):
        [of_little], [of_two] = (claim.magnitude(x * ones.astype(np.float64)) for x in (-5, 5))
    assert (of_little > 0.1).all() and (of_little < 1).all() and (of_two / 1.1 < 2).all()


def in_float32(x):
    return (x.astype(jnp.float32) / 3).astype(x.dtype)


scattered = lambda x: (
    jnp.zeros(x.shape, jnp.float32).at[jnp.arange(8)].add(x.astype(jnp.float32) / 3)
)
of_itself = jax.custom_vjp(in_float32)
of_itself.defvjp(lambda x: (in_float32(x), None), lambda _, g: (g / 3,))


@pytest.mark.parametrize(
    "reference",
    [
        in_float32,
        scattered,
        of_itself,
        lambda x: jax.lax.cond(x.min() < 0, in_float32, jnp.zeros_like, x.astype(jnp.float32)),
        lambda x: jax.lax.fori_loop(0, x.size // 1024, lambda i, y: y / 3, x.astype(jnp.float32)),
        lambda x: jax.lax.while_loop(
            lambda carry: carry[0] < 1,
            lambda carry: (carry[0] + 1, in_float32(carry[1])),
            (0, x.astype(jnp.float32)),
        )[1],
        lambda x: x * jax.nn.one_hot(jnp.arange(1), 1)[0] / 3,
        lambda x: jax.lax.scan(lambda last, row: (row, in_float32(row)), x[0], x, reverse=True)[1],
        lambda x: jax.lax.scan(
            lambda sum_, row: (sum_ + row / 3, sum_ * 0 + row / 3), jnp.zeros(128, jnp.float32), x
        )[1],
    ],
)
def test_a_reference_that_casts_is_widened(reference):
    claim = Claim(declared.Declared(reference, reference, draw))
    x = claim.workloads.arguments(claim.workloads.named[0])[0].astype(np.float64)
    with multiplying(WHOLE), jax.enable_x64(True):
        [found] = claim.reference(x)
    np.testing.assert_allclose(np.asarray(found), x / 3, rtol=1e-15)


@pytest.mark.slow
def test_the_command_writes_its_reports(tmp_path):
    junit, markdown = tmp_path / "report.xml", tmp_path / "report.md"
    words = ("--rung", "interpret", "--junit", junit, "--markdown", markdown)
    done = run("prove", f"{FILE}:unwritten", *words)
    assert done.exit_code == 1 and "FAILED" in done.stdout
    assert re.fullmatch(r"unwritten: interpret FAILED \(4\), [\d.]+ s\n", done.stderr)
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite.get("name") == "unwritten" and int(suite.get("failures")) == 4
    assert "| `unwritten` | interpret | 4 | **FAILED** |" in markdown.read_text()
    (plain := tmp_path / "plain.py").write_text("x = 1\n")
    both = run("prove", plain, f"{FILE}:unwritten", *words)
    assert both.exit_code == 1 and "FAILED unwritten" in both.stdout
    assert "FAILED plain.py, load" in both.stdout and run("prove", plain, plain).exit_code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "accepted: a Python file"),
        ("import nothing_of_that_name\n", "No module named 'nothing_of_that_name' (mine.py:1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (mine.py:1)"),
        ("x = 1\0\n", "SyntaxError: source code string cannot contain null bytes (mine.py)"),
        ("x = 1\n", "marks nothing to prove; accepted: one with @kernels.proves"),
        ("import kernels\nm = kernels.proves(min, arguments=min)\nm(min), m(min)\n", "twice"),
        ("import sys\nsys.exit(3)\n", "it ended its process: SystemExit: 3 (mine.py:2)"),
    ],
    ids=["no-file", "import", "syntax", "nul", "nothing", "twice", "exit"],
)
def test_a_file_that_cannot_be_proven_says_why(tmp_path, text, says):
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ValueError, match=r".") as told:
        prove_file(str(tmp_path / "mine.py"))
    assert says in str(told.value) and "\n" not in str(told.value)


# A stranger's file, which says in its error what it may.
NOSY = """
import os, resource, socket, tempfile
def may(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return False
    return True
beside, private = may(open, __file__ + ".new", "w"), may(tempfile.TemporaryFile)
reach = may(socket.create_connection, ("127.0.0.1", PORT))
secret, most = os.environ.get("A_TOKEN"), resource.getrlimit(resource.RLIMIT_FSIZE)[0] >> 30
raise KeyError(f"{beside} {private} {reach} {may(os.kill, PID, 0)} {secret} {most}")
"""


@pytest.mark.parametrize(
    ("walled", "says"), [(False, "True True True True"), (True, "False True False False")]
)
def test_what_a_strangers_file_may(tmp_path, monkeypatch, walled, says):
    if walled:
        try:
            walls()
        except (ValueError, MissingPackage) as refusal:
            pytest.skip(f"NOT RUN: the sandbox's own test: {refusal}")
    monkeypatch.setenv("A_TOKEN", "planted")
    file = tmp_path / "a file.py"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        file.write_text(NOSY.replace("PORT", port).replace("PID", str(os.getpid())))
        with pytest.raises(ValueError, match=f"{says} None 2'"):
            prove_file(str(file), sandbox=walled)
    assert file.with_name("a file.py.new").exists() != walled


def test_a_sandbox_that_cannot_be_is_refused_and_one_that_can_has_its_walls(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackage, match="apt install bubblewrap"):
        walls()
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho No permissions to create new namespace >&2; exit 1\n")
    bwrap.chmod(0o755)
    done = run("judge", FILE, "--sandbox")
    assert done.exit_code == 2 and "refuses it (No permissions" in " ".join(done.output.split())
    monkeypatch.setattr(sandbox, "_refusal", lambda program: "")
    words = " ".join(walls(["/tmp/it/x.py"]))
    assert words.startswith(f"{bwrap} --unshare-all --die-with-parent --ro-bind / / ")
    assert words.index("--tmpfs /tmp") < words.index("--ro-bind-try /tmp/it /tmp/it")
    assert "--bind" not in words and "/tmp/it/x.py" not in words


def test_a_report_is_a_table_junit_and_markdown():
    report = Report(
        (
            ProblemResult("f", "interpret", "a", "passed", used=0.25, seconds=1.0),
            ProblemResult("f", "compile", "a", "failed", "x < y | z", "by g", chips=("v5e", "v6e")),
        ),
        ("left out",),
    )
    assert not report.passed and len(report.failures) == 1
    assert "| `f` | compile for v5e, v6e | 1 | **FAILED** |" in report.markdown()
    assert "x &lt; y \\| z; by g" in report.markdown()
    assert ElementTree.fromstring(report.junit()).find("testsuite").get("failures") == "1"
    assert "x &lt; y" in report._repr_html_()
    json.dumps([vars(each) for each in report.findings])


@pytest.mark.slow
def test_a_primitive_that_no_interpreter_has_is_no_fault(tmp_path):
    (tmp_path / "own.py").write_text(
        """
import jax, kernels, numpy as np
from jax.experimental import pallas as pl
from jax.extend.core import Primitive

on_chip = Primitive("on_chip")
on_chip.def_abstract_eval(lambda x: x)

def body(x_ref, o_ref):
    o_ref[...] = on_chip.bind(x_ref[...])

@kernels.proves(lambda x: x, arguments=lambda rng: (rng.random((8, 128), np.float32),))
def kernel(x):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
"""
    )
    report = prove_file(str(tmp_path / "own.py"), rungs=("interpret", "simulate"))
    assert {result.status for result in report.findings} == {"skipped"} and report.not_run
    assert all("MLIR translation rule" in result.message for result in report.findings)
    assert len(report.of("kernel", "interpret")) > 1, "the others go on"
