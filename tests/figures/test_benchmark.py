"""Measurements on this machine: in turn, beside their limit, and kept as measured."""

import dataclasses

import numpy as np
import pytest
from commands import run

from kernels import figures
from kernels.cli import terminal
from kernels.figures import benchmark, store
from kernels.figures.benchmark import bench
from kernels.machines.stopwatch import Timing
from kernels.proof.backends.nki import NKI
from kernels.proof.backends.numpy import NUMPY
from kernels.proof.backends.processor import processor
from kernels.proof.backends.torch import TORCH
from kernels.proof.backends.xla import XLA
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

ADD = OPERATORS["add_vectors"]
SMALL = Workload("small", {"n": 1000})


def measurement(**seconds):
    timings = {name: Timing(name, tuple(values), "a machine") for name, values in seconds.items()}
    return benchmark.Measurement(ADD, SMALL, False, "a machine", timings, None)


def test_ratios_are_taken_round_by_round():
    """A machine that slows down for a while slows both; medians of each alone would not tell."""
    found = measurement(xla=[2.0, 20.0, 4.0], fast=[1.0, 10.0, 2.0])
    assert found.ratio("xla", "fast") == (2.0, 2.0, 2.0) and found.ratio("fast", "xla")[1] == 0.5


def test_what_is_kept():
    one, two = measurement(xla=[0.001, 0.003, 0.002], fast=[0.001] * 3).records()
    assert (one.kind, one.value, one.unit, one.chip) == ("measured", 2.0, "ms", "a machine")
    assert "median of 3 interleaved rounds, p20 1.400, p80 2.600" in one.method
    assert two.implementation == "fast" and "numpy" in two.versions


def test_a_row_names_the_taichi_that_ran(monkeypatch):
    """Both may be installed; figures of the one must not pass for the other's."""
    monkeypatch.setattr(benchmark.optional, "available", lambda name: True)
    monkeypatch.setattr(benchmark, "versions", lambda *names: " ".join(names))
    for used, idle in (("taichi", "quadrants"), ("quadrants", "taichi")):
        monkeypatch.setenv("KERNELS_TAICHI", used)
        [row] = measurement(xla=[0.001] * 3).records()
        assert used in row.versions and idle not in row.versions


def test_only_what_runs_here_is_timed():
    said = []
    found = bench(ADD, ADD.implementations, SMALL, repeats=3, progress=said.append)
    assert said == [f"add_vectors{w}, {SMALL}" for w in ("/xla: first call", ": 3 rounds of xla")]
    assert set(found.timings) == {"xla"} and len(found.timings["xla"].seconds) == 3
    assert "TPU" in ADD["pallas"].backend.why_not("measure")
    assert "Neuron device" in NKI.why_not("measure")
    with pytest.raises(ValueError, match="entry is pallas; accepted: one that runs on cpu"):
        bench(ADD, [ADD["pallas"]], SMALL)


def on_the_cpu(operator):
    return [i for i in operator.implementations if i.backend in (NUMPY, XLA, TORCH)]


@pytest.mark.parametrize(
    "operator", filter(on_the_cpu, OPERATORS.values()), ids=lambda operator: operator.name
)
def test_every_operator_can_be_timed(operator):
    workload, here = operator.workloads.named[0], on_the_cpu(operator)
    found = bench(operator, here, workload, repeats=2)
    assert not found.refused and {i.name for i in here} <= set(found.timings)
    assert all(row.value > 0 and row.chip == processor() for row in found.records())


def test_one_that_refuses_is_left_out_by_name(monkeypatch):
    """A kernel for which VMEM is too small must not end the run of the others."""

    def refuses(x, y):
        raise ValueError("x has no room; accepted: less")

    whole, picky = ADD.whole, dataclasses.replace(ADD["xla"], name="pallas")
    monkeypatch.setattr(ADD, "whole", lambda name: refuses if name == "pallas" else whole(name))
    found = bench(ADD, [ADD["xla"], picky], SMALL, repeats=3)
    assert set(found.timings) == {"xla"}
    assert found.refused == {"pallas": "ValueError: x has no room; accepted: less"}
    with pytest.raises(ValueError, match="no room"):
        bench(ADD, [picky], SMALL)


