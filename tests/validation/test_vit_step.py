"""The training step of a vision transformer: what its records say, and where they come from."""

import pytest

from kernels.figures import read, store
from kernels.machines.tpu.estimate import Estimate, OpEstimate
from kernels.proof.catalog import OPERATORS
from validation import vit_step
from validation.vit_step import ATTENTIONS, TrainingStep

FULL = vit_step.DEPTH, vit_step.BATCH, "v5e"


def test_records_use_the_catalog_s_names_and_the_published_problem():
    keys = {name: vit_step._key(name, *FULL) for name in ATTENTIONS}
    known = {entry.name for entry in OPERATORS["vit_attention"].implementations}
    assert {key.implementation for key in keys.values()} <= known
    assert len(set(keys.values())) == len(ATTENTIONS)
    [slowdown] = [r for r in read("published.csv") if r.quantity == "slowdown"]
    assert slowdown.key == keys["jax_flash"]


def test_what_is_not_recorded_is_named():
    with pytest.raises(ValueError, match=r"step is torch, depth=1 batch=128 .* on v5e; accepted"):
        vit_step.recorded(depth=1)


def test_calls_without_a_cost_do_not_count():
    assert vit_step._optimal(-12.98) == pytest.approx(0.02)
    assert vit_step._optimal(0.3) == pytest.approx(0.3)


def estimate():
    """What the compiler could say of a step: attention forward and backward, and the rest."""

    def op(kind, origin, cycles, moved):
        return OpEstimate("op", kind, cycles, moved, "XLA's estimated_cycles", "HBM", origin=origin)

    ops = (
        op("kernel", "jit(train)/jvp(attention)/vit_attention_forward", 1.5e6, 100),
        op("kernel", "", 1.5e6, 10),  # XLA's own attention
        op("relayout", "jit(train)/transpose(jvp(attention))/transpose", 3e6, 200),
        op("matmul", "jit(train)/jvp(linear)/dot_general", 6e6, 400),
        op("convert", "jit(train)/sub", 0.75e6, 50),
    )
    total = sum(o.cycles for o in ops)
    moved = sum(o.hbm_bytes for o in ops)
    return Estimate(
        "step", "v5e", total, total / 1.5e9, moved, "HBM", "a method", 0.5, ops, None, 1.0, "1"
    )


def test_the_parts_of_a_step_make_the_whole():
    found = estimate()
    parts = vit_step._parts(found)
    assert parts == {
        ("attention", "kernel"): (pytest.approx(2e-3), 110),
        ("attention", "relayout"): (pytest.approx(2e-3), 200),
        ("rest", "matmul"): (pytest.approx(4e-3), 400),
        ("rest", "elementwise"): (pytest.approx(0.5e-3), 50),
    }
    step = TrainingStep("pallas", *FULL, found.seconds, found.hbm_bytes, 1e-3, parts, found)
    assert step.spent() == pytest.approx(step.seconds) and step.moved() == step.hbm_bytes
    assert step.spent("attention") == pytest.approx(4e-3)
    assert step.spent(what="kernel") == pytest.approx(2e-3)


def test_what_is_saved_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(vit_step, "versions", lambda *packages: " ".join(packages))
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    found = estimate()
    parts = {key: (t, round(1e9 * moved)) for key, (t, moved) in vit_step._parts(found).items()}
    steps = {
        name: TrainingStep(name, *FULL, found.seconds * i, 10**9 * i, 1e-3, parts, found)
        for i, name in enumerate(ATTENTIONS, 1)
    }
    vit_step.save(list(steps.values()))
    totals, rows = read(vit_step.TOTALS), read(vit_step.PARTS)
    assert {r.kind for r in (*totals, *rows)} == {"estimated"}
    assert {r.pass_ for r in (*totals, *rows)} == {"step"}
    assert {(r.unit, r.quantity) for r in totals} == {
        ("ms", "time"),
        ("GB", "traffic"),
        ("ms", "own estimate"),
    }
    assert {(r.bound, r.method) for r in totals if r.quantity == "time"} == {("HBM", "a method")}
    again = vit_step.recorded()
    assert tuple(again) == ATTENTIONS
    for attention, step in again.items():
        assert step.seconds == pytest.approx(steps[attention].seconds, rel=1e-6)
        assert step.hbm_bytes == steps[attention].hbm_bytes
        assert step.parts.keys() == parts.keys()
        assert step.spent() == pytest.approx(steps[attention].spent(), rel=1e-6)


def test_without_torchax_the_message_names_it(monkeypatch):
    from kernels import optional

    monkeypatch.setattr(optional, "available", lambda module: module != "torchax")
    with pytest.raises(optional.MissingPackage, match=r"torchax is needed for .*\[torchax\]"):
        vit_step.step("pallas")
