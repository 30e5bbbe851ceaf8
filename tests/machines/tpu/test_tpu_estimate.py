"""Estimates: the floors, the extrapolation, the fall-backs, and what is told of each."""

import functools
import math
import time
from collections import OrderedDict
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from commands import processor
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from pallas_samples import blockwise, chosen_rows, copy, shape

from kernels import optional, tpu
from kernels.figures import store
from kernels.giou import giou
from kernels.machines.compat import jax_pallas, libtpu
from kernels.machines.tpu import pool
from kernels.machines.tpu.estimate import batch, profile
from kernels.machines.tpu.estimate.profile import Cut, cut_grid
from kernels.machines.tpu.estimate.rates import RATES
from kernels.matmul import BlockSizes, matmul
from kernels.proof.catalog import OPERATORS
from kernels.proof.ladder import Subject
from kernels.proof.workload import Workload

pytestmark = pytest.mark.libtpu


def square(n):
    return (shape(n, n),) * 2


def blocked(*block):
    return functools.partial(matmul, block=BlockSizes(*block), interpret=False)


LARGE = blocked(512, 512, 512)


@pytest.fixture
def forgotten(monkeypatch):
    monkeypatch.setattr(batch, "_memo", OrderedDict())


def test_a_schedule_is_of_a_chip_and_a_kernel_and_counts_spills(scratch):
    schedule, of_v6e = (tpu.schedule(LARGE, *square(1024), chip=chip) for chip in ("v5e", "v6e"))
    kernel = schedule["matmul"]
    assert kernel is schedule[0] and kernel.name.startswith("matmul")
    assert kernel.occupancy.shape == (len(kernel.bundles), len(kernel.slots))
    assert kernel.loop_utilisation["MXU"] > 0.5 and 0 < kernel.loop_bundles < len(kernel.bundles)
    assert 0 < kernel.loop_utilisation["vector load"] <= 1
    assert len(kernel.text(0, 5).splitlines()) == 5
    assert 0 < kernel.vmem_bytes <= tpu.CHIPS["v5e"].vmem_limit_bytes
    assert any(b.mark == "LB" for b in kernel.bundles)
    assert "vmatmul" in kernel.text() or "vmatpush" in kernel.text()
    with pytest.raises(ValueError, match="accepted: matmul"):
        schedule["convolution"]
    assert len(of_v6e[0].bundles) < len(kernel.bundles)
    published = tpu.schedule(blocked(512, 1024, 1024), *square(1024))[0]
    assert published.spills > 0 and published.fills > 0  # those blocks spill


@pytest.mark.parametrize("chip", tpu.CHIPS)
def test_a_copy_is_bound_by_hbm(chip, scratch):
    if not libtpu.profiles(chip, pool.libtpu_version()):
        pytest.skip(f"the static profile of this libtpu knows no {chip}: a step's wait is charged")
    found = tpu.estimate(*blockwise((1 << 15, 1024), (256, 1024)), chip=chip)
    assert found.bound == "HBM" and found.hbm_bytes == 2 * (1 << 15) * 1024 * 4
    reached = 2 / (1 / RATES[chip].read + 1 / RATES[chip].write)
    assert found.hbm_utilisation == pytest.approx(reached, rel=0.02) and reached < 0.95
    assert found.utilisation == 0 and found.flops == 0
    assert found.regime == "Pallas, HBM"


TABLE, ROWS = shape(1 << 20, 128, dtype=jnp.float32), shape(8, 128, dtype=jnp.float32)


def one_block(table):
    here, there = (pl.BlockSpec((8, 128), lambda i, row=row: (row, 0)) for row in (3, 0))
    options = {"grid": (1,), "in_specs": [here], "out_specs": there, "out_shape": ROWS}
    return pl.pallas_call(copy, **options)(table)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda t, i: t[i], (TABLE, shape(8, dtype=jnp.int32))),
        (lambda t: t[1000:1008] + 1, (TABLE,)),
        (one_block, (TABLE,)),
    ],
    ids=["gather", "slice", "kernel"],
)
def test_what_is_not_read_of_an_argument_does_not_count(function, args, scratch):
    found = tpu.estimate(function, *args)
    assert found.hbm_bytes < 1 << 15 and found.floor_cycles < 100
    assert found.cycles == pytest.approx(sum(op.cycles for op in found.ops))


