"""The training step of a vision transformer: what its records say, and where they come from."""

import dataclasses
from types import SimpleNamespace

import pytest

from kernels import optional
from kernels.figures import read, store
from kernels.machines.tpu.estimate import Estimate, OpEstimate
from kernels.proof.catalog import OPERATORS
from validation import in_parts, vit_step
from validation.in_parts import ProgramInParts
from validation.vit_step import ATTENTIONS

FULL = vit_step.DEPTH, vit_step.BATCH, "v5e"


def test_records_use_the_catalog_s_names_and_the_published_problem():
    keys = {name: vit_step._key(name, *FULL) for name in ATTENTIONS}
    known = {entry.name for entry in OPERATORS["vit_attention"].implementations}
    assert {key.implementation for key in keys.values()} <= known
    assert len(set(keys.values())) == len(ATTENTIONS)
    [slowdown] = [r for r in read("published.csv") if r.quantity == "slowdown"]
    assert slowdown.key == keys["jax_flash"]


def estimate():
    """What the compiler could say of a step: attention forward and backward, and the rest."""

    def op(kind, origin, cycles, moved):
        return OpEstimate("op", kind, cycles, 1000 * moved, "its own cycles", "HBM", origin=origin)

    ops = (
        op("kernel", "jit(train)/jvp(attention)/vit_attention_forward", 1.5e6, 100),
        op("kernel", "", 1.5e6, 10),  # XLA's own attention
        op("relayout", "jit(train)/transpose(jvp(attention))/transpose", 3e6, 200),
        op("matmul", "jit(train)/jvp(linear)/dot_general", 6e6, 400),
        op("convert", "jit(train)/sub", 0.75e6, 50),
    )
    total = sum(o.cycles for o in ops)
    moved = sum(o.hbm_bytes for o in ops)
    compiled = SimpleNamespace(cost={"optimal_seconds": -12.999})  # calls without a cost count −1
    figures = total, total / 1.5e9, moved, "HBM", "a method", 0.5, ops, None, 1.0, "1"
    return dataclasses.replace(Estimate("step", "v5e", *figures), compiled=compiled)


def training_step(name, monkeypatch):
    monkeypatch.setattr(in_parts, "versions", lambda *packages: " ".join(packages))
    key = vit_step._key(name, *FULL)
    return ProgramInParts(name, key, tuple(vit_step._records(key, estimate())))


def test_the_parts_of_a_step_make_the_whole(monkeypatch):
    step = training_step("pallas", monkeypatch)
    assert step.parts == {
        *(("attention", "kernel"), ("attention", "relayout")),
        *(("rest", "matmul"), ("rest", "elementwise")),
    }
    assert step.seconds == pytest.approx(8.5e-3) and step.optimal_seconds == pytest.approx(1e-3)
    assert step.spent() == pytest.approx(step.seconds) and step.moved() == step.hbm_bytes == 760_000
    assert step.spent("attention") == pytest.approx(4e-3)
    assert step.spent(what="kernel") == pytest.approx(2e-3)
    assert step.moved("attention", "kernel") == 110_000
    assert {r.pass_ for r in step.records} == {"step"}
    [whole] = (r for r in step.records if (r.quantity, bool(r.part)) == ("time", False))
    assert (whole.bound, whole.method, whole.unit) == ("HBM", "a method", "ms")


def test_what_is_saved_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    steps = {name: training_step(name, monkeypatch) for name in ATTENTIONS}
    vit_step.save(list(steps.values()))
    again = vit_step.recorded()
    assert tuple(again) == ATTENTIONS
    for name, step in again.items():
        assert {*step.records} == {*steps[name].records}
    with pytest.raises(ValueError, match=r"step is torch, depth=1 batch=128 .* on v5e; accepted"):
        vit_step.recorded(depth=1)


def test_without_torchax_the_message_names_it(monkeypatch):
    monkeypatch.setattr(optional, "available", lambda module: module != "torchax")
    with pytest.raises(optional.MissingPackage, match=r"torchax is needed for .*\[torchax\]"):
        vit_step.step("pallas")
