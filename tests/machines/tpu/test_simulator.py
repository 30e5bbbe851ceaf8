"""The simulated machine refuses what the hardware would, shuffles, and cleans up after itself."""

import functools
import json
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.machines.compat import Changed, jax_interpreter
from kernels.machines.tpu import simulate
from kernels.machines.tpu.simulator import SimulationError
from kernels.vector import add_vectors

X = np.arange(4096, dtype=np.float32)


ANYWHERE, SCALARS = (pl.BlockSpec(memory_space=space) for space in (pl.ANY, pltpu.SMEM))


def called(kernel, *scalars, shape=None, **options):
    """A function of x that calls a kernel on scalars and x; its result is like x."""

    def function(x, *, interpret):
        out = jax.ShapeDtypeStruct(shape or x.shape, x.dtype)
        call = pl.pallas_call(kernel, out_shape=out, interpret=interpret, **options)
        return call(*map(jnp.array, scalars), x)

    return function


def scaled(*semantics):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    params = pltpu.CompilerParams(dimension_semantics=semantics)
    return called(kernel, grid=(4, 4), in_specs=[spec], out_specs=spec, compiler_params=params)


SQUARE = np.arange(32 * 512, dtype=np.float32).reshape(32, 512)
IN_ORDER = [(i, j) for i in range(4) for j in range(4)]


def test_sequential_programs_run_in_order_on_one_core():
    run = simulate(scaled("arbitrary", "arbitrary"), SQUARE)
    assert list(map(tuple, run.order)) == IN_ORDER and set(run.core) == {0}
    assert np.array_equal(run.result, SQUARE * 2) and run.races == ()


def test_parallel_programs_are_shuffled_over_two_cores_and_compiled_once(monkeypatch):
    compiled = []
    original = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda self: compiled.append(1) or original(self)
    )
    run = simulate(scaled("parallel", "arbitrary"), SQUARE, seed=1)
    assert sorted(map(tuple, run.order)) == IN_ORDER
    assert set(run.core) == {0, 1} and len(compiled) == 1
    for core in (0, 1):
        mine = run.order[run.core == core]
        assert [j for _, j in mine] == [0, 1, 2, 3] * 2  # the sequential dimension stays in order