def test_what_is_read_of_an_argument_counts(scratch):
    function = lambda t, s: s[:8] + one_block(t) + t.sum(0)  # t a second time, as a whole
    assert (1 << 29) <= tpu.estimate(function, TABLE, TABLE).hbm_bytes < (1 << 29) + (1 << 15)


@pytest.mark.parametrize("chip", tpu.CHIPS)
def test_no_estimate_is_faster_than_the_chip(chip, scratch):
    found = tpu.estimate(LARGE, *square(4096), chip=chip)
    assert 0.3 < found.utilisation <= 1.001 and found.hbm_utilisation <= 1.001
    assert found.flops == 2 * 4096**3
    known = libtpu.profiles(chip, pool.libtpu_version())
    assert ("grid steps, extrapolated" if known else f"knows no {chip}") in found.method
    assert found.seconds == pytest.approx(found.cycles / tpu.CHIPS[chip].clock_hz)
    assert found.ops[0].kind == "kernel"


def test_extrapolation_meets_the_whole_grid(scratch, forgotten, monkeypatch):
    function, args = blocked(256, 256, 256), square(1024)
    whole = tpu.estimate(function, *args)
    assert "whole grid" in whole.method
    monkeypatch.setattr(profile, "REDUCED_CYCLES", whole.cycles / 4)
    batch._memo.clear()
    cut = tpu.estimate(function, *args)
    assert "extrapolated" in cut.method
    assert cut.cycles == pytest.approx(whole.cycles, rel=0.02)


def test_small_blocks_are_bound_by_latency(scratch):
    found = tpu.estimate(blocked(128, 128, 128), *square(1024))
    assert found.bound == "latency" and found.regime == "Pallas, latency"
    # Another fetch is under way before a step waits: JAX's own 128³ blocks took 525 cycles a step.
    assert found.cycles / 512 == pytest.approx(525, rel=0.1)
    assert found.hbm_bytes == 2 * 8 * 1024 * 1024 * 2 + 1024 * 1024 * 2


def test_a_whole_program_names_its_relayouts(scratch):
    def function(x, y):
        return blocked(256, 256, 256)(jnp.swapaxes(x, 0, 1), y)

    found = tpu.estimate(function, *[shape(2048, 2048, dtype=jnp.float32)] * 2)
    assert found.cycles == pytest.approx(sum(op.cycles for op in found.ops), rel=0.01)
    assert found.relayouts and all(op.hbm_bytes > 0 for op in found.relayouts)
    assert "compute" not in {op.bound for op in found.relayouts}
    assert "XLA" in found.method or "profile" in found.method
    kernel = next(op for op in found.ops if op.kind == "kernel")
    assert kernel.cycles > 0 and "static profile" in kernel.method


def test_a_copy_into_vmem_that_nothing_hides_is_charged(scratch):
    """Otherwise a kernel would look faster for having its operand fetched beforehand."""

    def fetched_first(x, y):
        x = pltpu.with_memory_space_constraint(x, pltpu.MemorySpace.VMEM)
        return blocked(512, 2048, 512)(x, y)

    found = tpu.estimate(fetched_first, *square(2048))
    [copy] = [op for op in found.ops if op.name.startswith("copy-done")]
    size = 2 * 2048**2
    rate = tpu.CHIPS["v5e"].hbm_bytes_per_cycle * RATES["v5e"].read
    assert copy.cycles == pytest.approx(size / rate, rel=0.01)
    assert copy.method == "a copy that nothing hides"
    # What XLA lets the program before fetch is free.
    ours = tpu.estimate(functools.partial(matmul, implementation="xla"), *square(2048))
    assert ours.optimal_seconds > 0 and ours.ops[-1].kind == "matmul"
    assert 0.5 < ours.utilisation < 1 and ours.bound == "compute"
    hidden = [op for op in ours.ops if op.name.startswith("copy-done")]
    assert hidden and all(op.cycles == 0 for op in hidden)


