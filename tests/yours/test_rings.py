"""A ring that somebody brings climbs on several devices, and a wrong one is told what is wrong."""

import jax
import jax.numpy as jnp
import pytest
from commands import needs_libtpu, run
from jax.sharding import PartitionSpec as P
from refused import refuses

import kernels
from kernels.yours.proving import prove_file
from tests.yours import rings

FOUR = {"mesh": {"x": 4}, "in_specs": P("x"), "out_specs": P()}
HANDED = {"reference": lambda x: x, "arguments": rings.draw}


@pytest.fixture(scope="module")
def report():
    """What the simulated devices say of every kernel of the file, in one child."""
    return prove_file(rings.__file__, rungs=("interpret", "simulate"))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["right_gradient", "met_by_xla", "product"])
def test_a_right_one_passes(report, kernel):
    for rung in ("interpret", "simulate"):
        assert {result.status for result in report.of(kernel, rung)} == {"passed"}
    assert f"{kernel}: on {4 if kernel == 'product' else 3} devices" in str(report)


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "rung", "says"), [
    ("no_barrier", "simulate", "entered the kernel: no barrier keeps it back (rings.py:"),
    ("shared", "simulate", "race: a read of hbm["),  # in few orders: 12 of them are tried
    ("deadlock", "interpret", "deadlock: device 0 waits at rings.py:"),
    ("wrong_neighbour", "interpret", "the first index counts the devices along x"),
    ("last_device", "interpret", "element [2, "),  # right on all devices but one
    ("half_a_gradient", "interpret", "gradient of x: element ["),
])  # fmt: skip
def test_a_wrong_one_is_caught_at_its_rung(report, kernel, rung, says):
    before = [] if rung == "interpret" else report.of(kernel, "interpret")
    assert all(result.status == "passed" for result in before)
    failed = [result for result in report.of(kernel, rung) if result.status == "failed"]
    assert failed and says in failed[0].message, failed
    assert "Traceback" not in failed[0].message


@pytest.mark.slow
def test_what_a_file_changes_elsewhere_is_changed_on_all_devices(tmp_path):
    (tmp_path / "beside.py").write_text("part = lambda x: x\ndef local(x): return part(x)\n")
    specs = 'mesh={"x": 2}, in_specs=P("x"), out_specs=P("x")'
    (tmp_path / "own.py").write_text(f"""
import beside, jax, kernels, numpy as np
from jax.sharding import PartitionSpec as P
draw = lambda rng: (rng.random((4, 8), np.float32),)
beside.part = lambda x: 2 * x
@kernels.proves(lambda x: x, arguments=draw, {specs})
def kernel(x): return beside.local(x)
""")
    (result, *_) = prove_file(f"{tmp_path / 'own.py'}", rungs=("interpret",)).of(
        "kernel", "interpret"
    )
    assert result.status == "failed" and "element [" in result.message


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize(
    ("name", "status"),
    [("right_gradient", 0), ("no_barrier", 1)],  # a collective_id that nobody uses
)
def test_it_compiles_for_the_mesh(name, status):
    ended = run("prove", f"{rings.__file__}:{name}", "--mesh", "x=8", "--rung", "compile")
    assert ended.exit_code == status and "on 8 devices (x=8)" in ended.output


@pytest.mark.slow
@needs_libtpu
def test_a_judge_weighs_one_device():
    x = "f32[16384,1024]"  # 64 MiB; a device has a quarter, and gathers all
    judgement = kernels.judge(rings.gather, **HANDED, **FOUR, full=x, chips=("v6e", "v7x"))
    v6e, v7x = judgement.chips
    assert v6e.verdict == v7x.verdict == "right"
    assert 80 << 20 <= v6e.hbm_bytes < 100 << 20 and v6e.bound == "link"
    assert any("nobody published what the links of a v7x" in note for note in judgement.notes)


@needs_libtpu
def test_explain_says_what_a_device_does():
    x = jax.ShapeDtypeStruct((16384, 1024), jnp.float32)
    found = kernels.explain(rings.gather, x, **FOUR)
    assert found.facts.chip == "v5e" and "<table" in found._repr_html_()
    assert found.html().startswith("<!doctype html>")
    page = str(found)
    assert "on each of 4 devices (x=4)" in page and "the links to other chips bind" in page
    assert "f32[4096,1024]" in page


test_a_wrong_mesh_is_refused_before_anything_runs = refuses(
    lambda options: kernels.prove(rings.gather, **HANDED | FOUR | options, rungs=("compile",)),
    ({"mesh": {}}, r"mesh is {}; accepted: axis name"),
    ({"mesh": "x=4"}, r"mesh is 'x=4'; accepted: axis name"),
    ({"mesh": {"x": 0}}, r"mesh\['x'\] is 0; accepted: a whole number"),
    ({"mesh": None}, r"mesh is None; accepted: axis name"),
    ({"in_specs": None}, r"in_specs is None; accepted: a jax.sharding.PartitionSpec"),
    ({"out_specs": P("y")}, r"out_specs is .*'y'.*; accepted: .*of the axes 'x'"),
    ({"in_specs": "x"}, r"in_specs is 'x'; accepted: "),
    ({"in_specs": (P(), P())}, r"in_specs is \(.*; accepted: .*as jax.shard_map takes them"),
    ({"mesh": {"x": 5}}, r"shape of .* is \(24, 128\); accepted: what .* cuts over 5 devices"),
)


@pytest.mark.parametrize(("options", "says"), [
    ({}, "mesh=, in_specs= and out_specs="),
    (FOUR | {"mesh": {"x": 8, "y": 4}}, "32 devices are more than the 16 that are simulated"),
])  # fmt: skip
def test_what_is_not_run_says_why(options, says):
    report = kernels.prove(rings.gather, **HANDED, **options, rungs=("interpret",))
    assert {result.status for result in report.findings} == {"skipped"} and report.not_run
    assert says in report.findings[0].message


@needs_libtpu
def test_tune_says_that_it_takes_no_mesh():
    done = run("tune", f"{rings.__file__}:product", "--over", "scale=1,2")
    assert done.exit_code == 2 and "product, on 4 devices (x=2, y=2); accepted" in done.output
