"""Estimates agree with hand counts, time lines keep their rules, and the command tells both."""

import dataclasses
import itertools
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from commands import run
from hypothesis import given
from hypothesis import strategies as st
from nkikernels import stored
from refused import refuses

from kernels import __version__, figures, neuron
from kernels.figures import store
from kernels.giou import neuronxcc as old
from kernels.giou import nki as new
from kernels.machines.neuron import beta1
from kernels.machines.neuron.beta1 import isa as bisa
from kernels.machines.neuron.beta1 import language as bl
from kernels.machines.neuron.modern import isa as nisa
from kernels.machines.neuron.modern import jit
from kernels.machines.neuron.modern import language as nl

CHIP = neuron.CHIPS["inf2"]
HALF = np.ones((128, 4096), ml_dtypes.bfloat16)


def boxes(b, n):
    return np.zeros((b, n, 4), np.float32), np.ones((b, n, 4), np.float32)


def tiny(instruction, part):
    """A kernel of one copy in, one instruction on some columns, one copy out."""

    @jit
    def kernel(x):
        tile = nl.load(x)
        instruction(tile[:, part if isinstance(part, slice) else slice(part)])
        return stored(tile)

    return kernel


def scaled(part):
    nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=2.0)


# What one instruction costs, beyond what test_neuron_costs.py lists.
BY_HAND = {
    "8 N": (lambda t: nisa.reciprocal(t, t), 512, "Vector", 4096),
    "on GpSimd": (lambda t: nisa.tensor_tensor(t, t, t, nl.add, engine=nisa.engine.gpsimd), 512,
        "GpSimd", 1024),
    "a step of 32 bytes: half the rate": (scaled, slice(0, 1024, 8), "Vector", 256),
    "16 bytes: the full rate": (scaled, slice(0, 512, 4), "Vector", 128),
    "64": (scaled, 64, "Vector", 64),
    "at least 64, and 100 because it is short": (scaled, 8, "Vector", 164),
    "8 N, and short": (lambda t: nisa.reciprocal(t, t), 8, "Vector", 164),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_cycles_by_hand(name):
    instruction, part, engine, cycles = BY_HAND[name]
    x = np.ones((128, 1024), np.float32)
    found = neuron.estimate(tiny(instruction, part), x)
    use = found.engines[engine]
    assert (use.instructions, use.cycles) == (1, cycles)
    assert use.seconds == pytest.approx(cycles / CHIP.clock_hz[engine])
    assert sum(u.instructions for u in found.engines.values()) == 3
    # A copy of 512 KiB in, the instruction, the copy out: nothing can overlap.
    copy = 1.3e-6 + x.nbytes / 272e9
    assert found.dma_bytes == 2 * x.nbytes
    assert found.seconds == pytest.approx(2 * copy + use.seconds)
    assert found.sbuf_bytes == 4096 and found.psum_bytes == 0


def test_parts_of_a_tile_that_share_nothing_do_not_wait_for_each_other():
    @jit
    def kernel(x, first, second):
        a = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.memset(dst=a, value=0.0)
        for part in (first, second):
            view = a[:, part[0]] if len(part) == 1 else a[:, part[0]][:, part[1]]
            nisa.tensor_scalar(dst=view, data=view, op0=nl.add, operand0=1.0)
        return stored(a)

    def waits(first, second):
        slots = neuron.estimate(kernel, np.ones((128, 512), np.float32), first, second).timeline
        return 1 in slots[2].after

    left, right, even = slice(0, 256), slice(256, 512), slice(0, 512, 2)
    assert not waits((left,), (right,)) and waits((left,), (left,))
    assert waits((even, slice(128, 256)), (right,))  # the even ones from 256 on
    assert waits((left, slice(64, 128)), (slice(64, 128),))


def test_giou_by_hand():
    """Eight tiles of 128 samples; each a list that can be counted in kernels/giou/nki.py."""
    n, tiles = 256, 8
    found = neuron.estimate(new.giou_kernel, *boxes(1024, n))
    wide = 2 * 4 * n * 2 + 4 * 2 * 2 * n  # high and low; four pairs of sides
    areas = 2 * n + 2 * n + 2 * (n + 2 * n)  # p and t; inter and enclosing, with a clamp each
    union = 2 * n + 2 * n + n + n  # sum, difference, two clamps
    score = 8 * n + 2 * n + 2 * n + 8 * n + 2 * n + 2 * n  # two quotients, two differences
    work = tiles * (wide + areas + union + score)
    vector = found.engines["Vector"]
    assert vector.instructions == tiles * 22 and found.engines["DMA"].instructions == tiles * 3
    assert work == tiles * 72 * n
    late = vector.cycles - work  # instructions that wait for the one before
    assert late % 100 == 0 and 0 < late <= 100 * vector.instructions
    assert found.dma_bytes == 1024 * n * 9 * 4 and found.bound == "Vector"


def test_reciprocals_move_to_the_scalar_engine():
    here, there = (
        neuron.estimate(new.giou_kernel, *boxes(1024, 256), scalar_engine=s) for s in (False, True)
    )
    moved = here.engines["Vector"].by_name["reciprocal"]
    assert moved == 8 * 2 * 8 * 256 and "reciprocal" not in there.engines["Vector"].by_name
    assert there.engines["Scalar"].cycles == 8 * 2 * 256 and there.seconds < here.seconds


KERNELS = [
    lambda b, n: neuron.estimate(new.giou_kernel, *boxes(b, n)),
    lambda b, n: neuron.estimate(new.giou_kernel, *boxes(b, n), scalar_engine=True),
    lambda b, n: neuron.estimate(old.giou_kernel, *(x.reshape(b, 4 * n) for x in boxes(b, n))),
]


@pytest.mark.parametrize("kernel", KERNELS)
@given(b=st.integers(1, 300), n=st.integers(1, 600))
def test_time_lines_keep_their_rules(kernel, b, n):
    found = kernel(b, n)
    slots = {slot.number: slot for slot in found.timeline}
    assert sorted(slots) == list(range(len(slots)))
    groups = {name: [s for s in slots.values() if s.engine == name] for name in found.engines}
    groups["the SBUF port"] = groups["Vector"] + groups["GpSimd"]
    for name, group in groups.items():
        group.sort(key=lambda s: s.start)
        for one, next_one in itertools.pairwise(group):
            assert one.end <= next_one.start + 1e-15 or name == "DMA", f"overlap on {name}"
        if name not in ("DMA", "the SBUF port"):
            assert [s.number for s in group] == sorted(s.number for s in group)
    for slot in slots.values():
        assert 0 <= slot.start <= slot.end <= found.seconds
        for earlier in slot.after:
            assert earlier < slot.number and slots[earlier].end <= slot.start
    waits = [s for s in slots.values() if s.engine != "DMA"]
    assert waits and all(s.after for s in waits)  # nothing computes on what nobody fetched


def test_slow_queues_bind():
    args = boxes(1024, 256)
    fast = neuron.estimate(new.giou_kernel, *args, dma_bytes_per_second=410e9)
    slow = neuron.estimate(new.giou_kernel, *args, dma_bytes_per_second=20e9)
    assert fast.bound == "Vector" and slow.bound == "DMA"
    assert slow.seconds > slow.dma_bytes / 20e9 > fast.seconds
    # No more than this core's share of the main memory's bandwidth.
    more = neuron.estimate(new.giou_kernel, *args, dma_bytes_per_second=1e15)
    assert more.seconds == fast.seconds and "410 GB/s" in more.method


def test_a_dma_engine_serves_eight_partitions():
    """AWS's introduction to DMA times its [4, 4096] bfloat16 on Trn2: 1416 ns, on one engine."""

    @jit
    def kernel(x, rows, starts):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype)
        for start in starts:
            nisa.dma_copy(dst=tile[start : start + rows], src=x[:rows])
        nl.store(x[:rows], tile[:rows])

    def copied(rows, *starts):
        slots = neuron.estimate(kernel, HALF, rows, starts, chip="trn2").timeline
        return [slots[0].end - slots[0].start, *(s.start - slots[0].end for s in slots[1:-1])]

    [alone] = copied(4, 0)
    assert alone == pytest.approx(1416e-9, rel=0.01) == copied(8, 0)[0] / 2 == copied(128, 0)[0] / 2
    assert copied(12, 0)[0] == copied(8, 0)[0]  # the second engine has four
    assert copied(4, 0, 4) == [alone, 0] and copied(4, 0, 8) == [alone, -alone]  # side by side


