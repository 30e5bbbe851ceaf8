"""What a kernel's scalar code does: copies by hand, products and rounds, counted by running it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
from pallas_samples import ANY, chosen_rows, products, shape

from kernels.machines.compat import jax_pallas, jaxprs
from kernels.machines.pallas import calls, walk, work
from kernels.machines.pallas.calls import calls_in
from kernels.machines.tpu.export import abstract_device

SCALAR = pl.BlockSpec(memory_space=pltpu.SMEM)


def traced(function, *args, **given):
    """The first call of a program traced for a v5e, with the values of arguments that are given."""
    with abstract_device("v5e"):
        jaxpr = jaxprs.trace(function, *args)
    names = jaxprs.argument_names(jaxpr)
    return calls_in(jaxpr, {names.index(k): v for k, v in given.items()}, names)[0]


def test_a_pipeline_by_hand_moves_and_multiplies_what_a_grid_does():
    by_grid, by_hand = (
        traced(function, shape(1024, 1024), shape(1024, 1024)) for function in products(1024, 256)
    )
    assert by_hand.walk and not by_grid.walk
    assert by_hand.traffic == by_grid.traffic > 8 * 1024 * 1024
    assert work.kernel_flops(by_hand) == work.kernel_flops(by_grid) == {"bfloat16": 2 * 1024**3}
    assert not by_hand.depends and not by_hand.unbounded


def paged(pages, in_use, lengths=None):
    """Attention over a cache of pages, of which some are in use."""

    def function(q, k, v, lengths, table):
        return paged_attention(q, k, v, lengths, table, pages_per_compute_block=4)

    cache = shape(2, pages, 16, 128)
    args = (shape(4, 4, 128), cache, cache, shape(4, dtype=jnp.int32))
    table = np.arange(4 * in_use, dtype=np.int32).reshape(4, in_use)
    given = {} if lengths is None else {"lengths": np.array(lengths, np.int32), "table": table}
    return traced(function, *args, shape(4, in_use, dtype=jnp.int32), **given)


def test_of_a_paged_cache_the_pages_count_that_are_copied():
    lengths = [64, 128, 256, 64]
    small, large = (paged(pages, 16, lengths) for pages in (64, 640))
    assert small.traffic == large.traffic
    keys = next(o for o in large.operands if o.name.startswith("k_pages"))
    assert large.moved(keys) == sum(lengths) * 2 * 128 * 2  # heads, their size, bytes of bfloat16
    assert not large.depends

    unknown = paged(640, 16)
    assert unknown.depends == ("lengths",) and unknown.unbounded
    assert unknown.moved(keys, least=True) < large.moved(keys)


def test_groups_decide_the_grid_and_the_blocks():
    def function(x, w, groups):
        return gmm(x, w, groups, tiling=(128, 128, 128))

    args = (shape(1024, 256), shape(4, 256, 256), shape(4, dtype=jnp.int32))
    unknown = traced(function, *args)
    assert unknown.depends == ("groups",) and unknown.unbounded and unknown.open_axes
    for groups, tiles in (([256] * 4, 8), ([1024, 0, 0, 0], 8), ([100, 412, 500, 12], 10)):
        call = traced(function, *args, groups=np.array(groups, np.int32))
        assert call.grid == (2, tiles, 2) and not call.depends
        weights = call.inputs[1]
        assert work.kernel_flops(call) == {"bfloat16": 2 * tiles * 128 * 256 * 256}
        assert weights.known and weights.traffic == 2 * 2 * tiles * 128 * 128 * 2


def test_constants_of_the_program_are_values():
    table = np.array([3, 3, 1, 2, 5, 4, 6, 0], np.int32)
    function = lambda x: chosen_rows()(jnp.asarray(table), x)
    [call] = calls(function, shape(64, 128, dtype=jnp.float32))
    assert call.inputs[0].known
    assert call.inputs[0].starts[:, 0].tolist() == (8 * table).tolist()
    assert call.inputs[0].traffic == 7 * 8 * 128 * 4  # one block stays


def one_by_one(x, row, done, i=0, rows=1):
    """Copies some rows, and waits for them."""
    pltpu.make_async_copy(x.at[pl.ds(i, rows)], row, done).start()
    pltpu.make_async_copy(x.at[pl.ds(i, rows)], row, done).wait()


def called(kernel, x, row, *scalars, grid=(), more=()):
    """A kernel (scalars, x, o, more, row, done) that copies by hand; a row's shape."""
    specs = {"in_specs": [SCALAR] * len(scalars) + [ANY], "out_specs": ANY}
    specs["scratch_shapes"] = [*more, pltpu.VMEM(row, x.dtype), pltpu.SemaphoreType.DMA]
    return pl.pallas_call(kernel, grid=grid, out_shape=x, **specs)(*scalars, x)


