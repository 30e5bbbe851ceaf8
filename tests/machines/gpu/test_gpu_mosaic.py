"""Mosaic GPU: the simulated block, what it misses, and what its kernels become on an H100."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from close import assert_right
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from refused import refuses

from kernels import gpu, ladder
from kernels.attention import attention
from kernels.machines.compat import jax_mosaic
from kernels.machines.gpu import row_kernel
from kernels.machines.gpu.simulator import SimulationError, simulate
from kernels.matmul import matmul
from kernels.norm import layer_norm, rms_norm
from kernels.proof.backends.mosaic_gpu import MOSAIC_GPU
from kernels.proof.catalog import OPERATORS
from kernels.softmax import softmax
from kernels.vector import add_vectors

X = np.arange(256, dtype=np.float32)
KEY = jax.random.key(0)


def launched(kernel, x, **options):
    return plgpu.kernel(kernel, out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32), **options)(x)


def stored(x, *, commit=True, wait=True):
    """x + 1, which TMA carries from and to global memory."""

    def kernel(x_gmem, o_gmem, x_smem, arrived):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, arrived)
        plgpu.barrier_wait(arrived)
        x_smem[...] = x_smem[...] + 1
        if commit:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, o_gmem)
        if wait:
            plgpu.wait_smem_to_gmem(0)

    scratch = [plgpu.SMEM(x.shape, jnp.float32), plgpu.Barrier()]
    return launched(kernel, x, scratch_types=scratch)


def handed_over(x, *, waits=True):
    """x + 3: one warpgroup adds 1 in shared memory, another 2 on the way out."""

    def kernel(x_gmem, o_gmem, x_smem, filled):
        @pl.when(jax.lax.axis_index("wg") == 0)
        def _():
            x_smem[...] = x_gmem[...] + 1
            plgpu.barrier_arrive(filled)

        @pl.when(jax.lax.axis_index("wg") == 1)
        def _():
            if waits:
                plgpu.barrier_wait(filled)
            o_gmem[...] = x_smem[...] + 2

    scratch = [plgpu.SMEM(x.shape, jnp.float32), plgpu.Barrier()]
    return launched(kernel, x, scratch_types=scratch, num_threads=2, thread_name="wg")


def test_a_block_is_simulated():
    for function, more in ((stored, 1), (handed_over, 3)):
        found = simulate(function, X)
        assert np.array_equal(found.result, X + more) and found.races == ()


def test_what_nobody_waits_for_is_a_race():
    """Of two warpgroups; a copy that nobody waits for is one in the chapter on Hopper, which also
    has a barrier at which too few arrive."""
    (race,) = simulate(handed_over, X, waits=False).races  # whatever the result: it is luck
    assert "a read and a write of the same memory, unordered (test_gpu_mosaic.py" in race
    assert simulate(handed_over, X, waits=False, races=False).races == ()


def test_a_race_in_a_notebook_is_told_by_its_line():
    report = "RACE DETECTED\nread of x\n/tmp/kernel_7/428.py:4\nwrite of x\n/tmp/kernel_7/428.py:3"
    (race,) = jax_mosaic._races(report)
    assert race.endswith("unordered (the cell, lines 4 and 3)")
    (race,) = jax_mosaic._races(report.replace(":3", ":4"))
    assert race.endswith("unordered (the cell, line 4)")


HALVES, WIDE = jnp.ones((2, 2), jnp.bfloat16), jnp.ones((1, 1, 8, 256), jnp.bfloat16)


test_what_it_does_not_take_is_refused = refuses(
    lambda function, arguments, options: function(
        *arguments, implementation="mosaic_gpu", **options
    ),
    (matmul, (X[None], X[:, None]), {}, "accepted: bfloat16"),
    (matmul, (HALVES,) * 2, {"prologue": jnp.tanh}, "reads x straight into its tensor cores"),
    (attention, (WIDE,) * 3, {}, "accepted: at most 128"),
    (softmax, (jnp.ones((2, 8193)),), {}, r"8193.*at most 8192"),
)


def test_causal_attention_does_not_touch_what_is_hidden_from_a_whole_block():
    """Values that are NaN would reach a sum with a weight of 0 wherever their block is visited."""
    q, k, v = (jax.random.normal(key, (1, 1, 256, 64)) for key in jax.random.split(KEY, 3))
    q, k, v = (each.astype(jnp.bfloat16) for each in (q, k, v))
    hidden = v.at[:, :, 128:].set(jnp.nan)
    attend = functools.partial(attention, implementation="mosaic_gpu")
    first = np.asarray(simulate(attend, q, k, hidden, causal=True).result, np.float32)[0, 0]
    assert np.isfinite(first[:128]).all() and np.isnan(first[128:]).all()
    every = np.asarray(simulate(attend, q, k, hidden, causal=False).result, np.float32)
    assert np.isnan(every).all()


def test_a_kernel_of_another_route_is_none_of_mosaic_gpu():
    operator = OPERATORS["add_vectors"]
    triton = functools.partial(add_vectors, implementation="triton")
    subject = ladder.Subject(operator, "triton", MOSAIC_GPU, triton)
    (check,) = ladder.climb(subject, "compile", [operator.workloads["tiny"]])
    assert check.status == "failed" and "no kernel of Mosaic GPU" in check.message


@pytest.mark.cuda
def test_the_matmul_is_three_warpgroups_of_an_h100():
    square = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    multiply = functools.partial(matmul, implementation="mosaic_gpu")
    kernel = gpu.compile(multiply, square, square, passes=False).kernel("matmul")
    assert kernel.grid == (132, 1, 1) and kernel.threads == 384
    assert kernel.registers == 168 and not kernel.spills
    wide = [i for i in kernel.instructions if i.name.startswith("HGMMA.64x128x16.F32.BF16")]
    assert len(wide) == kernel.counts["HGMMA"] == 8
    assert kernel.counts["UTMALDG"] and kernel.counts["UTMASTG"]
    assert kernel.counts["USETMAXREG"] == 2


# --- what is wrong on an H100, and the simulation misses, or did before JAX 0.12 ------------------


def one_output(x):
    """x + the number of the block that comes last, if blocks came one after another."""

    def kernel(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...] + jax.lax.axis_index("block")

    return launched(kernel, x, grid=(2,), grid_names=("block",))


def unawaited(x):
    """[64, 64] → [64, 64] float32: x x, whose operand is overwritten while it is multiplied."""

    def kernel(x_gmem, o_gmem, x_smem, arrived):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, arrived)
        plgpu.barrier_wait(arrived)

        def multiply(acc):
            plgpu.wgmma(acc, x_smem, x_smem)
            x_smem[...] = jnp.zeros_like(x_smem)
            return acc[...]

        o_gmem[...] = pl.run_scoped(multiply, plgpu.ACC((64, 64), jnp.float32))

    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    scratch = [plgpu.SMEM((64, 64), jnp.float16, transforms=transforms), plgpu.Barrier()]
    return launched(kernel, x, scratch_types=scratch)


# JAX 0.12 finds all of these.
MISSED = {
    "stores to shared memory are not committed before TMA reads them": (stored, {"commit": False}),
    "nobody waits for TMA to have stored": (stored, {"wait": False}),
    "two blocks write one output": (one_output, {}),
}


@pytest.mark.parametrize("what", MISSED)
def test_the_simulation_misses(what):
    """When one of these fails, JAX's simulation has learned something: tell it where it is told."""
    function, options = MISSED[what]
    if jax.__version_info__ >= (0, 12):
        try:
            assert simulate(function, X, **options).races
        except SimulationError as refused:
            assert "operations completed before kernel finished" in str(refused)
    else:
        run = simulate(function, X, **options)
        assert not run.races and np.array_equal(run.result, X + 1)


