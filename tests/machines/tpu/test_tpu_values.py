"""Estimates of kernels whose work depends on values: dynamic grids, loops and branches on data."""

import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc
from pallas_samples import ANY, chosen_rows, products, shape
from refused import refuses

from kernels import tpu
from kernels.figures.table import format_seconds
from kernels.machines.pallas.walk import EndlessLoop
from kernels.machines.tpu import pool
from kernels.machines.tpu.diagnose import TpuCompileError
from kernels.machines.tpu.estimate import estimate_program, profile
from kernels.machines.tpu.explain import dtypes
from kernels.machines.tpu.export import export

pytestmark = pytest.mark.libtpu
X, COUNTS, N = (
    shape(2048, 256, dtype=jnp.float32),
    shape(8, dtype=jnp.int32),
    shape(dtype=jnp.int32),
)
ROWS = pl.BlockSpec((256, 256), lambda i, *_: (i, 0))


def prefetching(kernel):
    """A call of a kernel (counts, x, o) on eight blocks of rows."""
    return lambda counts, x: chosen_rows(kernel, lambda i, s: (i, 0), *X.shape)(counts, x)


def work(o):
    o[...] = jnp.exp(o[...] * 1.5)


def rounds_of_data(counts, x, o):
    """As many rounds as the prefetched scalar of the program says."""
    o[...] = x[...]
    jax.lax.fori_loop(0, counts[pl.program_id(0)], lambda i, c: (work(o), c)[1], 0)


def while_data(counts, x, o):
    """The same with a while_loop."""
    o[...] = x[...]
    limit = counts[pl.program_id(0)]
    jax.lax.while_loop(lambda c: c < limit, lambda c: (work(o), c + 1)[1], 0)


def ten_rounds(counts, x, o):
    """Ten rounds, known when it is traced."""
    o[...] = x[...]
    jax.lax.fori_loop(0, 10, lambda i, c: (work(o), c)[1], 0)


def when_data(counts, x, o):
    """Twenty rounds, or none."""
    o[...] = x[...]

    @pl.when(counts[pl.program_id(0)] > 3)
    def _():
        jax.lax.fori_loop(0, 20, lambda i, c: (work(o), c)[1], 0)


def dynamic(n, x):
    """A copy on a grid whose size is an argument."""

    def kernel(x, o):
        o[...] = x[...] * 2

    return pl.pallas_call(kernel, grid=(n,), in_specs=[ROWS], out_specs=ROWS, out_shape=X)(x)


@pytest.mark.parametrize("kernel", [rounds_of_data, while_data])
def test_rounds_that_data_decide(kernel):
    function = prefetching(kernel)
    unknown = tpu.estimate(function, COUNTS, X)
    assert unknown.depends == ("counts",)
    assert unknown.seconds.is_range and unknown.seconds.high == math.inf
    words = "it depends on data: pass counts"
    assert unknown.band is None and unknown.band_text == unknown.on_data == words
    assert words in unknown.method and "at least" in format_seconds(unknown.seconds)

    ten = tpu.estimate(function, np.full(8, 10), X)
    assert not ten.depends and not ten.seconds.is_range
    static = tpu.estimate(prefetching(ten_rounds), COUNTS, X)
    assert ten.seconds == pytest.approx(static.seconds, rel=0.02)
    assert ten.seconds > 1.2 * unknown.seconds.low


def test_a_branch_that_data_decide():
    function = prefetching(when_data)
    unknown = tpu.estimate(function, COUNTS, X)
    assert unknown.depends == ("counts",)
    seconds = [
        tpu.estimate(function, jnp.array(counts), X).seconds
        for counts in ([0] * 8, [0, 9] * 4, [9] * 8)
    ]
    assert seconds == sorted(seconds) and seconds[2] > 1.3 * seconds[0]
    assert unknown.seconds.low <= seconds[0] and seconds[2] <= unknown.seconds.high < math.inf