def copying(size):
    """Copies as many rows as a scalar says, one at a time."""

    def kernel(count, x, o, row, done):
        jax.lax.fori_loop(0, count[0], lambda i, _: one_by_one(x, row, done, i), None)

    function = lambda count, x: called(kernel, x, (1, size), count)
    return function, shape(1, dtype=jnp.int32), shape(64, size, dtype=jnp.int4)


def test_copies_count_as_often_as_their_loop_runs_and_int4_in_bits():
    function, *args = copying(256)
    call = traced(function, *args, count=np.array([5], np.int32))
    assert call.walk.copies == 5 and call.moved(call.inputs[1]) == 5 * 256 // 2
    assert sum(call.walk.rounds.values()) == 5
    assert call.inputs[1].whole_bytes == 64 * 256 // 2
    unknown = traced(function, *args)
    assert unknown.depends == ("count",) and unknown.unbounded
    assert unknown.moved(unknown.inputs[1], least=True) == 0


def test_the_first_rounds_of_a_long_loop_stand_for_the_others(monkeypatch):
    """Its length is known, so it counts whole, though too few of its equations may be run."""
    function, *args = copying(256)
    monkeypatch.setattr(walk, "STEPS", 2_000)
    call = traced(function, *args, count=np.array([10_000], np.int32))
    ran, of = call.walk.cut
    assert ran < of == 10_000 and not call.depends and not call.unbounded
    assert call.walk.copies == sum(call.walk.rounds.values()) == 10_000
    assert call.moved(call.inputs[1]) == 10_000 * 256 // 2
    assert traced(function, *args, count=np.array([5], np.int32)).walk.cut is None


@pytest.mark.parametrize(("masks", "share"), [([1, 0, 0, 0], 0.5), ([2, 2, 2, 1], 0.125)])
def test_of_products_in_branches_those_that_run_are_counted(masks, share):
    """Splash attention has a body for whole blocks and one for blocks that a mask cuts."""

    def kernel(mask, x, o):
        for number in (0, 1):

            @pl.when(mask[pl.program_id(0)] == number)
            def _():
                o[...] = jnp.dot(x[...], x[...], preferred_element_type=jnp.float32)

    def function(mask, x):
        spec = pl.BlockSpec((128, 128), lambda i, mask: (i, 0))
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(4,), in_specs=[spec], out_specs=spec
        )
        return pl.pallas_call(kernel, grid_spec=grid, out_shape=x)(mask, x)

    args = shape(4, dtype=jnp.int32), shape(512, 128, dtype=jnp.float32)
    call = traced(function, *args, mask=np.array(masks, np.int32))
    assert work.share_of_branches(call) == share
    assert work.shares_of_branches(call) == [masks.count(0) / 4, masks.count(1) / 4]
    unknown = traced(function, *args)
    assert work.share_of_branches(unknown) == 1.0 and work.shares_of_branches(unknown) == [1.0, 1.0]


ROWS = shape(64, 128, dtype=jnp.float32)