@pytest.mark.parametrize("implementation", ["xla", "v0"])
def test_copies_side_by_side_share_hbm(scratch, implementation):
    """GIOU's arguments come in by a relayout and, beside it, by a copy or by four slices."""
    boxes = shape(1024, 256, 4, dtype=jnp.float32)
    found = tpu.estimate(functools.partial(giou, implementation=implementation), boxes, boxes)
    rate = tpu.CHIPS["v5e"].hbm_bytes_per_cycle
    waits = [i for i, op in enumerate(found.ops) if "-done" in op.name]
    taken = sum(op.cycles for op in found.ops[: waits[-1] + 1])
    moved = sum(op.hbm_bytes for op in found.ops[: waits[-1] + 1])
    assert moved == 2 * 4 * 4 * 1024 * 256  # each slice counts once, not its whole operand
    assert taken >= moved / rate


def test_loops_count_as_often_as_they_run(scratch):
    def function(x, y):
        return jax.lax.scan(lambda c, _: (blocked(256, 256, 256)(c, y), None), x, None, length=5)[0]

    found = tpu.estimate(function, *square(512))
    assert next(op for op in found.ops if op.kind == "kernel").times == 5
    assert found.flops == 5 * 2 * 512**3


@pytest.mark.parametrize("counted", [True, False])
def test_a_kernel_s_loop_without_a_count_is_told(counted, scratch):
    def body(x_ref, o_ref):
        x = x_ref[...]
        if counted:
            o_ref[...] = jax.lax.fori_loop(0, pl.program_id(0) + 5, lambda i, x: x * 0.5, x)
        else:
            o_ref[...] = jax.lax.while_loop(lambda x: jnp.max(x) > 1, lambda x: x * 0.5, x)

    found = tpu.estimate(pl.pallas_call(body, out_shape=ROWS, grid=(1,)), ROWS)
    assert ("a kernel's loop or grid of unknown length counts once" in found.notes) != counted
    assert found.depends == (() if counted else ("args[0]",))


def test_a_loop_that_a_quotient_ends_counts_its_rounds(scratch):
    """As attention that is causal has it; of its length the profile knows nothing."""

    def seconds(end):
        def body(x_ref, o_ref):
            add = lambda j, total: total + jnp.exp(x_ref[pl.ds(256 * j, 256), :])
            o_ref[...] = jax.lax.fori_loop(0, end(pl.program_id(0)), add, jnp.zeros(o_ref.shape))

        x, rows = shape(4096, 128, dtype=jnp.float32), pl.BlockSpec((256, 128), lambda i: (i, 0))
        options = {"grid": (16,), "in_specs": [pl.BlockSpec()], "out_specs": rows}
        return tpu.estimate(pl.pallas_call(body, out_shape=x, **options), x).seconds

    by_quotient = seconds(lambda i: pl.cdiv((i + 1) * 256, 256))
    assert by_quotient == pytest.approx(seconds(lambda i: i + 1), rel=0.05)


def test_a_strided_dma(scratch):
    """The profile has no figure for planes; blocks side by side give one."""

    def body(x_ref, o_ref):
        o_ref[...] = x_ref[0] * x_ref[1] + x_ref[2] - x_ref[3]

    planes = pl.BlockSpec((4, 128, 256), lambda i: (0, i, 0))
    rows = pl.BlockSpec((128, 256), lambda i: (i, 0))
    options = {"grid": (8,), "in_specs": [planes], "out_specs": rows}
    call = pl.pallas_call(body, out_shape=shape(1024, 256, dtype=jnp.float32), **options)
    found = tpu.estimate(call, shape(4, 1024, 256, dtype=jnp.float32))
    assert "side by side" in found.method and found.hbm_bytes == 5 * 1024 * 256 * 4