def test_a_grid_whose_size_is_an_argument():
    assert "dynamic" in tpu.schedule(dynamic, N, X).kernels[0].name
    unknown = tpu.estimate(dynamic, N, X)
    assert unknown.depends == ("n",) and unknown.seconds.high == math.inf
    eight = tpu.estimate(dynamic, 8, X)
    [kernel] = [op for op in eight.ops if op.kind == "kernel"]
    assert kernel.call.grid == (8,) and kernel.hbm_bytes == 2 * 2048 * 256 * 4
    constant = tpu.estimate(lambda x: dynamic(jnp.int32(8), x), X)
    [known] = [op for op in constant.ops if op.kind == "kernel"]
    assert not constant.depends and known.cycles == pytest.approx(kernel.cycles, rel=0.01)


def test_groups_that_are_not_given():
    shapes = shape(4096, 512), shape(8, 512, 1024)
    unknown, even, uneven = (
        tpu.estimate(jax.lax.ragged_dot, *shapes, sizes, chip="v6e")
        for sizes in (shape(8, dtype=jnp.int32), np.full(8, 512), np.full(8, 511))
    )
    assert unknown.on_data == "it depends on data: pass group_sizes"
    assert not even.depends and not uneven.depends and even.seconds < uneven.seconds
    assert unknown.seconds.low < even.seconds and uneven.seconds <= unknown.seconds.high < math.inf


def test_a_loop_without_end_is_found_before_anything_is_compiled():
    def endless(counts, x, o):
        jax.lax.while_loop(lambda c: c >= 0, lambda c: (work(o), c * 0)[1], 0)

    began = time.perf_counter()
    with pytest.raises(EndlessLoop, match=r"test_tpu_values.py:\d+ of endless has no end"):
        tpu.estimate(prefetching(endless), COUNTS, X)
    assert time.perf_counter() - began < 20


def test_no_profile_of_a_kernel_takes_longer_than_it_may(monkeypatch):
    """A loop whose end is data of vectors may have none, and only the profile would find out."""
    asked = []
    original = pool.compile_all

    def recorded(programs, **options):
        asked.append((options["purposes"], options["timeout"]))
        return original(programs, **options)

    monkeypatch.setattr(pool, "compile_all", recorded)
    # Of the usual 20 seconds, the estimate may be remembered.
    tpu.estimate(prefetching(ten_rounds), COUNTS, X, budget=15.0)
    limits = [seconds for purposes, seconds in asked if "profile" in purposes]
    assert limits and max(limits) <= 15
    assert profile.BUDGET == 20


def test_keyword_arguments_are_the_functions_own():
    def product(x, causal=False, scale=None):
        return x @ x if causal else x * scale

    x = shape(256, 256, dtype=jnp.float32)
    assert tpu.estimate(product, x, causal=True).flops == 2 * 256**3
    assert tpu.estimate(product, x, scale=x).hbm_bytes == 3 * 256 * 256 * 4
    jitted = jax.jit(product, static_argnames="causal")
    assert tpu.estimate(jitted, x, causal=True).flops == 2 * 256**3
    with pytest.raises(ValueError, match="casual"):
        tpu.compile(product, x, casual=True)


def test_donated_arguments_share_their_memory_with_results():
    size = 2048 * 256 * 4
    assert tpu.compile(jax.jit(lambda x: x + 1, donate_argnums=0), X).memory.aliased == size
    assert tpu.compile(jax.jit(lambda x: x + 1), X).memory.aliased == 0

    def step(state, x):
        return {"a": state["a"] + x}, x * 2

    assert tpu.compile(jax.jit(step, donate_argnames="state"), {"a": X}, X).memory.aliased == size


