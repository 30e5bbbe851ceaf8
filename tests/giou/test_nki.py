"""GIOU in both generations of NKI: degenerate boxes, both engines, and how fast."""

import time

import numpy as np
import pytest
from close import assert_right
from hypothesis import given
from hypothesis import strategies as st

from kernels import neuron, optional
from kernels.giou import giou, neuronxcc, nki
from kernels.machines.neuron import InterpretParams, vendor
from kernels.proof.catalog import OPERATORS
from kernels.proof.workload import Workload

WORKLOADS = OPERATORS["giou"].workloads
GENERATIONS = ("nki", "neuronxcc")


def boxes(b, n, values="normal", seed=0):
    return WORKLOADS.arguments(Workload("test", {"b": b, "n": n}, values=values), seed)


@given(b=st.integers(1, 200), n=st.integers(1, 600), order=st.integers(0, 3))
def test_generations_agree_and_reciprocals_may_be_on_either_engine(b, n, order):
    """Not to the bit: modern NKI multiplies by a reciprocal, beta 1 divides."""
    preds, targets = boxes(b, n, "degenerate", seed=order)
    params = InterpretParams(order=order)
    scores = [giou(preds, targets, implementation=g, interpret=params) for g in GENERATIONS]
    scores.append(neuron.simulate(nki.giou_kernel, preds, targets, True, params=params))
    for got in scores:
        assert_right("giou", got, preds, targets)


def test_the_published_size_is_simulated_in_a_second():
    preds, targets = boxes(1024, 256)
    for name in GENERATIONS:
        start = time.process_time()
        giou(preds, targets, implementation=name)
        assert time.process_time() - start < 1, name


def test_the_tile_fits_twice_into_sbuf():
    """The arithmetic that BOXES is chosen by."""
    shape = (128, nki.BOXES, 4)
    found = neuron.estimate(nki.giou_kernel, *np.ones((2, *shape), np.float32))
    assert 2 * found.sbuf_bytes <= 2 * 30 * 4 * nki.BOXES <= neuron.CHIPS["inf2"].sbuf_bytes


@pytest.mark.parametrize("name", [*GENERATIONS, "gpsimd"])
def test_tensors_of_pytorch_are_taken(name):
    torch = pytest.importorskip("torch")
    if name == "gpsimd" and not optional.available("g++"):
        pytest.skip("needs g++")
    preds, targets = boxes(3, 4)
    got = giou(torch.from_numpy(preds), torch.from_numpy(targets), implementation=name)
    assert np.array_equal(got, giou(preds, targets, implementation=name))


SIMULATORS = {"nki": ("simulate", "nki 0.3 or newer")}
SIMULATORS |= {"neuronxcc": ("simulate_kernel", "neuronxcc.nki of SDK 2.20 to 2.26")}


@pytest.mark.parametrize("generation", SIMULATORS)
def test_in_the_vendor_s_simulator(generation):
    simulate, needs = SIMULATORS[generation]
    if (run := getattr(vendor.find(generation), simulate, None)) is None:
        pytest.skip(f"needs {needs}")
    preds, targets = boxes(131, 101)
    if generation == "nki":
        got = run(nki.giou_kernel)(preds, targets)
    else:
        got = run(neuronxcc.giou_kernel, *(x.reshape(131, -1) for x in (preds, targets)))
    assert_right("giou", np.asarray(got), preds, targets)