def test_the_same_seed_gives_the_same_order_and_another_another():
    f = jax.jit(scaled("parallel", "parallel"), static_argnames="interpret")  # traced once
    one, again, other = (simulate(f, SQUARE, seed=s, cores=1).order for s in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    before = simulate(f, SQUARE, seed=0, cores=1).order  # two orders have each pair both ways
    assert np.array_equal(one, before[::-1])


def test_a_refusal_leaves_the_machine_usable():
    def past_the_end(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(pl.program_id(0) + 1, 128)]

    with pytest.raises(SimulationError, match=r"read of vmem.*r\.py:\d+, `o_ref") as error:
        simulate(called(past_the_end, grid=(1,)), X[:128])
    assert "Traceback" not in str(error.value)
    assert np.array_equal(simulate(add_vectors, X, X).result, 2 * X)


ROWS = np.arange(16 * 2048, dtype=np.float32).reshape(16, 2048)


def through_views(first):
    """[16, 2048]: the rows from `first` on, and then those before it, by way of other shapes."""

    def rotated(first_ref, x_ref, o_ref, scratch_ref):
        pltpu.sync_copy(x_ref.reshape(4, 4, 2048), scratch_ref)
        rows, out = scratch_ref.reshape(16, 2048), o_ref.reshape(2, 8, 2048)
        start = first_ref[0]
        out[0] = rows[pl.ds(start, 8)]  # across the boundaries of the scratch
        pltpu.sync_copy(rows.at[pl.ds(start + 8, 3)], out.at[1, pl.ds(0, 3)])
        out.at[1].reshape(4, 2, 2048)[2:] = rows.reshape(8, 2, 2048)[:2]
        pltpu.sync_copy(rows.at[pl.ds(start, 0)], out.at[1, pl.ds(start, 0)])  # nothing
        out[1, 3] = scratch_ref[1, 0]

    scratch = [pltpu.VMEM((4, 4, 2048), np.float32)]
    return called(rotated, [first], in_specs=[SCALARS, ANYWHERE], scratch_shapes=scratch)


@pytest.mark.parametrize("first", [5, 4])
def test_views_by_reshape_are_parts_of_the_memory(first):
    run = simulate(through_views(first), ROWS)
    wanted = np.concatenate([ROWS[first : first + 11], ROWS[4:5], ROWS[:4]])
    assert np.array_equal(run.result, wanted) and not run.races


def test_a_view_by_bitcast_makes_one_number_of_rows_under_each_other():
    def swapped(x_ref, o_ref):
        words, out = (ref.bitcast(jnp.uint32).reshape(32, 128) for ref in (x_ref, o_ref))
        even, odd = pl.ds(0, 16, 2), pl.ds(1, 16, 2)
        out[even], out[odd] = words[even], words[odd] >> 16 | words[odd] << 16

    x = jnp.arange(8192).astype(jnp.bfloat16).reshape(4, 16, 128)
    pairs = x.reshape(16, 2, 2, 128)
    wanted = jnp.stack([pairs[:, 0], pairs[:, 1, ::-1]], 1).reshape(x.shape)
    run = simulate(called(swapped), x)
    assert np.array_equal(run.result, wanted) and not run.races


def test_what_leaves_its_view_is_refused():
    with pytest.raises(SimulationError, match=r"a view of shape \(16, 2048\) .* at 16 of 16"):
        simulate(through_views(6), ROWS)


def test_an_empty_copy_from_the_end_of_its_memory_is_within_it_and_no_other_goes_unwaited_for():
    def in_pieces(waited, sizes_ref, x_ref, o_ref, semaphore):
        parts = [pl.ds(sizes_ref[0, place], sizes_ref[1, place]) for place in range(2)]
        copies = [
            pltpu.make_async_copy(x_ref.at[part], o_ref.at[part], semaphore) for part in parts
        ]
        for copy in copies:
            copy.start()
        for copy in copies[:waited]:
            copy.wait()

    def ran(sizes, waited=2):
        options = {"in_specs": [SCALARS, ANYWHERE], "out_specs": ANYWHERE}
        options["scratch_shapes"] = [pltpu.SemaphoreType.DMA]
        return simulate(called(functools.partial(in_pieces, waited), sizes, **options), ROWS)

    for waited in (2, 1):  # to wait for nothing or not is the same
        run = ran([[0, 16], [16, 0]], waited)
        assert np.array_equal(run.result, ROWS) and not run.races
    with pytest.raises(SimulationError, match="Out-of-bounds"):
        ran([[0, 16], [16, 1]])
    with pytest.raises(SimulationError, match=r"nobody waits for \(test_\w+\.py:\d+, `copy\.start"):
        ran([[0, 8], [8, 8]], waited=1)


def test_a_store_below_zero_is_out_of_bounds():
    def shifted(row_ref, x_ref, o_ref):
        o_ref[row_ref[0]] = x_ref[0]

    specs = {"in_specs": [SCALARS, pl.BlockSpec()]}
    with pytest.raises(SimulationError, match="out of bounds"):
        simulate(called(shifted, [-1], **specs), ROWS)


@pytest.mark.parametrize("waited", [True, False])
def test_a_slot_that_is_refilled_before_it_was_read_is_a_race_of_two_copies(waited):
    def through_a_slot(x_ref, o_ref, slot_ref, semaphores):
        def copy(source, target, semaphore):
            return pltpu.make_async_copy(source, target, semaphores.at[semaphore])

        pltpu.sync_copy(x_ref.at[0], slot_ref)
        out = copy(slot_ref, o_ref.at[0], 0)
        out.start()
        refill = copy(x_ref.at[1], slot_ref, 1)
        for step in (out.wait, refill.start) if waited else (refill.start, out.wait):
            step()
        refill.wait()
        pltpu.sync_copy(slot_ref, o_ref.at[1])

    x = X[:2048].reshape(2, 8, 128)
    specs = {"in_specs": [ANYWHERE], "out_specs": ANYWHERE}
    specs["scratch_shapes"] = [pltpu.VMEM(x.shape[1:], x.dtype), pltpu.SemaphoreType.DMA((2,))]
    slots = called(through_a_slot, **specs)
    assert bool(simulate(slots, x).races) is not waited


def test_a_masked_store_is_bounded_by_each_dimension():
    def some_rows(x_ref, o_ref):
        o_ref[...] = x_ref[...]
        row = jax.lax.broadcasted_iota(jnp.int32, (8, 2, 128), 0)
        pltpu.store(o_ref.at[:, :2], jnp.zeros((8, 2, 128)), mask=row >= 5)

    x = X.reshape(8, 4, 128) + 1
    wanted = x.copy()
    wanted[5:, :2] = 0
    assert np.array_equal(simulate(called(some_rows), x).result, wanted)


REPORTS = json.loads(Path(__file__).with_name("data").joinpath("race_reports.json").read_text())


@pytest.mark.parametrize("form", REPORTS)
def test_race_reports_become_one_line_each(form):
    assert jax_interpreter.lines(2 * REPORTS[form]) == [
        "a read of vmem[...] by core 1, unordered with "
        "a write of vmem[0:8, 0:128] by a DMA (k.py:22)"
    ]


def test_a_race_reported_in_other_words_is_said_aloud():
    text = "RACE DETECTED\n  write of ('vmem', 103) between core 0 and core 1\n"
    with pytest.warns(Changed, match='reported in other words: "write of'):
        assert jax_interpreter.lines(text) == ["write of ('vmem', 103) between core 0 and core 1"]


def test_races_are_found_and_nothing_is_printed(capfd):
    def both_cores_add_to_one_block(x_ref, o_ref):
        o_ref[...] += x_ref[...]

    params = pltpu.CompilerParams(dimension_semantics=("parallel",))
    own, first = (pl.BlockSpec((8, 128), lambda i, n=n: (n * i, 0)) for n in (1, 0))
    options = {"grid": (2,), "in_specs": [own], "out_specs": first, "compiler_params": params}
    racing = called(both_cores_add_to_one_block, shape=(8, 128), **options)
    handlers = list(logging.getLogger().handlers)
    found = simulate(racing, np.ones((16, 128), np.float32)).races
    assert found and all("unordered with" in each and "core" in each for each in found)
    assert simulate(add_vectors, X, X).races == () and capfd.readouterr() == ("", "")
    assert logging.getLogger().handlers == handlers