def test_the_simulation_misses_a_product_that_nobody_waits_for():
    found = simulate(unawaited, np.eye(64, dtype=np.float16))
    assert not found.races and np.array_equal(found.result, np.eye(64, dtype=np.float32))


VECTORS = {softmax: 0, rms_norm: 1, layer_norm: 2}


@pytest.mark.parametrize("function", VECTORS)
def test_a_block_takes_many_rows(function, monkeypatch):
    """Of two blocks each comes back to its slots, as on a GPU, and unlike in the rungs."""
    monkeypatch.setattr(row_kernel, "BLOCKS", 2)
    monkeypatch.setattr(row_kernel, "multiprocessors", lambda: 1)
    jax.clear_caches()
    x = np.random.default_rng(0).normal(3, 1, (11, 300)).astype(np.float32)
    arguments = (x, *x[: VECTORS[function]])
    run = simulate(functools.partial(function, implementation="mosaic_gpu"), *arguments)
    jax.clear_caches()
    assert run.races == ()
    assert_right(function.__name__, run.result, *arguments)


@pytest.mark.cuda
@pytest.mark.parametrize("function", VECTORS)
def test_a_row_stays_in_registers(function):
    x, vector = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((4096, 8192), (8192,)))
    call = functools.partial(function, implementation="mosaic_gpu")
    program = gpu.compile(call, x, *[vector] * VECTORS[function], passes=False)
    kernel = program.kernel(function.__name__)
    assert kernel.threads == 128 and not kernel.spills and kernel.counts["UTMALDG"]
