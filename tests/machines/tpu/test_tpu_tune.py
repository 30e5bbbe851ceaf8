"""Tuning: which candidates there are, their ranking, and going on after a stop."""

import math

import jax
import jax.numpy as jnp
import pytest

from kernels import tpu
from kernels.figures import Key, TuningStore, read
from kernels.machines.tpu import tuner
from kernels.matmul import BlockSizes, matmul
from kernels.matmul.blocks import candidates
from kernels.proof.catalog import OPERATORS

MATMUL = OPERATORS["matmul"]
SMALL = "m=512 k=512 n=512 bfloat16"
KEY = Key.of("matmul", "pallas", MATMUL.workloads.find(SMALL), "v5e")
X = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16)
CANDIDATES = [{"block": block} for block in candidates(512, 512, 512, "bfloat16", 128 << 20)]


def tune(most=24, **options):
    return tpu.tune(matmul, X, X, candidates=CANDIDATES, most=most, **options)


def refused(kind):
    return tpu.TpuCompileError(kind, "the compiler gave up")


@pytest.fixture
def uncompiled(monkeypatch):
    """Puts an answer in the place of the compiler's; it is asked for programs by name alone."""
    monkeypatch.setattr(tuner, "libtpu_version", lambda: "0")
    monkeypatch.setattr(tuner, "export", lambda *args, name, **options: name)
    return lambda answer: monkeypatch.setattr(tuner, "estimate_all", answer)


def test_candidates_divide_and_fit_and_are_more_where_vmem_is():
    found = candidates(4096, 2048, 1024, "bfloat16", 64 << 20)
    assert len(found) > 20 and len(set(found)) == len(found)
    for b in found:
        assert 4096 % b.bm == 2048 % b.bk == 1024 % b.bn == 0
        assert b.vmem_bytes("bfloat16") <= 64 << 20
        b.fitted(4096, 2048, 1024, "bfloat16")
    (whole,) = candidates(300, 200, 100, "float32", 64 << 20)  # of odd sizes
    assert (whole.bm, whole.bk, whole.bn) == (300, 200, 100)
    few, many = (len(candidates(4096, 4096, 4096, "int8", v << 20)) for v in (32, 128))
    assert few < many


def test_a_kernel_with_more_rounds_than_are_counted_has_no_rank(uncompiled):
    """What is counted of it is a part, and would be the fastest of all."""
    known = dict(chip="v5e", cycles=1.0, hbm_bytes=0, bound="compute", method="schedule")
    known |= dict(utilisation=0.1, ops=(), optimal_seconds=None, flops=1.0, libtpu="0")
    part = tpu.Estimate("part", seconds=1e-9, depends=(tuner.TIRED,), **known)
    whole = tpu.Estimate("whole", seconds=1e-3, **known)
    uncompiled(lambda programs, **options: [whole, part, whole])
    found = tune(2)
    assert found.best.seconds == 1e-3 and math.isinf(found.trials[1].seconds)
    assert found.trials[1].note == tuner.TIRED


def test_neither_the_default_nor_a_profile_is_asked_for_where_nobody_wants_them(uncompiled):
    asked = []

    def answer(programs, *, profile, **more):
        asked.append((len(programs), profile))
        return [refused("vmem") for _ in programs]

    uncompiled(answer)
    found = tune(2, default=False, profile=False)
    assert asked == [(2, False)] and math.isnan(found.default_seconds) and len(found.trials) == 2
    tune(2)
    assert asked[1:] == [(3, True)]


def test_tune_ranks_and_remembers(scratch, tmp_path):
    path = tmp_path / "tuned.csv"

    def store():
        return TuningStore(KEY, path)

    steps = []
    first = tune(3, store=store(), progress=lambda done, of: steps.append((done, of)))
    assert steps[-1] == (4, 4)
    assert [t.seconds for t in first.trials] == sorted(t.seconds for t in first.trials)
    assert math.isfinite(first.best.seconds) and math.isfinite(first.default_seconds)
    records = read(path)
    # Three candidates; what the operator chooses by itself may be another choice tomorrow.
    assert len(records) == 3 and {r.kind for r in records} == {"estimated"}
    again = tune(3, store=store())
    assert all(t.remembered for t in again.trials)
    assert again.best.seconds == pytest.approx(first.best.seconds, rel=1e-3)
    assert {r.bound for r in records} <= {"compute", "HBM", "latency"} and records[0].method
    other = TuningStore(Key.of("matmul", "pallas", MATMUL.workloads["tiny"], "v5e"), path)
    assert not other and len(store()) == 3


def test_a_stopped_run_keeps_what_it_had(scratch, tmp_path):
    path = tmp_path / "tuned.csv"

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(8, store=TuningStore(KEY, path), progress=stop)
    assert len(read(path)) == 3  # one batch, less the operator's own choice


@pytest.mark.parametrize("kind", ["timeout", "crashed", "disk", "vmem"])
def test_what_may_pass_is_tried_again(kind, tmp_path, uncompiled):
    uncompiled(lambda programs, **options: [refused(kind) for _ in programs])
    store = TuningStore(KEY, tmp_path / "tuned.csv")
    found = tune(1, store=store)
    assert math.isinf(found.default_seconds) and math.isinf(found.best.seconds)
    assert len(store) == (1 if kind == "vmem" else 0)


def test_what_an_earlier_run_kept_of_a_timeout_is_tried_again(uncompiled):
    tried = []

    def refuse(programs, **options):
        tried.extend(programs)
        return [refused("vmem") for _ in programs]

    uncompiled(refuse)
    late = "the compiler had not finished matmul for v5e after 120 s"
    store = {
        "default": (math.inf, "", late),
        "block=512×512×512": (math.inf, "", "the kernel asks for"),
    }
    tune(100, store=store)
    assert "matmul default" in tried and "matmul block=512×512×512" not in tried


@pytest.mark.libtpu
def test_nothing_to_tune():
    store = {}
    with pytest.raises(ValueError, match="candidates is empty; accepted: one at least"):
        tpu.tune(matmul, X, X, candidates=[], store=store)
    with pytest.raises(ValueError, match="chip is 'v9'"):
        tune(chip="v9", store=store)
    assert not store


def test_a_stranger_s_function_is_tuned(scratch):
    """A function that no catalog knows, with options of its own, one of which it refuses."""

    def doubled(x, y, *, size=128):
        return 2 * matmul(x, y, block=BlockSizes(size, 512, 512))

    found = tpu.tune(doubled, X, X, candidates=({"size": n} for n in (100, 128, 512)))
    assert found.name == "doubled"
    best, other, refused = found.trials
    assert best.tuning == {"size": 512} and best.seconds < other.seconds == found.default_seconds
    assert math.isinf(refused.seconds) and "block.bm is 100" in refused.note