def test_what_no_tpu_takes_is_refused_in_words():
    def double(x, index):
        def kernel(x, o):
            o[...] = x[...] * 2

        spec = pl.BlockSpec((256, 256), index)
        return pl.pallas_call(kernel, grid=(8,), in_specs=[spec], out_specs=spec, out_shape=x)(x)

    def whole(x):
        return pl.pallas_call(lambda x, o: None, out_shape=x, name="whole")(x)

    with pytest.raises(ValueError, match=r"its kernel whole an array of shape \(0, 128\)"):
        export(whole, shape(0, 128))
    with jax.enable_x64(True):
        with pytest.raises(TpuCompileError, match="jax_enable_x64 is on"):
            tpu.compile(functools.partial(double, index=lambda i: (i, 0)), X)
        export(functools.partial(double, index=lambda i: (i, jnp.int32(0))), X)


def remote(x):
    """A kernel that sends its block to another chip."""

    def kernel(x, o, send, receive):
        there = {"device_id": 1, "device_id_type": pl.DeviceIdType.LOGICAL}
        pltpu.make_async_remote_copy(x, o, send, receive, **there).start()

    scratch = [pltpu.SemaphoreType.DMA] * 2
    options = {"in_specs": [ANY], "out_specs": ANY, "scratch_shapes": scratch, "name": "sends"}
    return pl.pallas_call(kernel, out_shape=X, **options)(x)


def on_sparse_core(x):
    """A kernel of the SparseCore."""
    mesh = tpu_sc.VectorSubcoreMesh(core_axis_name="c", subcore_axis_name="s", num_cores=2)

    def gathers(x, o, row):
        pltpu.sync_copy(x.at[0], row)
        pltpu.sync_copy(row, o.at[0])

    scratch = [pltpu.VMEM((256,), jnp.float32)]
    return pl.kernel(gathers, out_type=X, mesh=mesh, scratch_types=scratch, name="gathers")(x)


def by_elements(x):
    """A program for each of very many blocks."""
    call = pl.pallas_call(lambda o: None, grid=(1 << 11, 1 << 10), out_shape=X, name="elements")
    return call() + x


test_no_estimate_of_what_has_no_model = refuses(
    lambda function, chip: tpu.estimate(function, X, chip=chip),
    (by_elements, "v5e", r"its kernel elements has a grid of \(2048, 1024\), over 1,048,576"),
    (remote, "v7x", "no estimate of remote: its kernel sends reaches other chips"),
    (on_sparse_core, "v5p", "its kernel gathers runs on the SparseCore"),
    error=TpuCompileError,
)


def test_what_the_dtypes_are_is_told_without_an_estimate():
    program = export(on_sparse_core, X, chip="v5p")
    assert dtypes(program, "v5p") == ()


def test_no_estimate_of_collectives():
    spec = jax.sharding.PartitionSpec("x")
    cut = {"mesh": {"x": 4}, "in_specs": (spec,), "out_specs": spec}
    program = export(lambda x: x.sum(0, keepdims=True) + x, X, **cut)
    with pytest.raises(TpuCompileError, match="chips exchange data in all-reduce"):
        estimate_program(program)


def test_a_pipeline_by_hand_is_estimated_as_a_grid_is():
    square = [shape(2048, 2048)] * 2
    by_grid, by_hand = (tpu.estimate(f, *square) for f in products(2048, 512))
    assert by_hand.seconds == pytest.approx(by_grid.seconds, rel=0.12)
    assert by_hand.hbm_bytes == by_grid.hbm_bytes


def test_a_loop_of_the_program_whose_length_is_data():
    def function(n, x):
        return jax.lax.fori_loop(0, n, lambda i, x: jnp.exp(x) * 0.5, x)

    found = tpu.estimate(function, N, X)
    assert found.depends == ("n",) and found.on_data.endswith("pass n") and found.band is None
    low, high = found.seconds
    assert low < found.cycles / tpu.CHIPS["v5e"].clock_hz < high == math.inf
    none, one, nine = (tpu.estimate(function, n, X).seconds for n in (0, 1, 9))
    assert low <= none < one < nine

    def until(x):
        return jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x * 2, x)

    found = tpu.estimate(until, X)
    assert found.on_data == "it depends on how often a loop of the program runs"