def test_loops_that_stand_at_one_place_are_told_apart():
    def kernel(x, o, row, done):
        def loop(count):
            body = lambda i: one_by_one(x, row, done, rows=8) or i + 1
            jax.lax.while_loop(lambda i: i < count, body, 0)

        loop(5)
        loop(2)

    found = traced(lambda x: called(kernel, x, (8, 128)), ROWS).walk
    assert sorted(found.rounds.values()) == [2, 5] and found.lengths.keys() == found.rounds.keys()


def test_scalars_that_a_kernel_keeps_are_followed_from_program_to_program():
    def kernel(x, o, turn, row, done):
        @pl.when(pl.program_id(0) == 0)
        def _():
            turn[0] = 0

        @pl.when(turn[0] % 3 == 0)
        def _():
            one_by_one(x, row, done, rows=8)

        turn[0] = turn[0] + 1

    kept = [pltpu.SMEM((1,), jnp.int32)]
    call = traced(lambda x: called(kernel, x, (8, 128), grid=(10,), more=kept), ROWS)
    assert call.walk.copies == 4 and call.traffic == 4 * 8 * 128 * 4
    assert not call.depends


@pytest.mark.parametrize("taken", [True, False])
def test_a_product_under_a_condition_on_data(taken):
    def kernel(flag, x, o):
        o[...] = x[...]

        @pl.when(flag[0] > 0)
        def _():
            o[...] = jnp.dot(x[...], x[...], preferred_element_type=jnp.float32)

    def function(flag, x):
        return pl.pallas_call(kernel, in_specs=[SCALAR, pl.BlockSpec()], out_shape=x)(flag, x)

    args = (shape(1, dtype=jnp.int32), shape(128, 128, dtype=jnp.float32))
    call = traced(function, *args, flag=np.array([int(taken)], np.int32))
    assert sum(work.kernel_flops(call).values()) == taken * 2 * 128**3
    unknown = traced(function, *args)
    assert unknown.depends == ("flag",) and not unknown.unbounded
    most, least = (sum(work.kernel_flops(unknown, least=b).values()) for b in (False, True))
    assert (most, least) == (2 * 128**3, 0)


def test_what_a_ragged_dot_multiplies():
    args = (shape(1024, 256), shape(4, 256, 512), shape(4, dtype=jnp.int32))
    jaxpr = jaxprs.trace(jax.lax.ragged_dot, *args)
    assert work.matmul_flops(jaxpr) == {"bfloat16": 2 * 1024 * 256 * 512}


@pytest.mark.parametrize("by_data", [False, True])
def test_program_ids_of_a_batched_kernel_are_its_author_s(by_data):
    """Of the steps that jax.vmap repeats, as many multiply as without it."""

    def kernel(least, x, o):
        o[...] = jnp.zeros_like(o)

        @pl.when(pl.program_id(1) >= (least[0] if by_data else 3))
        def multiply():
            o[...] = jnp.dot(x[...], x[...])

    def function(least, x):
        block = pl.BlockSpec((128, 128), lambda i, j, *_: (i, j))
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(2, 4), in_specs=[block], out_specs=block
        )
        return pl.pallas_call(kernel, grid_spec=spec, out_shape=x)(least, x)

    batched = jax.vmap(function, in_axes=(None, 0))
    least, x = shape(1, dtype=jnp.int32), shape(256, 512, dtype=jnp.float32)
    given = {"least": np.array([3], np.int32)} if by_data else {}
    one = traced(function, least, x, **given)
    many = traced(batched, least, shape(5, 256, 512, dtype=jnp.float32), **given)
    assert many.grid == (5, 2, 4) and bool(many.walk) == by_data
    assert jax_pallas.axes_read(one.equation) == {1} and jax_pallas.axes_read(many.equation) == {2}
    assert work.kernel_flops(one) == {"float32": 2 * 2 * 128**3}
    assert work.kernel_flops(many) == {"float32": 5 * 2 * 2 * 128**3}