def test_copies_wait_for_room():
    """Tiles of half of SBUF each: the third copy has to wait until the first tile is done with."""

    @jit
    def kernel(x, width):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for part in nl.affine_range(x.shape[1] // width):
            tile = nl.ndarray((128, width), dtype=x.dtype)
            where = slice(part * width, part * width + width)
            nisa.dma_copy(dst=tile, src=x[:, where])
            nisa.reciprocal(dst=tile, data=tile)
            nisa.dma_copy(dst=out[:, where], src=tile)
        return out

    x = np.ones((128, 4 * 24 * 1024), np.float32)
    slots = neuron.estimate(kernel, x, 24 * 1024, dma_bytes_per_second=400e9).timeline
    loads, stores = slots[0::3], slots[2::3]
    assert loads[1].end < slots[1].end  # the second tile is fetched while the first is computed
    assert loads[2].start >= stores[0].end and loads[3].start >= stores[1].end


def test_an_estimate_says_what_it_is_and_a_shape_is_enough():
    estimate = neuron.estimate(new.giou_kernel, *boxes(130, 20), chip="trn1")
    assert estimate.chip == "trn1" and estimate.kernel == "giou_kernel"
    for words in ("list schedule", "architecture guide", "272 GB/s", "not counted"):
        assert words in estimate.method
    assert 0 < max(estimate.busy.values()) <= 1
    shape = jax.ShapeDtypeStruct((130, 20, 4), np.float32)
    assert neuron.estimate(new.giou_kernel, shape, shape, chip="trn1").seconds == estimate.seconds


test_arguments_are_checked = refuses(
    lambda options: neuron.estimate(new.giou_kernel, *boxes(2, 2), **options),
    ({"chip": "inf9"}, "chip is 'inf9'; accepted: inf2, trn1"),
    ({"dma_bytes_per_second": 0}, "dma_bytes_per_second is 0; accepted: a number above 0"),
    ({"dma_bytes_per_second": "fast"}, "dma_bytes_per_second is 'fast'"),
    ({"whole": "no"}, "whole is 'no'; accepted: None, True or False"),
    ({"reciprocal_cycles": 0}, "reciprocal_cycles is 0; accepted: a number above 0"),
)


def test_every_figure_of_a_chip_has_a_source():
    named = {name for name, _ in CHIP.sources}
    assert {*CHIP.__dataclass_fields__} - {"name", "device_kind", "sources"} == named
    assert all(CHIP.source(name) for name in named)
    with pytest.raises(ValueError, match="accepted"):
        CHIP.source("weight")


def product(loop, ragged=False, listed=False):
    """A product of tiles, in loops over blocks of both matrices."""

    @jit
    def kernel(xt, y):
        (k, m), n = xt.shape, y.shape[1]
        z = nl.ndarray((m, n), dtype=xt.dtype, buffer=nl.shared_hbm)
        for i in loop((m + 127) // 128):
            tall = min(128, m - i * 128) if ragged else 128
            a = []
            for step in (loop if listed else range)(k // 128):
                a.append(nl.load(xt[step * 128 : step * 128 + 128, i * 128 : i * 128 + tall]))
            for j in loop(n // 128):
                total = nl.ndarray((tall, 128), dtype=nl.float32, buffer=nl.psum)
                for step in loop(k // 128):
                    b = nl.load(y[step * 128 : step * 128 + 128, j * 128 : j * 128 + 128])
                    nisa.nc_matmul(dst=total, stationary=a[step], moving=b)
                c = nl.ndarray((tall, 128), dtype=xt.dtype)
                nisa.tensor_copy(dst=c, src=total)
                nl.store(z[i * 128 : i * 128 + tall, j * 128 : j * 128 + 128], c)
        return z

    return kernel


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range], ids=["affine", "in order"])
@pytest.mark.parametrize(("ragged", "listed"), [(False, False), (True, False), (False, True)])
def test_an_estimate_from_some_iterations_is_that_of_all(loop, ragged, listed):
    shapes = np.zeros((1024, 1000 if ragged else 1024)), np.zeros((1024, 1152))
    shapes = [x.astype(np.float32) for x in shapes]
    kernel = product(loop, ragged, listed)
    some, all_of = (neuron.estimate(kernel, *shapes, whole=w) for w in (False, True))
    assert 0.4 < some.extrapolated < 1 and all_of.extrapolated == 0
    assert "made from loops' first iterations" in some.method and "made" not in all_of.method
    assert some.psum_bytes == 2048  # a bank: the sums of one product live at a time
    for name in ("seconds", "engines", "dma_bytes", "sbuf_bytes", "psum_bytes", "timeline"):
        assert getattr(some, name) == getattr(all_of, name), name


@jit
def uneven(x, late):
    """Each iteration has more to do than the one before; or some are unlike the first ones."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.sequential_range(16):
        for _ in nl.sequential_range(1 if late else i + 7):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        if late and i > 8:
            nisa.reciprocal(dst=tile, data=tile)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("late", [False, True])
def test_iterations_that_differ_all_run(late):
    x = np.ones((128, 512), np.float32)
    some, all_of = (neuron.estimate(uneven, x, late, whole=whole) for whole in (False, True))
    assert some.seconds == all_of.seconds and some.engines == all_of.engines
    assert neuron.estimate(uneven, x, late).extrapolated == 0  # short ones run whole


def test_a_kernel_that_is_wrong_says_so_however_it_is_run():
    @jit
    def kernel(x):
        tiles = []
        for _ in nl.affine_range(9):
            tiles.append(nl.load(x))
        nl.store(x, tiles[9])

    for whole in (None, False, True):
        with pytest.raises(IndexError):
            neuron.estimate(kernel, np.ones((128, 512), np.float32), whole=whole)


def test_the_price_of_a_reciprocal_can_be_given():
    x = np.ones((128, 512), np.float32)
    kernel = tiny(*BY_HAND["8 N"][:2])
    two, eight = (neuron.estimate(kernel, x, reciprocal_cycles=n) for n in (2, 8))
    assert [e.engines["Vector"].cycles for e in (two, eight)] == [1024, 4096]
    assert "reciprocals at 2 cycles" in two.method


def test_what_is_left_to_beta_1_s_compiler_goes_to_the_engine_that_is_free():
    @beta1.jit
    def kernel(x, engine):
        out = bl.ndarray(x.shape, dtype=x.dtype, buffer=bl.shared_hbm)
        a = bl.load(x)
        squared = bisa.tensor_tensor(a, a, bl.multiply)
        scaled = bisa.tensor_scalar(a, bl.multiply, 2.0, engine=engine)
        bl.store(out, bisa.tensor_tensor(squared, scaled, bl.add))
        return out

    x = np.ones((128, 512), np.float32)
    free, bound = (neuron.estimate(kernel, x, e) for e in (None, bisa.vector_engine))
    assert free.engines["Scalar"].instructions == 1 and bound.engines["Scalar"].instructions == 0
    assert free.seconds < bound.seconds


def test_an_estimate_says_what_binds_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    result = run("estimate", "giou/neuronxcc", "--figures", "--record")
    assert result.exit_code == 0
    for words in ("not measured", "inf2", "Vector", "−24 … +44 %"):
        assert words in result.output
    (record,) = figures.read("estimated.csv")
    assert (record.operator, record.implementation) == ("giou", "neuronxcc")
    assert (record.kind, record.unit, record.chip) == ("estimated", "ms", "inf2")
    assert record.versions == f"kernels {__version__}" and "list schedule" in record.method
    again = dataclasses.replace(record, date="today")
    (kept,) = (
        r
        for r in figures.read(Path(__file__).parents[3] / "results" / "estimated.csv")
        if r.identity == record.identity
    )
    assert dataclasses.replace(kept, date="today") == again  # the book's figure is today's