@pytest.mark.parametrize(
    ("name", "backend", "told"),
    [("xla", "tpu", "v5e"), ("pallas", "tpu", "v5e"), ("triton", "gpu", "TPU v5 lite")],
)
def test_a_row_names_the_chip_that_its_arrays_were_on(name, backend, told, monkeypatch):
    import jax

    device = type("Device", (), {"device_kind": "TPU v5 lite"})()
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert ADD[name].backend.why_not("measure") == "" and ADD[name].backend.chip() == told
    giou = OPERATORS["giou"]
    assert giou["numpy"].backend.chip() == giou["torch"].backend.chip() == processor()
    if backend == "tpu":  # the name of the compiler belongs to the figure
        [row] = benchmark.Measurement(
            ADD, SMALL, False, "", {"xla": Timing("xla", (0.001, 0.002), "v5e")}, None, calls=8
        ).records()
        assert row.chip == "v5e" and "libtpu" in row.versions and "rounds of 8 calls" in row.method


def test_nki_is_timed_where_there_is_a_neuron_device(monkeypatch):
    from kernels import neuron

    nki = OPERATORS["giou"]["nki"]
    monkeypatch.setattr(neuron, "device", lambda: True)
    monkeypatch.setattr(neuron.vendor, "find", lambda name: None)
    assert "AWS's package" in nki.backend.why_not("measure")
    monkeypatch.setattr(neuron.vendor, "find", lambda name: neuron)
    assert nki.backend.why_not("measure") == "" and nki.backend.chip() in neuron.CHIPS
    assert "emulated" in OPERATORS["giou"]["gpsimd"].backend.why_not("measure")


def test_the_limit_is_timed_in_the_same_rounds_and_scaled(monkeypatch):
    calls = []
    limit = lambda workload, device: ("a copy", lambda: calls.append(1), 0.5)
    limited = dataclasses.replace(ADD.workloads, limit=limit)
    monkeypatch.setattr(type(ADD), "workloads", limited)
    found = bench(ADD, [ADD["xla"]], SMALL, repeats=4)
    assert found.limit == "a copy" and len(calls) == 5  # once before the rounds
    assert len(found.timings[found.limit].seconds) == 4
    assert found.timings[found.limit].median < found.timings["xla"].median


@pytest.mark.parametrize("name", ["xla", "torch"])
def test_gradients_are_timed_with_the_forward_pass(name):
    giou = OPERATORS["giou"]
    found = benchmark.prepare(giou, giou[name], giou.workloads["tiny"], gradient=True)()
    gradients = found[1] if name == "xla" else found
    assert [tuple(g.shape) for g in gradients] == [(2, 8, 4)] * 2
    assert all(np.asarray(g).any() for g in gradients)


def test_the_command_keeps_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    said = []
    update = lambda bar, task, description: said.append(description)
    monkeypatch.setattr(terminal.bars.Progress, "update", update)
    done = run("bench", "add_vectors", "-w", "n=100", "--repeats", 2, "--record")
    assert done.exit_code == 0, done.output
    assert said[0].startswith("add_vectors/xla: first call, ") and len(said) == 2
    [row] = figures.read("measured.csv")
    assert (row.operator, row.implementation, row.kind) == ("add_vectors", "xla", "measured")
    assert (row.sizes, row.pass_, row.workload) == ({"n": 100}, "forward", "")
    assert "measured on" in done.output and "needs a TPU" in done.output


def test_a_device_that_is_not_there():
    done = run("bench", "giou/torch", "--device", "cuda")
    if done.exit_code == 0:
        pytest.skip("there is a CUDA device here")
    assert done.exit_code == 2 and "CUDA" in done.output
    done = run("bench", "giou/torch", "--device", "tpu")
    assert done.exit_code == 2 and "accepted: cpu, cuda" in done.output


@pytest.mark.parametrize("name", ["numpy", "torch", "taichi"])
def test_an_operator_that_takes_out_writes_to_the_same_memory_each_time(name):
    bricks = OPERATORS["brick_pad"]
    workload = bricks.workloads["small"]
    call = benchmark.prepare(bricks, bricks[name], workload)
    first = call()
    assert call() is first
    (tile,) = bricks.workloads.arguments(workload)
    assert np.array_equal(first, bricks.reference(tile, **workload.options))
