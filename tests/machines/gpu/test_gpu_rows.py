"""The kernel along rows for a Hopper GPU: what the rungs of softmax and the norms do not see."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from close import assert_right
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels import gpu, ladder
from kernels.machines.gpu import row_kernel
from kernels.machines.gpu.simulator import SimulationError, simulate
from kernels.norm import layer_norm, rms_norm
from kernels.proof.catalog import OPERATORS
from kernels.softmax import softmax

VECTORS = {softmax: 0, rms_norm: 1, layer_norm: 2}


@pytest.fixture
def two_blocks(monkeypatch):
    """So few that each comes back to its slots, as on a GPU, and unlike in the rungs."""
    monkeypatch.setattr(row_kernel, "BLOCKS", 2)
    monkeypatch.setattr(row_kernel, "multiprocessors", lambda: 1)
    jax.clear_caches()
    yield
    jax.clear_caches()


def simulated(function):
    x = np.random.default_rng(0).normal(3, 1, (11, 300)).astype(np.float32)
    arguments = (x, *x[: VECTORS[function]])
    return simulate(functools.partial(function, implementation="mosaic_gpu"), *arguments), arguments


@pytest.mark.parametrize("function", VECTORS)
def test_a_block_takes_many_rows(two_blocks, function):
    run, arguments = simulated(function)
    assert run.races == ()
    assert_right(function.__name__, run.result, *arguments)


def test_a_row_that_nobody_waits_for_is_told(two_blocks, monkeypatch):
    monkeypatch.setattr(plgpu, "barrier_wait", lambda barrier: None)
    said = "again before previous completion was observed|no threads observed"
    with pytest.raises(SimulationError, match=said):
        simulated(softmax)


def test_numbers_behind_a_rows_end_are_found_out(monkeypatch):
    """A planted fault: layer_norm adds up the squared mean of what is only padding."""
    monkeypatch.setattr(jnp, "where", lambda keep, values, other: values)
    jax.clear_caches()
    operator = OPERATORS["layer_norm"]
    subject = ladder.Subject.of(operator, operator["mosaic_gpu"])
    (check,) = ladder.climb(subject, "interpret", [operator.workloads["cancelling_parts"]])
    jax.clear_caches()
    assert check.status == "failed" and "reference" in check.message, check


@pytest.mark.parametrize("function", VECTORS)
def test_longer_rows_are_refused(function):
    x = jnp.ones((2, 8193))
    with pytest.raises(ValueError, match=r"8193.*at most 8192"):
        function(x, *[x[0]] * VECTORS[function], implementation="mosaic_gpu")


@pytest.mark.cuda
@pytest.mark.parametrize("function", VECTORS)
def test_a_row_stays_in_registers(function):
    x, vector = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((4096, 8192), (8192,)))
    call = functools.partial(function, implementation="mosaic_gpu")
    program = gpu.compile(call, x, *[vector] * VECTORS[function], passes=False)
    kernel = program.kernel(function.__name__)
    assert kernel.threads == 128 and not kernel.spills and kernel.counts["UTMALDG"]
