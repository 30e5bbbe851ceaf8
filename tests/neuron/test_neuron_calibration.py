"""Estimates beside published times of Trn1; and what a product costs to simulate."""

import csv
import hashlib
import statistics
import time
from pathlib import Path

import jax
import ml_dtypes
import numpy as np

import kernels
from kernels import neuron
from kernels.matmul import nki

ROWS = list(
    csv.DictReader(
        (Path(kernels.__file__).parents[1] / "results" / "neuron_calibration.csv").open()
    )
)


def error(row):
    return float(row["estimated_ms"]) / float(row["published_ms"]) - 1


def test_what_was_fitted_is_kept_apart_by_a_hash_of_the_key():
    for row in ROWS:
        digest = hashlib.sha256(f"{row['kernel']} {row['problem']}".encode()).digest()
        assert row["part"] == ("test" if digest[0] % 2 else "fit") and row["source"]


def test_medians_are_within_twenty_per_cent_and_the_ranking_is_right():
    for part in ("fit", "test"):
        assert statistics.median(abs(error(r)) for r in ROWS if r["part"] == part) < 0.2
    steps = [r for r in ROWS if r["kernel"].startswith("matmul")]
    by_time = [sorted(steps, key=lambda r: float(r[c])) for c in ("published_ms", "estimated_ms")]
    assert by_time[0] == by_time[1] and len(steps) == 4


def test_the_rate_of_the_copies_is_what_the_fitted_kernel_moved():
    """The one that is nothing but copies; the others of its year were estimated at that rate."""
    (tiled,) = (r for r in ROWS if r["kernel"] == "matmul tiled")
    reached = float(tiled["moved_gb"]) / float(tiled["published_ms"]) * 1000
    assert tiled["part"] == "fit" and abs(reached / float(tiled["dma_gb_s"]) - 1) < 0.03


def test_kernels_of_one_source_are_estimated_at_one_rate():
    rates = {}
    for row in ROWS:
        rates.setdefault(row["source"], set()).add(row["dma_gb_s"])
    assert all(len(found) == 1 for found in rates.values())


def test_an_instruction_is_estimated_without_being_computed():
    """A product of 34 GFLOP, in seconds; the vendor's size takes minutes."""
    shapes = (jax.ShapeDtypeStruct((2048, 2048), np.dtype(ml_dtypes.bfloat16)),) * 2
    start = time.process_time()
    found = neuron.estimate(nki.matmul_kernel, *shapes, chip="trn1")
    assert found.engines["Tensor"].instructions == 16 * 16 * 4
    assert time.process_time() - start < 10


def test_a_product_is_simulated_in_about_a_millisecond():
    x = np.ones((1024, 512), ml_dtypes.bfloat16)
    neuron.simulate(nki.matmul_kernel, x, x)
    start = time.process_time()
    neuron.simulate(nki.matmul_kernel, x, x)
    assert time.process_time() - start < 32 * 0.003  # 32 products, and all around them