def test_prefetched_scalars_are_told(scratch):
    rows, table = shape(8, dtype=jnp.int32), shape(64, 128, dtype=jnp.float32)
    assert "prefetched scalars" in str(tpu.estimate(chosen_rows(), rows, table).notes)


def test_a_libtpu_without_the_profile_falls_back_and_says_so(scratch, forgotten, monkeypatch):
    monkeypatch.setattr(pool, "_dropped", set())
    monkeypatch.setitem(libtpu.FLAGS, "profile", ("xla_jf_dump_bogus={}",))
    monkeypatch.setitem(libtpu.NEEDED, "profile", ("xla_jf_dump_bogus",))
    found = tpu.estimate(LARGE, *square(1024))
    assert found.method.startswith("schedule against DMA time")
    assert "no flag xla_jf_dump_bogus" in found.method


def test_a_libtpu_without_any_flag_still_estimates(scratch, forgotten, monkeypatch):
    lost = {f.split("=")[0] for flags in libtpu.FLAGS.values() for f in flags}
    monkeypatch.setattr(pool, "_dropped", lost)
    found = tpu.estimate(LARGE, *square(1024))
    assert "no schedule" in found.method and "no profile" in found.method
    assert 0 < found.utilisation <= 1
    with pytest.raises(tpu.TpuCompileError, match="no schedule"):
        tpu.schedule(LARGE, *square(1024))


def test_a_profile_that_aborts_the_compiler(scratch, forgotten, monkeypatch):
    compile_all = pool.compile_all

    def crash(programs, *, purposes=(), **options):
        if "profile" in purposes:
            why = tpu.TpuCompileError("crashed", "the compiler crashed (SIGABRT)")
            return [why for _ in programs]
        return compile_all(programs, purposes=purposes, **options)

    monkeypatch.setattr(pool, "compile_all", crash)
    found = tpu.estimate(LARGE, *square(1024))
    assert "schedule against DMA time" in found.method and "SIGABRT" in found.method


def test_of_results_of_one_shape_the_operands_tell_whose_kernel_it_is(scratch):
    arrays = shape(256, 512), shape(512, 256), shape(256, 1024), shape(1024, 256)
    estimate = tpu.estimate(lambda x, w, y, v: (matmul(x, w), matmul(y, v)), *arrays)
    calls = [op.call for op in estimate.ops if op.call]
    for order in (calls, calls[::-1]):
        kernels = profile.match(SimpleNamespace(calls=order), estimate.compiled).values()
        read = [[operand.shape for operand in kernel.call.inputs] for kernel in kernels]
        wanted = [[array.shape for array in kernel.instruction.operands] for kernel in kernels]
        assert len(read) == 2 and read == wanted


def test_what_is_remembered_is_bounded(scratch, forgotten, monkeypatch):
    monkeypatch.setattr(batch, "MEMORY", 2)
    shapes = [shape(8 * n, 128, dtype=jnp.float32) for n in (1, 2, 3)]
    first, _ = (tpu.estimate(jnp.exp, x) for x in shapes[:2])
    assert tpu.estimate(jnp.exp, shapes[0]) is first
    third = tpu.estimate(jnp.exp, shapes[2])  # the second was asked for longest ago
    assert list(batch._memo.values()) == [first, third]


@pytest.mark.parametrize(("semantics", "share"), [(("parallel", "arbitrary"), 2), (("",) * 2, 1)])
def test_a_cut_grid_that_one_core_runs_stands_for_two(semantics, share, monkeypatch):
    """Cut along a dimension that is not parallel, a splash attention keeps one core idle."""
    monkeypatch.setattr(jax_pallas, "axes_read", lambda equation: {1})

    call = SimpleNamespace(equation=None, grid=(8, 136), semantics=semantics)
    cut = cut_grid(SimpleNamespace(call=call, step_cycles=8792, rounds=1, by_values=True), 2)
    assert cut.grid(cut.long)[0] == 1 and cut.units == 8 * 136 / share


@pytest.mark.parametrize(
    ("grid", "reads", "bundles"), [((16, 8, 8), {2}, 9000), ((64, 64, 64), {2}, 50), ((7,), (), 9)]
)
def test_cut(grid, reads, bundles, monkeypatch):
    monkeypatch.setattr(jax_pallas, "axes_read", lambda equation: set(reads))

    kernel = SimpleNamespace(
        call=SimpleNamespace(equation=None, grid=grid),
        **{"steps": math.prod(grid), "step_cycles": bundles, "rounds": 1, "by_values": False},
    )
    cut = cut_grid(kernel)
    whole = Cut.grid(cut, cut.long)
    assert math.prod(whole) * bundles <= 2.5 * profile.REDUCED_CYCLES
    assert all(1 <= w <= g for w, g in zip(whole, grid))
    for axis in reads:
        assert whole[axis] == grid[axis]  # a sum is never cut where that is affordable
    if len(cut.counts) == 2:
        assert cut.long == 2 * cut.short
        assert cut.units * math.prod(whole) == math.prod(grid) * cut.long
    else:
        assert whole == grid


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_a_kernel_and_xla_are_charged_alike(chip, monkeypatch):
    """One array doubled by both: each pays a start, its bytes, and one block of the work."""

    def kernel(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]

    by_kernel, rows = blockwise((1024, 1024), (64, 1024), body=kernel)
    programs = (lambda x: 2 * x, by_kernel)
    pair = [tpu.estimate(double, rows, chip=chip) for double in programs]
    assert pair[0].seconds == pytest.approx(pair[1].seconds, rel=0.08)
    start = RATES[chip].start_seconds
    monkeypatch.setitem(RATES, chip, replace(RATES[chip], start_seconds=0.0))
    for estimate, double in zip(pair, programs):
        without = tpu.estimate(double, rows, chip=chip)
        assert estimate.seconds - without.seconds == pytest.approx(start, rel=1e-3)


SECONDS = 60.0  # on two idle cores


def largest():
    """Of every implementation, the largest problem on a v5e that the book has an estimate of."""
    rows: dict = {}
    for row in store.read("estimated.csv"):
        if row.chip != "v5e" or row.pass_ != "forward" or row.operator not in OPERATORS:
            continue
        for implementation in OPERATORS[row.operator].implementations:
            if implementation.name == row.implementation and "v5e" in implementation.backend.chips:
                rows.setdefault((row.operator, row.implementation), []).append(row)
    return [max(known, key=lambda row: math.prod(row.sizes.values())) for known in rows.values()]


LARGEST = largest()
assert len(LARGEST) > 20


@pytest.mark.full
@pytest.mark.parametrize("row", LARGEST, ids=lambda row: f"{row.operator}-{row.implementation}")
def test_the_largest_figure_is_estimated_within_a_minute(row):
    operator = OPERATORS[row.operator]
    implementation = operator[row.implementation]
    if implementation.needs and not optional.available(implementation.needs):
        pytest.skip(f"{implementation.needs} is not installed")
    kept = {"options": row.options.typed(), "tuning": row.tuning.typed()}
    workload = Workload("largest", dict(row.sizes), row.dtype, **kept)
    job = Subject.of(operator, implementation).job(workload)
    start, before = time.monotonic(), processor()
    [found] = implementation.backend.estimate([(job, "v5e")], timeout=120, budget=20)
    assert isinstance(found, tpu.Estimate), found
    # Where other tests have the processor as well, what it took of that counts: two compilers
    # work side by side for half of the time and more.
    assert min(time.monotonic() - start, 0.75 * (processor() - before)) < SECONDS
